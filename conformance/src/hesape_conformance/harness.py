"""What a driver's author writes so that the suite can test the driver: a class derived from `Harness`.

It lives in the driver's package (`testing.py`), is offered under the entry-point group `hesape.conformance` with the
driver's name, and reads and changes the store without the driver: that is how forged records, leftovers and lost work
are found.

    class MyHarness(Harness):
        driver = "mine"

        def start(self): ...                        # find or start the server
        def server(self): return "MyStore", "2.1"
        def settings(self, namespace, *, endpoint=None): ...
        def raw(self, namespace): return MyRawStore(...)
        def drop(self, namespace): ...

A *namespace* is a fresh, separate set of tables or keys, named by the suite (`[a-z][a-z0-9_]{0,19}`): a prefix, a
schema, a file. The suite makes one for each check and drops it afterwards.

What a harness doesn't offer raises `NotOfferedError`. Where the contract needs it, that check is then reported as not
run, and the run as incomplete; it never counts as passed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from hesape.config import ConnectionSettings
    from hesape.driver import Driver, DriverSpec
    from hesape.jobs import Job

GROUP = "hesape.conformance"
"""The entry-point group: the driver's name, and its harness's class (in its `testing.py`: `harness = MyHarness`)."""


class HarnessUnavailableError(Exception):
    """There is no server to test against; the message says what is missing. Ends the run with exit code 4."""


class NotOfferedError(Exception):
    """This harness can't do that; the message says why. The check is then not run, and the run incomplete."""


class RawRow(TypedDict):
    """One stored job, live or failed, as it lies in the store."""

    id: str
    envelope: bytes
    tenant: str
    name: str
    queue: str
    state: Literal["ready", "scheduled", "reserved", "failed"]
    """As kept: one that became due, or whose lease ran out, may say scheduled or reserved until the next claim."""
    priority: int
    attempts: int
    lapses: int
    exceptions: int
    last_error: str | None


class RawStore(Protocol):
    """A namespace read and changed without the driver, over a connection of its own."""

    def rows(self) -> list[RawRow]:
        """Every stored job of the namespace, in any order; an empty list when the driver hasn't made its tables yet."""

    def overwrite(
        self, job_id: str, field: Literal["envelope", "tenant", "name", "queue", "attempts"], value: object
    ) -> None:
        """Set one field of a stored job: bytes for the envelope, a number for attempts, else text. Commits."""

    def entries(self) -> int:
        """How many things are kept beside the jobs: locks, counters, flags, unique keys, workers, paused queues.

        What outlived its time counts while it is there; the schema's version and the like don't.
        """


class Loan(Protocol):
    """A connection as an application holds it, which is lent to the driver as `tx=`. Starts outside a transaction."""

    @property
    def connection(self) -> object:
        """What `tx=` takes."""

    def begin(self) -> None:
        """Begin a transaction."""

    def commit(self) -> None:
        """Commit it."""

    def rollback(self) -> None:
        """Roll it back."""

    def savepoint(self, name: str) -> None:
        """Set a savepoint in it."""

    def rollback_to(self, name: str) -> None:
        """Roll back to a savepoint; the transaction goes on."""

    def write(self, text: str) -> None:
        """Insert a row of the application's own into a scratch table of the namespace, which exists already."""

    def written(self) -> list[str]:
        """The committed rows of the scratch table, read over another connection."""

    def session(self) -> Mapping[str, object]:
        """The connection's settings that a driver must leave alone: isolation, timeouts, time zone, row factory, ..."""


