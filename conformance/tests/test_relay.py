from __future__ import annotations

import socket
import threading
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest

from hesape_conformance.relay import Relay

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
