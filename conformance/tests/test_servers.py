from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hesape_conformance import guard, servers
from hesape_conformance.servers import GivenServer, PrivateServer, ServerError, find_program, free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

# Not this interpreter: the user that servers run as may have no way to it.
PYTHON = find_program("python3", folders=["/usr/bin"])

# A server with a child in a session of its own, as PostgreSQL's are; argv: port, how it behaves.
TOY = textwrap.dedent("""
    import os, signal, socket, sys, time
    port, manner = int(sys.argv[1]), sys.argv[2]
    print("toy says", manner, flush=True)
    if manner == "exits":
        sys.exit(3)
    if manner == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        os.setsid()
        time.sleep(600)
    door = socket.create_server(("127.0.0.1", port))
    if manner == "silent":
        door.close()
        time.sleep(600)
    while True:
        door.accept()[0].close()
""")


class ToyServer(PrivateServer):
    label = "toy"

    def __init__(self, manner: str = "good") -> None:
        super().__init__()
        self.manner = manner

    @property
    def url(self) -> str:
        return f"toy://127.0.0.1:{self.port}"

    def preparation(self) -> Sequence[str]:
        return ("mkdir", "data")  # fails when it is asked for twice

    def command(self) -> Sequence[str]:
        return (PYTHON, "-c", TOY, str(self.port), self.manner)

    def answers(self) -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0


@pytest.fixture
def toy() -> Iterator[ToyServer]:
    with ToyServer() as server:
        yield server


def poll(what: Callable[[], bool], within_s: float = 10.0) -> None:
    deadline = time.monotonic() + within_s
    while not what():
        assert time.monotonic() < deadline, f"not within {within_s} s"
        time.sleep(0.01)


def test_a_started_server_answers_and_has_its_children_in_its_folder(toy: ToyServer) -> None:
    assert toy.answers()
    assert toy.pid in guard.processes_in(toy.folder)
    poll(lambda: len(guard.processes_in(toy.folder)) == 2)


def test_kill_ends_also_children_that_left_the_servers_session(toy: ToyServer) -> None:
    poll(lambda: len(guard.processes_in(toy.folder)) == 2)
    toy.kill()
    assert toy.pid is None
    assert guard.processes_in(toy.folder) == set()


def test_a_killed_server_starts_again_at_the_same_address_on_the_same_data(toy: ToyServer) -> None:
    address, first = toy.url, toy.pid
    (toy.folder / "data" / "kept").touch()
    toy.kill()
    assert not toy.answers()
    toy.start()
    assert toy.answers()
    assert (toy.url, (toy.folder / "data" / "kept").exists()) == (address, True)
    assert toy.pid != first


def test_restart_replaces_the_process(toy: ToyServer) -> None:
    first = toy.pid
    toy.restart()
    assert toy.answers()
    assert toy.pid not in {first, None}


def test_starting_a_running_server_changes_nothing(toy: ToyServer) -> None:
    first = toy.pid
    toy.start()
    assert toy.pid == first


def test_leaving_the_block_leaves_no_process_and_no_folder() -> None:
    with ToyServer() as server:
        guarding = server._guard
    assert guard.processes_in(server.folder) == set()
    assert not server.folder.exists()
    assert guarding.returncode == 0


def test_a_server_that_exits_is_reported_with_what_it_logged() -> None:
    server = ToyServer("exits")
    with pytest.raises(ServerError, match=r"(?s)ended with code 3 before it answered.*toy says exits"), server:
        pass
    assert not server.folder.exists()


def test_a_server_that_stays_silent_is_reported_with_its_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "READY_WITHIN_S", 0.3)
    server = ToyServer("silent")
    with pytest.raises(ServerError, match=f"gave no answer on port {server.port} within"), server:
        pass
    assert guard.processes_in(server.folder) == set()


def test_a_server_that_ignores_its_stop_signal_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "STOPPED_WITHIN_S", 0.2)
    with ToyServer("stubborn") as server, pytest.raises(ServerError, match="after SIGTERM"):
        server.stop()


def test_a_failing_preparation_is_reported_with_its_program() -> None:
    with ToyServer() as server:
        server.stop()
        server._prepared = False
        with pytest.raises(ServerError, match=r"(?s)needs mkdir, which ended with code 1.*exists"):
            server.start()


def test_a_server_never_runs_as_root(toy: ToyServer) -> None:
    owner = Path(f"/proc/{toy.pid}").stat().st_uid
    assert owner != 0
    assert owner == (os.geteuid() or owner)


def test_nothing_is_left_when_the_tests_themselves_are_killed() -> None:
    program = (
        "import test_servers as t, time; s = t.ToyServer(); s.start(); print(s.folder, flush=True); time.sleep(600)"
    )
    here = Path(__file__).parent
    tests = subprocess.Popen([sys.executable, "-c", program], cwd=here, stdout=subprocess.PIPE, text=True)
    assert tests.stdout is not None
    folder = Path(tests.stdout.readline().strip())
    assert len(guard.processes_in(folder)) > 0
    tests.send_signal(signal.SIGKILL)
    tests.communicate()
    poll(lambda: not folder.exists())
    assert guard.processes_in(folder) == set()


def test_a_given_address_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HESAPE_TEST_TOY_URL", "toy://elsewhere")
    with servers.given_or_private("HESAPE_TEST_TOY_URL", ToyServer) as server:
        assert isinstance(server, GivenServer)
        assert (server.url, server.can_restart) == ("toy://elsewhere", False)


def test_without_an_address_the_server_is_private(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HESAPE_TEST_TOY_URL", raising=False)
    with servers.given_or_private("HESAPE_TEST_TOY_URL", ToyServer) as server:
        assert isinstance(server, ToyServer)
        assert server.can_restart
        assert server.answers()


def test_a_missing_program_is_named() -> None:
    with pytest.raises(ServerError, match="none of no-such-daemon, nor-this is installed"):
        find_program("no-such-daemon", "nor-this")


def test_ports_are_free_and_below_those_that_clients_are_given() -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    port = free_port()
    assert port < lowest
    with socket.create_server(("127.0.0.1", port)):
        pass
