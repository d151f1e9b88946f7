"""`hesape doctor`: configuration, plugins, stores and keys, each looked at by itself and said in one line."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal

import attrs
import click

from hesape import plugins, retry
from hesape.cli import output
from hesape.cli.session import Session, command
from hesape.driver import Driver, Fact
from hesape.errors import ConfigError, DriverBlockedError, HesapeError, UnsupportedError
from hesape.queue import UNREADABLE_FLAG, Queue

MANY_FAILED: Final = 10_000
"""Failed jobs are never removed unasked, so somebody should look when there are that many (F4)."""
_SAMPLE: Final = 1_000
_SKEW_S: Final = 5.0


@attrs.frozen
class Finding:
    """One thing that was looked at."""

    what: str
    state: Literal["ok", "note", "wrong"]
    text: str


@click.command()
@command
def doctor(session: Session) -> int:
    """Look for what is wrong or will be, on every connection or on --connection. What is wrong exits with 1."""
    found = [one for part in (_configuration(session), _plugins(), _connections(session)) for one in part]
    if session.json:
        output.document({"findings": [attrs.asdict(one) for one in found]})
    else:
        output.table(("", "what", "finding"), [(one.state, one.what, one.text) for one in found], empty="")
    return int(any(one.state == "wrong" for one in found))


def _configuration(session: Session) -> Iterator[Finding]:
    try:
        found = session.configuration
    except ConfigError as error:
        yield Finding("configuration", "wrong", str(error))
        return
    yield Finding("configuration", "ok" if found.file else "note", str(found.file or f"{found.source}: the defaults"))
    try:
        keys = found.keys()
    except ConfigError as error:
        yield Finding("keys", "wrong", str(error))
        return
    if not keys:
        yield Finding("keys", "note", "no signing keys: whoever can write to a store can alter jobs")
    elif not keys.sealing:
        yield Finding("keys", "note", f"{', '.join(keys.secrets)} are read, but nothing is sealed")
    else:
        text = f"sealing with {keys.sealing}" + ("; unsealed records run too" if keys.accept_unsealed else "")
        yield Finding("keys", "note" if keys.accept_unsealed else "ok", text)


def _plugins() -> Iterator[Finding]:
    found = plugins.installed().look()
    for one in found:
        if one.problem is not None:
            state: Literal["note", "wrong"] = "note" if isinstance(one.problem, DriverBlockedError) else "wrong"
            yield Finding(f"{one.kind} {one.name}", state, str(one.problem))
    names = ", ".join(one.name for one in found if one.problem is None)
    yield Finding("plugins", "ok", f"installed and usable: {names or 'none'}")


def _connections(session: Session) -> Iterator[Finding]:
    try:
        names = [session.chosen] if session.chosen else session.configuration.names
    except ConfigError:
        return
    for name in names:
        what = f"connection {name}"
        try:
            queue = session.queue(name)
        except HesapeError as error:
            yield Finding(what, "wrong", f"{error.code}: {error}")
            continue
        spec, stores = queue.driver.spec, session.stores(queue)
        if spec.kind == "local":
            yield Finding(what, "note", f"{spec.name} runs or drops its jobs here and keeps nothing")
            continue
        if stores != [queue]:
            order = ", ".join(store.name for store in stores)
            yield Finding(what, "ok", f"{spec.name}: each push goes to the first of {order} that takes it")
        for store in stores:
            if store is queue or store.name not in names:
                yield from _looks(store)


def _looks(queue: Queue) -> Iterator[Finding]:
    for look in (_store, _schema, _clock, _durability, _checkup, _failed, _unreadable):
        yield from _looked(f"connection {queue.name}", queue, look)


def _looked(what: str, queue: Queue, look: Callable[[str, Queue], Iterator[Finding]]) -> Iterator[Finding]:
    try:
        yield from look(what, queue)
    except UnsupportedError as error:
        yield Finding(what, "note", str(error))
    except HesapeError as error:
        yield Finding(what, "wrong", f"{error.code}: {error}")


def _store(what: str, queue: Queue) -> Iterator[Finding]:
    yield Finding(what, "ok", f"{queue.driver.spec.name}: {_ask(queue, lambda driver: driver.ping())}")


def _schema(what: str, queue: Queue) -> Iterator[Finding]:
    newest = max((step.number for step in queue.driver.migrations()), default=0)
    version = _ask(queue, lambda driver: driver.schema_version())
    if version < newest:
        yield Finding(what, "note", f"its tables are at version {version} of {newest}: hesape migrate brings them up")
    elif version > newest:
        yield Finding(what, "wrong", f"its tables are at version {version}, this hesape knows {newest}: upgrade it")
    else:
        yield Finding(what, "ok", f"its tables are at version {version}")


def _clock(what: str, queue: Queue) -> Iterator[Finding]:
    before = time.time()
    store = _ask(queue, lambda driver: driver.now()) / 1_000_000
    apart = max(before - store, store - time.time(), 0.0)
    if apart > _SKEW_S:
        text = f"its clock and this machine's are {apart:.0f} s apart; the store's decides what is due"
        yield Finding(what, "note", text)


def _durability(what: str, queue: Queue) -> Iterator[Finding]:
    if Fact.DURABLE not in queue.driver.spec.facts:
        yield Finding(
            what, "note", f"{queue.driver.spec.name} isn't durable: its jobs can be lost with a process or server"
        )


def _checkup(what: str, queue: Queue) -> Iterator[Finding]:
    for fine, text in _ask(queue, lambda driver: driver.checkup()):
        yield Finding(what, "ok" if fine else "note", text)


def _failed(what: str, queue: Queue) -> Iterator[Finding]:
    count = sum(queue.counts(name).failed for name in queue.queues())
    if count >= MANY_FAILED:
        yield Finding(what, "note", f"{count} failed jobs: hesape failed list, then retry or prune them")
    problems = [job for job in queue.operator().failed(limit=_SAMPLE) if job.problem] if count else []
    if problems:
        text = f"{len(problems)} failed jobs can't be run here, such as {problems[0].id}: {problems[0].problem}"
        yield Finding(what, "wrong", text)


def _unreadable(what: str, queue: Queue) -> Iterator[Finding]:
    reason = queue.flag(UNREADABLE_FLAG).value()
    if reason:
        yield Finding(what, "wrong", f"jobs wait for a key or a version that a worker lacks: {reason}")


def _ask(queue: Queue, call: Callable[[Driver], Any]) -> Any:
    return retry.insist(lambda _: call(queue.driver))