class Harness(ABC):
    """A driver under test. One object serves a whole run; the suite calls it from one thread unless a method says so.

    Where the store is embedded the command runs three processes at once, each with an object of its own; the namespaces
    of both differ.

    The class must be importable by its module and name: child processes of the suite import it to get the spec.
    """

    driver: ClassVar[str]
    """The name under which the driver is installed."""
    known_failures: ClassVar[Mapping[str, str]] = {}
    """Rule ids that fail, each with its reason and a link. Strict: one that passes, or doesn't exist, is a failure."""
    can_restart: bool = False
    """Whether `restart` and `kill` work: the server is the harness's own."""

    def __init__(self, url: str = "") -> None:
        """Take the address given with `--url`; empty: the harness's own default, or a private server."""
        self.url = url

    # What each harness says.

    @classmethod
    def spec(cls) -> DriverSpec:
        """The driver's spec, from the plugin installed under its name in the group `hesape.drivers`."""
        found = [point for point in entry_points(group="hesape.drivers") if point.name == cls.driver]
        if len(found) != 1:
            message = f"{len(found)} drivers are installed under the name {cls.driver!r}, expected 1"
            raise HarnessUnavailableError(message)
        spec: DriverSpec = found[0].load().hesape_register_driver()
        return spec

    def start(self) -> None:  # noqa: B027 - an embedded store needs nothing
        """Find or start the server, once, before anything else; `HarnessUnavailableError` when there is none."""

    def stop(self) -> None:  # noqa: B027 - the same
        """Stop what `start` started and remove what is left; called also after a `start` that failed."""

    @abstractmethod
    def server(self) -> tuple[str, str]:
        """Product and version of what was tested, for the report: `("MyStore", "2.1")`."""

    @abstractmethod
    def settings(self, namespace: str, *, endpoint: tuple[str, int] | None = None) -> ConnectionSettings:
        """The settings of a connection to a namespace, as from a configuration file. Must survive pickling.

        The same namespace twice is the same store. `endpoint` is the host and port of a relay that forwards to the
        server, to be used instead of the server's own; only drivers with the fact `networked` are asked for that. An
        URL that can hold a password should hold one that `secret` tells.
        """

    @abstractmethod
    def raw(self, namespace: str) -> RawStore:
        """The namespace without the driver. May be used while the driver is open."""

    @abstractmethod
    def drop(self, namespace: str) -> None:
        """Remove everything of a namespace, which may never have been used. The driver was closed before."""

    def open(self, namespace: str, *, endpoint: tuple[str, int] | None = None) -> Driver:
        """A new driver object on the namespace, as an application opens it."""
        return self.spec().open(self.settings(namespace, endpoint=endpoint), NoHost())

    # What some can do.

    def secret(self) -> str | None:
        """The password in the URL of `settings`, which must never be shown (E4); `None`: its URLs hold none."""
        return None

    def endpoint(self) -> tuple[str, int] | None:
        """Host and port of the server, for the relay; `None` for an embedded store."""
        return None

    def restart(self) -> None:
        """Stop the server as its operator would and start it again, same address, same data."""
        raise NotOfferedError(self._cannot("restart its server"))

    def kill(self) -> None:
        """End the server as a crash does. `restart` brings it back."""
        raise NotOfferedError(self._cannot("kill its server"))

    def cut_sessions(self) -> None:
        """Let the server end every session of a client, as an administrator can."""
        raise NotOfferedError(self._cannot("end its sessions"))

    def outage(self, namespace: str) -> AbstractContextManager[None]:
        """A block in which no call reaches the store, or none can write; for embedded stores, others get a relay.

        A lock that somebody else holds on the whole file will do. Calls must fail within a few seconds. Entered in one
        thread, and left perhaps in another.
        """
        raise NotOfferedError(self._cannot("make its store unreachable"))

    def full(self, namespace: str) -> AbstractContextManager[None]:
        """A block in which the store takes no more, because it is full or read-only, and says so to each write (E3).

        The namespace is in use, with jobs in it; removing jobs may or may not work meanwhile.
        """
        raise NotOfferedError(self._cannot("fill its store"))

    def lend(self, namespace: str) -> AbstractContextManager[Loan]:
        """A connection of an application to the namespace's database. For drivers that claim `transactions`.

        Called in the thread that uses the connection, also in a worker's.
        """
        raise NotOfferedError(self._cannot("lend a connection"))

    def unsuitable(self, namespace: str) -> AbstractContextManager[Mapping[str, object]]:
        """Open connections that `tx=` must refuse, by what is wrong with each. For drivers that claim `transactions`.

        At least `autocommit` (outside a transaction) and `another database` (in a transaction); others that an
        application may plausibly hold: a closed one, a cursor's connection of another kind, an asynchronous one.
        """
        raise NotOfferedError(self._cannot("open unsuitable connections"))

    def _cannot(self, what: str) -> str:
        return f"the harness of {self.driver!r} can't {what}"


class NoHost:
    """The application behind a driver that the suite opens: there is none."""

    def run(self, job: Job) -> None:
        """Refuse: the suite tests stores."""
        message = f"job {job.id}: the suite runs no handlers"
        raise NotOfferedError(message)

    def driver(self, connection: str) -> Any:
        """Refuse: the suite configures one connection."""
        message = f"connection {connection!r}: the suite configures no other connection"
        raise NotOfferedError(message)
