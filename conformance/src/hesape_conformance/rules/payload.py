"""P1, P2, P3: how large a payload is, what it is, and that it comes back as it went."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import json
import uuid
from typing import TYPE_CHECKING, Any

from hesape import errors
from hesape_conformance.catalogue import rule
from hesape_conformance.expect import raises
from hesape_conformance.rules.forgery import DOORS, pusher
from hesape_conformance.trial import NAME, READ, RETRY, attributes

if TYPE_CHECKING:
    from hesape_conformance.trial import Trial

MAX_PAYLOAD = 32_768
"""The contract's number, not what the core under test takes for it."""


def text_of(size: int, character: str = "x") -> str:
    """A text whose JSON takes exactly so many bytes."""
    wide = len(character.encode())
    count, rest = divmod(size - 2, wide)
    return character * count + "y" * rest


@rule("P1", "32,768 bytes are stored and come back whole, on every door; 32,769 are refused with both numbers")
def limit(trial: Trial) -> None:
    for character in ("x", "é", "漢", "🦊"):
        whole, over = text_of(MAX_PAYLOAD, character), text_of(MAX_PAYLOAD + 1, character)
        data = json.dumps(whole, ensure_ascii=False).encode()
        assert len(data) == MAX_PAYLOAD
        trial.push(whole)
        assert trial.take().payload == data
        trial.queue.push_raw(trial.grant(), NAME, data)
        assert trial.take().payload == data
        with raises(errors.PayloadTooLargeError, MAX_PAYLOAD, MAX_PAYLOAD + 1):
            trial.job(over)
        with raises(errors.PayloadTooLargeError, MAX_PAYLOAD, MAX_PAYLOAD + 1):
            trial.queue.push_raw(trial.grant(), NAME, json.dumps(over, ensure_ascii=False).encode())
    with trial.unchanged():
        for door in DOORS:
            job = trial.job()
            job.payload = json.dumps(text_of(MAX_PAYLOAD + 1)).encode()
            with raises(errors.PayloadTooLargeError, MAX_PAYLOAD, MAX_PAYLOAD + 1):
                pusher(trial.queue, trial.grant(), door)(job)


@rule("P1", "Many payloads of the full size fit into one bulk, each whole")
def full_bulk(trial: Trial) -> None:
    wholes = [text_of(MAX_PAYLOAD - n) for n in range(trial.times(5, 40, 400))]
    trial.queue.bulk(trial.grant(), [trial.job(whole) for whole in wholes])
    found = trial.queue.pop(n=len(wholes))
    assert [job.decode() for job in found] == wholes


@rule("P1", "The limit holds with the store out of reach")
def limit_without_store(trial: Trial) -> None:
    queue = trial.without_store()
    over = json.dumps(text_of(MAX_PAYLOAD + 1)).encode()
    with raises(errors.PayloadTooLargeError):
        queue.push_raw(trial.grant(), NAME, over)
    job = trial.job()
    job.payload = over
    with raises(errors.PayloadTooLargeError):
        queue.push(trial.grant(), job)


class _Colour(enum.StrEnum):
    RED = "red"


class _Number(enum.IntEnum):
    ONE = 1


class _Text(str):
    __slots__ = ()


class _Dict(dict):  # type: ignore[type-arg]
    pass


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


REFUSED: tuple[tuple[Any, str], ...] = (
    (float("nan"), "$"),
    (float("inf"), "$"),
    ({"a": [1, float("-inf")]}, "$.a[1]"),
    ({1, 2}, "$"),
    ({"a": {"b": b"bytes"}}, "$.a.b"),
    ({1: "x"}, "$"),
    ({"a": {None: 1}}, "$.a"),
    ({True: 1}, "$"),
    ({1.5: 1}, "$"),
    ((1, 2), "$"),
    ([1, (2,)], "$[1]"),
    ({"a": uuid.UUID(int=1)}, "$.a"),
    ({"a": dt.datetime(2030, 1, 1, tzinfo=dt.UTC)}, "$.a"),
    ({"a": decimal.Decimal("1.10")}, "$.a"),
    ({"a": _Colour.RED}, "$.a"),
    ({"a": _Number.ONE}, "$.a"),
    ({"a": _Text("x")}, "$.a"),
    (_Dict(a=1), "$"),
    ({_Text("x"): 1}, "$"),
    ({"a": ["\ud800"]}, "$.a[0]"),
    (object(), "$"),
    ({"a": 1j}, "$.a"),
    ({"a": 10**4300}, "$.a"),
    (_nested(101), "$" + "[0]" * 100),
)
REFUSED_RAW = (
    b"",
    b"{",
    b"{}{}",
    b"{'a':1}",
    b"NaN",
    b'{"a":NaN}',
    b"[Infinity]",
    b"[-Infinity]",
    b"[1e400]",
    b"[-1e400]",
    b'{"a":1,"a":2}',
    b'{"x":{"a":1,"b":2,"a":3}}',
    b"\xff\xfe",
    b'"\xed\xa0\x80"',
    b'"\\ud800"',
    b'"caf\xe9"',
    b"\xef\xbb\xbf{}",
    b"1" * 4301,
    b"[" * 101 + b"]" * 101,
    b'{"a":' * 101 + b"1" + b"}" * 101,
    b"[" * 16000 + b"]" * 16000,
    b'{"a":01}',
    b'"a\nb"',
    b"nul",
)


