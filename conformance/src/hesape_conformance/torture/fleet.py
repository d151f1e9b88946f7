"""The processes of a torture: supervisors with their workers, and producers, replaced when they were struck down."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from hesape.worker.options import Settle
from hesape_conformance.torture.names import (
    FOLDER_VARIABLE,
    GRACE_VARIABLE,
    LEASE_VARIABLE,
    QUEUES,
    SKEW_VARIABLE,
)

if TYPE_CHECKING:
    from hesape.config import ConnectionSettings
    from hesape_conformance.history import Recorder

HESAPE: Final = (sys.executable, "-c", "import sys; from hesape.cli import main; sys.exit(main())")
GRACE_S: Final = 5.0
SKEWS_S: Final = (-3_600.0, -300.0, 0.0, 300.0, 3_600.0)
_CLOCK: Final = """\
import os
from hesape_conformance.tasks import shift_clock
shift_clock(float(os.environ["HESAPE_TORTURE_SKEW"]))
"""
_LEAVES_S: Final = GRACE_S + 8.0
_PAUSE_S: Final = 1.0
"""Before one that ended by itself is replaced."""
_TAIL: Final = 10


@attrs.define(eq=False)
class Post:
    """A place in the fleet that is always held by some process."""

    name: str
    command: tuple[str, ...]
    lease_s: float = 0.0
    """Of a supervisor's workers; 0 for a producer."""
    process: subprocess.Popen[bytes] | None = None
    expected: bool = False
    """Whether its process was struck, and may end."""
    start_at: float = 0.0
    """Before this monotonic time no other is started in its place."""

    @property
    def pid(self) -> int:
        """The process's id."""
        assert self.process is not None
        return self.process.pid


