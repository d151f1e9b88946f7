from __future__ import annotations

import socket
import threading
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from hesape_conformance.relay import Moment, Relay

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def echo() -> Iterator[tuple[str, int]]:
    """A server that answers with what it is sent."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(client: socket.socket) -> None:
        with client:
            while part := client.recv(1024):
                client.sendall(part)

    def listen() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(client,), daemon=True).start()

    threading.Thread(target=listen, daemon=True).start()
    yield listener.getsockname()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def ask(client: socket.socket, text: bytes) -> bytes:
    client.sendall(text)
    return client.recv(1024)


def test_it_forwards_both_ways_and_counts_replies() -> None:
    with echo() as server, Relay(server) as relay, closing(socket.create_connection(relay.endpoint, 5)) as client:
        assert [ask(client, text) for text in (b"one", b"two")] == [b"one", b"two"]
        assert relay.replies == 2


def test_it_holds_back_the_reply_that_it_is_told_to_cut_at_and_works_again_after_it() -> None:
    with echo() as server, Relay(server) as relay:
        with closing(socket.create_connection(relay.endpoint, 5)) as client:
            relay.cut_at_reply(2)
            assert ask(client, b"one") == b"one"
            assert not relay.was_cut
            with pytest.raises(ConnectionError):
                raise ConnectionError if ask(client, b"two") == b"" else AssertionError
            assert relay.was_cut
        with closing(socket.create_connection(relay.endpoint, 5)) as client:
            assert ask(client, b"three") == b"three"


def test_refusing_ends_what_is_open_and_turns_others_away_until_it_accepts() -> None:
    with echo() as server, Relay(server) as relay:
        client = socket.create_connection(relay.endpoint, 5)
        assert ask(client, b"one") == b"one"
        relay.refuse()
        assert client.recv(10) == b""
        client.close()
        with closing(socket.create_connection(relay.endpoint, 5)) as other:
            assert other.recv(10) == b""
        relay.accept()
        with closing(socket.create_connection(relay.endpoint, 5)) as third:
            assert ask(third, b"two") == b"two"


@contextmanager
def collecting() -> Iterator[tuple[tuple[str, int], list[bytes]]]:
    """A server that greets, keeps what it is sent, and answers each part with its length."""
    listener = socket.create_server(("127.0.0.1", 0))
    heard: list[bytes] = []

    def serve(client: socket.socket) -> None:
        with client:
            client.sendall(b"hello")
            while part := client.recv(1024):
                heard.append(part)
                client.sendall(b"%06d" % len(part))
            heard.append(b"the end")

    def listen() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(client,), daemon=True).start()

    threading.Thread(target=listen, daemon=True).start()
    yield listener.getsockname(), heard
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def exactly(client: socket.socket, size: int) -> bytes:
    """So many bytes, or fewer when the connection ends before."""
    found = b""
    with suppress(ConnectionError):
        while len(found) < size and (part := client.recv(size - len(found))):
            found += part
    return found


@pytest.mark.parametrize(
    ("moment", "n", "arrives", "comes"),
    [
        (Moment.REQUEST, 1, [], b""),
        (Moment.REQUEST, 2, [b"12345678"], b"000008"),
        (Moment.TORN_REQUEST, 1, [b"1234"], b""),
        (Moment.REPLY, 1, [b"12345678"], b""),
        (Moment.TORN_REPLY, 1, [b"12345678"], b"000"),
        (Moment.TORN_REPLY, 2, [b"12345678", b"abc"], b"000008000"),
    ],
)
def test_each_moment_lets_through_what_was_before_it_and_the_server_is_heard_out(
    moment: Moment, n: int, arrives: list[bytes], comes: bytes
) -> None:
    with collecting() as (server, heard), Relay(server) as relay:
        with closing(socket.create_connection(relay.endpoint, 5)) as client:
            assert exactly(client, 5) == b"hello"
            relay.cut_at(n, moment)
            found = b""
            for text in (b"12345678", b"abc"):
                with suppress(ConnectionError):
                    client.sendall(text)
                found += exactly(client, 6)
            assert found == comes
        assert relay.was_cut
        assert relay.settled()
        assert heard == [*arrives, b"the end"]


def test_a_greeting_is_a_reply_and_parts_of_one_reply_count_once() -> None:
    with collecting() as (server, _), Relay(server) as relay:
        for connections in (1, 2):
            with closing(socket.create_connection(relay.endpoint, 5)) as client:
                assert exactly(client, 5) == b"hello"
                assert relay.replies == 2 * connections - 1
                client.sendall(b"x")
                assert exactly(client, 3) + exactly(client, 3) == b"000001"
                assert (relay.requests, relay.replies) == (connections, 2 * connections)