@rule("P2", "What JSON can't carry unchanged is refused with its path when the job is built")
def refused_values(trial: Trial) -> None:
    for value, path in REFUSED:
        with raises(errors.PayloadInvalidError) as caught:
            trial.job(value)
        assert caught.error.path == path, f"{value!r}: expected the path {path!r}, found {caught.error.path!r}"
    assert trial.rows() == {}


@rule("P2", "Raw bytes are refused for the same, and for what isn't one JSON value in UTF-8")
def refused_bytes(trial: Trial) -> None:
    wrong_types: tuple[Any, ...] = ("{}", bytearray(b"{}"), memoryview(b"{}"), {}, None, 1)
    for data in (*REFUSED_RAW, *wrong_types):
        with raises(errors.PayloadInvalidError):
            trial.queue.push_raw(trial.grant(), NAME, data)
    assert trial.rows() == {}


@rule("P2", "A payload that was edited after it was built is checked again, on every door")
def edited_payload(trial: Trial) -> None:
    for data in (*REFUSED_RAW, "{}", None, 7, bytearray(b"{}")):
        for door in DOORS:
            job = trial.job()
            job.payload = data  # type: ignore[assignment]
            with raises(errors.PayloadInvalidError):
                pusher(trial.queue, trial.grant(), door)(job)
    assert trial.rows() == {}


@rule("P2", "Payloads are encoded compactly as raw UTF-8, and None is an empty object")
def encoding(trial: Trial) -> None:
    cases: tuple[tuple[Any, bytes], ...] = (
        (None, b"{}"),
        ({}, b"{}"),
        ([], b"[]"),
        ("", b'""'),
        (0, b"0"),
        (False, b"false"),
        ({"b": 1, "a": [1, 2.0, "é", None]}, '{"b":1,"a":[1,2.0,"é",null]}'.encode()),
        ("🦊\u2028\0", '"🦊\u2028\\u0000"'.encode()),
        ({"": ""}, b'{"":""}'),
        (_nested(100), b"[" * 100 + b"1" + b"]" * 100),
    )
    for value, data in cases:
        job = trial.push(value)
        assert job.payload == data
        found = trial.take()
        assert found.payload == data
        assert found.decode() == ({} if value is None else value)


EXACT = (
    b"{}",
    b"[]",
    b"null",
    b'""',
    b"1.0",
    b"1",
    b"-0.0",
    b"1e5",
    b"1E+5",
    b"0.1000000000000000055511151231257827",
    str(2**53 + 1).encode(),
    str(2**63).encode(),
    str(-(2**64)).encode(),
    b"9" * 4300,
    b'"\\u0000"',
    b'"\\u00e9"',
    '"é"'.encode(),
    '"e\u0301"'.encode(),
    '"🦊👩‍👩‍👧"'.encode(),
    b'"\\ud83e\\udd8a"',
    '"\u2028\u2029\ufeff\uffff"'.encode(),
    b' { "b" : 1 ,\n\t"a" : [ 1 , 2 ] } ',
    b'{"b":1,"a":2,"":3}',
    b'"\\/\\b\\f\\n\\r\\t\\\\\\""',
    b'"\'; DROP TABLE jobs; -- %s %(a)s $1 ? :x {0} \\\\"',
    b'"*3\\r\\n$3\\r\\nDEL\\r\\n"',
    b'"trailing blanks   "',
    b"\n\r\t 1 \n",
    b'{"a":{},"b":[],"c":[{}],"d":[[]]}',
    b"true",
)