class Fleet:
    """Starts processes in `folder`, and ends them by their ids."""

    def __init__(
        self, folder: Path, settings: ConnectionSettings, recorder: Recorder, rng: random.Random, *, skewed: bool
    ) -> None:
        """Write what the processes read; `skewed` gives each a wrong clock."""
        self.folder = folder
        self._recorder = recorder
        self._rng = rng
        self._skewed = skewed
        self._settles = itertools.cycle(Settle)
        self.settles: Counter[str] = Counter()
        """How many supervisors were started for each way to settle; they take turns."""
        self.posts: list[Post] = []
        self.problems: list[str] = []
        """Processes that ended and weren't struck."""
        (folder / "hesape.toml").write_text(configuration(settings), encoding="utf-8")
        if skewed:
            (folder / "clock").mkdir()
            (folder / "clock" / "sitecustomize.py").write_text(_CLOCK, encoding="utf-8")

    # Starting.

    def supervisor(self, name: str, lease_s: float, processes: int) -> Post:
        """Add a supervisor, and start it."""
        options = {"lease": lease_s, "processes": processes, "concurrency": 4, "grace": GRACE_S, "sleep": 0.2}
        flags = [word for option, value in options.items() for word in (f"--{option}", str(value))]
        command = (*HESAPE, "work", "--app", "hesape_conformance.torture.app:app", *flags, "--queue", ",".join(QUEUES))
        return self._add(Post(name, command, lease_s))

    def producer(self, name: str, seed: int) -> Post:
        """Add a producer, and start it."""
        command = (sys.executable, "-m", "hesape_conformance.torture.producer", str(seed))
        return self._add(Post(name, command))

    def _add(self, post: Post) -> Post:
        self.posts.append(post)
        self.start(post)
        return post

    def start(self, post: Post) -> None:
        """Start a process for a post."""
        environment = {
            **os.environ,
            FOLDER_VARIABLE: str(self.folder / "history"),
            LEASE_VARIABLE: str(post.lease_s),
            GRACE_VARIABLE: str(GRACE_S),
        }
        if self._skewed:
            environment[SKEW_VARIABLE] = str(self._rng.choice(SKEWS_S))
            environment["PYTHONPATH"] = os.pathsep.join(
                filter(None, [str(self.folder / "clock"), os.environ.get("PYTHONPATH")])
            )
        with (self.folder / f"{post.name}.txt").open("ab") as log:
            post.process = subprocess.Popen(
                [*post.command, *(self._to_settle() if post.lease_s else ())],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )
        post.expected, post.start_at = False, 0.0

    def _to_settle(self) -> tuple[str, str]:
        settle = next(self._settles)
        self.settles[settle] += 1
        return "--settle", settle

    def tend(self) -> None:
        """Replace whoever ended; one that wasn't struck is a problem."""
        for post in self.posts:
            if post.process is None or post.process.poll() is None:
                continue
            if not post.start_at:
                post.start_at = time.monotonic() + (0.0 if post.expected else _PAUSE_S)
                if not post.expected:
                    self._report(post)
            if time.monotonic() >= post.start_at:
                self.start(post)

    def _report(self, post: Post) -> None:
        assert post.process is not None
        self._problem(post, f"ended with code {post.process.returncode}")

    def _problem(self, post: Post, what: str) -> None:
        tail = [f"      {line[:200]}" for line in self.log(post).splitlines()[-_TAIL:]]
        self.problems.append("\n".join([f"{post.name} {what}; it logged:", *tail]))

    def log(self, post: Post) -> str:
        """What a post's processes printed."""
        return (self.folder / f"{post.name}.txt").read_text(encoding="utf-8", errors="replace")

    # Looking.

    @property
    def supervisors(self) -> list[Post]:
        """The posts of supervisors."""
        return [post for post in self.posts if post.lease_s]

    @property
    def producers(self) -> list[Post]:
        """The posts of producers."""
        return [post for post in self.posts if not post.lease_s]

    @staticmethod
    def workers(post: Post) -> list[int]:
        """The ids of the processes under a supervisor."""
        return children(post.pid)

    def is_busy(self, pid: int) -> bool:
        """Whether a handler runs in a worker process, by what it has noted."""
        for path in (self.folder / "history").glob(f"worker-{pid}-*.jsonl"):
            noted = path.read_bytes()
            return noted.count(b'"started"') > noted.count(b'"settling"')
        return False

    # Striking.

    def signal(self, pid: int, number: signal.Signals) -> None:
        """Note a signal, then send it; a process that is gone is left alone."""
        what = {
            signal.SIGKILL: "killed",
            signal.SIGSTOP: "stopped",
            signal.SIGCONT: "continued",
            signal.SIGTERM: "asked",
        }[number]
        if Path(f"/proc/{pid}").exists():
            self._recorder.note(what, pid=pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    # Ending.

    def stop(self, posts: list[Post]) -> None:
        """Let these end in order; one that doesn't is killed, which is a problem."""
        for post in posts:
            self.posts.remove(post)
            self.signal(post.pid, signal.SIGTERM)
        deadline = time.monotonic() + _LEAVES_S
        for post in posts:
            assert post.process is not None
            try:
                code = post.process.wait(max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                self._kill(post)
                self.problems.append(
                    f"{post.name} was asked to stop and hadn't after {_LEAVES_S:g} s\n{self.log(post)}"
                )
                continue
            if code not in {0, -signal.SIGTERM} and not post.expected:  # a new one may not have learned to stop yet
                self._report(post)

    def close(self) -> None:
        """Kill whatever is left."""
        for post in self.posts:
            self._kill(post)
        self.posts.clear()

    def _kill(self, post: Post) -> None:
        for pid in [*self.workers(post), post.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert post.process is not None
        post.process.wait()


def children(pid: int) -> list[int]:
    """The ids of a process's children, none when it is gone."""
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except OSError:
        return []
    return sorted(map(int, found))


def configuration(settings: ConnectionSettings) -> str:
    """A hesape.toml with one connection."""
    lines = ['default = "main"', "[connections.main]", f"driver = {json.dumps(settings.driver)}"]
    if settings.url:
        lines.append(f"url = {json.dumps(settings.url)}")
    return "\n".join([*lines, *(f"{name} = {json.dumps(value)}" for name, value in settings.options.items())]) + "\n"
