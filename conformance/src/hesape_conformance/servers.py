"""Throw-away servers on free loopback ports, which tests own and may therefore kill and start again.

    with PrivateSomething() as server:      # started, and answering
        driver = connect(server.url)
        server.kill()                       # as a crash does
        server.start()                      # the same address, the same data

A `PrivateServer` leaves nothing behind: its folder and its processes go with it, and a guard process sees to that when
the tests themselves are killed.
"""

from __future__ import annotations

import abc
import contextlib
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

from hesape_conformance import guard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

READY_WITHIN_S = 60.0
STOPPED_WITHIN_S = 30.0
SYSTEM_FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/usr/bin")
LOG_LINES = 30


class ServerError(Exception):
    """A private server could not be started or stopped; the message ends with what it logged."""


class Server(Protocol):
    """What a test needs of a server: its address, and whether it may be killed."""

    @property
    def url(self) -> str:
        """The address, as `hesape.toml` takes it."""

    @property
    def can_restart(self) -> bool:
        """Whether this is a `PrivateServer`, which tests may kill and start again."""


class GivenServer:
    """A server somebody else runs and named by its address: used as it is, never stopped."""

    can_restart = False

    def __init__(self, url: str) -> None:
        self.url = url


class PrivateServer(abc.ABC):
    """A server process of our own: data in a folder of its own, on a free port of 127.0.0.1.

    A subclass says how to make the data (`preparation`), what to run (`command`) and how to see that it answers
    (`answers`). When the tests run as root it runs as the first of `users` that exists, for some servers refuse root.
    """

    can_restart = True
    label: ClassVar[str]
    users: ClassVar[tuple[str, ...]] = ("nobody",)
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self) -> None:
        self.port = free_port()
        self.user = unprivileged(self.users)
        self.folder = Path(tempfile.mkdtemp(prefix=f"hesape-{self.label}-")).resolve()
        self.log = self.folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._prepared = False
        if self.user is not None:
            shutil.chown(self.folder, self.user, pwd.getpwnam(self.user).pw_gid)
        self._guard = subprocess.Popen(
            [sys.executable, "-I", guard.__file__, str(self.folder)], stdin=subprocess.PIPE, start_new_session=True
        )

    @property
    @abc.abstractmethod
    def url(self) -> str:
        """The address, the same before and after a restart."""

    @abc.abstractmethod
    def command(self) -> Sequence[str]:
        """The program and its arguments; it stays in the foreground and logs to standard output or error."""

    @abc.abstractmethod
    def answers(self) -> bool:
        """Whether a client's first statement succeeds now."""

    def preparation(self) -> Sequence[str]:
        """The program that makes the data for the first start, and its arguments; by default there is none."""
        return ()

    @property
    def pid(self) -> int | None:
        """The id of the server's main process while it runs, else `None`."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        """Start the server, on the data it had before if any, and return when it answers.

        Raises `ServerError` with the end of its log when it exits or stays silent for 60 seconds.
        """
        if self.pid is not None:
            return
        self._prepare()
        self._process = self._spawn(self.command())
        deadline = time.monotonic() + READY_WITHIN_S
        while not self.answers():
            if self._process.poll() is not None:
                raise self._error(f"ended with code {self._process.returncode} before it answered")
            if time.monotonic() > deadline:
                raise self._error(f"gave no answer on port {self.port} within {READY_WITHIN_S:.0f} s")
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop the server as its operator would; its data stays for the next `start`."""
        if self.pid is None or self._process is None:
            return
        self._process.send_signal(self.stop_signal)
        try:
            self._process.wait(STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired as error:
            raise self._error(f"was still running {STOPPED_WITHIN_S:.0f} s after {self.stop_signal.name}") from error
        guard.kill_all_in(self.folder)

    def kill(self) -> None:
        """End the server and all its children with SIGKILL, as a crash does; its data stays for the next `start`."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        guard.kill_all_in(self.folder)

    def restart(self) -> None:
        """Stop the server and start it again, at the same address with the same data."""
        self.stop()
        self.start()

    def close(self) -> None:
        """End the server and remove its data; may be called again."""
        self.kill()
        self._guard.communicate()

    def __enter__(self) -> Self:
        """Start the server; if it doesn't answer, leave nothing of it."""
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Leave neither processes nor files."""
        self.close()

    def _prepare(self) -> None:
        command = () if self._prepared else self.preparation()
        if command and (code := self._spawn(command).wait()) != 0:
            raise self._error(f"needs {Path(command[0]).name}, which ended with code {code}")
        self._prepared = True

    def _spawn(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=self.folder,  # the guard knows the server's processes by this
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self.folder), "LC_ALL": "C", "TZ": "UTC"},
                user=self.user,
                group=None if self.user is None else pwd.getpwnam(self.user).pw_gid,
                extra_groups=None if self.user is None else [],
            )

    def _error(self, what: str) -> ServerError:
        tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_LINES:])
        return ServerError(f"the private {self.label} server in {self.folder} {what}; it logged:\n{tail}")


@contextlib.contextmanager
def given_or_private(variable: str, private: Callable[[], PrivateServer]) -> Iterator[Server]:
    """The server whose address stands in an environment variable, or else a private one for as long as the block."""
    if url := os.environ.get(variable):
        yield GivenServer(url)
        return
    with private() as server:
        yield server


def find_program(*names: str, folders: Sequence[str | Path] = ()) -> str:
    """The path of the first of the names found in the folders given, on PATH, or where a system keeps its daemons.

    Raises `ServerError` that names what was looked for: a missing server is never a reason to skip.
    """
    path = os.pathsep.join([*map(str, folders), os.environ.get("PATH", os.defpath), *SYSTEM_FOLDERS])
    for name in names:
        if found := shutil.which(name, path=path):
            return found
    message = f"none of {', '.join(names)} is installed; `make test` installs the servers when it runs as root"
    raise ServerError(message)


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on.

    It lies below the ports the system hands out: there a client that knocks at a killed server's port can be given that
    very port for its own end, be connected to itself, and keep the server from coming back.
    """
    lowest_handed_out = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    for port in random.SystemRandom().sample(range(10_000, max(lowest_handed_out, 11_000)), 200):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    message = "none of 200 ports of 127.0.0.1 is free"
    raise ServerError(message)


def unprivileged(users: Sequence[str]) -> str | None:
    """The first of the users that exists, `nobody` at last, when this process is root; else `None`: stay who we are."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(user for user in (*users, "nobody") if user in known)