def _raw(trial: Trial, data: bytes, **options: Any) -> None:
    trial.queue.push_raw(trial.grant(), NAME, data, **options)


@rule("P3", "Popped bytes equal pushed bytes: pop, release, lease expiry, failed list, retry")
def exact_paths(trial: Trial) -> None:
    for data in EXACT:
        _raw(trial, data, queue="paths")
    jobs = trial.queue.pop("paths", n=len(EXACT))
    assert [job.payload for job in jobs] == list(EXACT)
    for job in jobs:
        job.release()
    jobs = trial.queue.pop("paths", n=len(EXACT), lease=0.05)
    assert [job.payload for job in jobs] == list(EXACT)
    trial.outlive(jobs[-1])
    jobs = trial.queue.pop("paths", n=len(EXACT))
    assert [job.payload for job in jobs] == list(EXACT)
    for job in jobs:
        job.fail("Boom")
    failed = trial.queue.failed(trial.grant(action=READ), limit=1000)
    assert {job.payload for job in failed} == set(EXACT)
    for each in failed:
        assert trial.queue.find(trial.grant(action=READ), each.id).payload == each.payload
    for job in jobs:
        trial.queue.retry(trial.grant(action=RETRY), job.id)
    assert [job.payload for job in trial.queue.pop("paths", n=len(EXACT))] == list(EXACT)


@rule("P3", "Popped bytes equal pushed bytes: every way in, delayed and bulk included")
def exact_doors(trial: Trial) -> None:
    grant = trial.grant()
    jobs = [type(trial.job()).raw(grant, NAME, data) for data in EXACT]
    trial.queue.bulk(grant, jobs)
    assert [job.payload for job in trial.queue.pop(n=len(EXACT))] == list(EXACT)
    for data in EXACT:
        _raw(trial, data, queue="later", delay=0.05)
        trial.queue.push_on(grant, "on", type(trial.job()).raw(grant, NAME, data))
    assert [job.payload for job in trial.queue.pop("on", n=len(EXACT))] == list(EXACT)
    trial.until(trial.driver.now() + 100_000)
    assert [job.payload for job in trial.queue.pop("later", n=len(EXACT))] == list(EXACT)


@rule("P3", "The stored envelope ends with the pushed bytes, and no operation rewrites it")
def stored_bytes(trial: Trial) -> None:
    for data in EXACT:
        job = trial.queue.push_raw(trial.grant(), NAME, data, attributes=attributes(tries=3), priority=5)
        envelope = trial.row(job)["envelope"]
        assert envelope.split(b"\n", 2)[2] == data
        popped = trial.take()
        popped.release()
        popped = trial.take()
        popped.extend(120)
        popped.fail("Boom")
        assert trial.row(job)["envelope"] == envelope
        trial.queue.retry(trial.grant(action=RETRY), job.id)
        assert trial.row(job)["envelope"] == envelope
        trial.take().delete()


@rule("P3", "Random JSON comes back as it went")
def random_values(trial: Trial) -> None:
    values = [[_random_value(trial, 3)] for _ in range(trial.times(30, 200, 2000))]
    trial.queue.bulk(trial.grant(), [trial.job(value) for value in values])
    found: list[Any] = []
    while jobs := trial.queue.pop(n=500):
        found += [job.decode() for job in jobs]
    assert found == values


def _random_value(trial: Trial, room: int) -> Any:
    rnd = trial.random
    kind = rnd.randrange(9 if room else 7)
    if kind == 0:
        return rnd.choice([None, True, False])
    if kind == 1:
        return rnd.randint(-(2 ** rnd.randrange(1, 200)), 2 ** rnd.randrange(1, 200))
    if kind == 2:
        return rnd.uniform(-1, 1) * 10.0 ** rnd.randrange(-300, 300)
    if kind < 7:
        points = [rnd.choice([rnd.randrange(0x80), rnd.randrange(0xD800), rnd.randrange(0xE000, 0x110000)])]
        return "".join(chr(point) for point in points * rnd.randrange(8))
    if kind == 7:
        return [_random_value(trial, room - 1) for _ in range(rnd.randrange(5))]
    return {str(rnd.random()): _random_value(trial, room - 1) for _ in range(rnd.randrange(5))}
