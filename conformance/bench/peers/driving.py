"""Drive one library, in its own environment.

    python driving.py MODULE facts | prepare | push N | bulk N | latency FIRST N | work SLOTS

The module says how: `push(slot, filling)`, by the library's own call and awaited where that is asynchronous;
`bulk(slots, filling)` where it has such a call; `worker(slots)`, the command that its users start; `prepare()` where
tables must be made; and in `FACTS` what a reader must know. Nothing here belongs to one library.

Each answers with one line of JSON. Without the library only the standard library and the stamps are used.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import sys
import time
from importlib.metadata import version
from pathlib import Path

from hesape_conformance.bench.stamps import FILE_VARIABLE, SLOTS_VARIABLE, Stamps

URL = os.environ.get("PEER_URL", "")
FILLING = "x" * 170
_stamps = None


def stamp(slot):
    """Count the start of a job: what every handler does, and all that it does."""
    stamps().stamp(slot)


def stamps():
    """The slots of this run."""
    global _stamps  # noqa: PLW0603 - one a process
    if _stamps is None:
        _stamps = Stamps(Path(os.environ[FILE_VARIABLE]), int(os.environ[SLOTS_VARIABLE]))
    return _stamps


def program(name):
    """A program of this environment."""
    return str(Path(sys.executable).parent / name)


async def _push(module, n):
    began = time.perf_counter()
    for slot in range(n):
        await _done(module.push(slot, FILLING))
    return n / (time.perf_counter() - began)


async def _bulk(module, n):
    if not hasattr(module, "bulk"):
        return None
    began = time.perf_counter()
    for at in range(0, n, 1000):
        await _done(module.bulk(range(at, min(at + 1000, n)), FILLING))
    return n / (time.perf_counter() - began)


async def _latency(module, first, n):
    """Milliseconds from the push call to the start of the handler, of each job."""
    found = []
    for slot in range(first, first + n):
        pushed = time.monotonic_ns()
        await _done(module.push(slot, FILLING))
        until = time.monotonic() + 15
        while not stamps().started_ns(slot) and time.monotonic() < until:  # noqa: ASYNC110 - another process stamps
            await asyncio.sleep(0.0005)
        if started := stamps().started_ns(slot):
            found.append((started - pushed) / 1e6)
        await asyncio.sleep(0.02 + 0.03 * (slot % 7) / 7)  # not in step with anybody's polling
    return found


async def _done(given):
    return await given if inspect.isawaitable(given) else given


async def _run(module, command, numbers):
    call = {"push": _push, "bulk": _bulk, "latency": _latency}[command]
    if hasattr(module, "open"):
        await _done(module.open())
    try:
        return await call(module, *numbers)
    finally:
        if hasattr(module, "close"):
            await _done(module.close())


def main(name, command, *numbers):
    """Do what the command says."""
    module = importlib.import_module(name)
    if command == "work":
        words = module.worker(int(numbers[0]))
        os.execv(words[0], words)  # noqa: S606
    if command == "facts":
        answer = module.FACTS | {"versions": {name: version(name) for name in module.FACTS["distributions"]}}
    elif command == "prepare":
        answer = asyncio.run(_done_once(module))
    else:
        answer = asyncio.run(_run(module, command, [int(number) for number in numbers]))
    print(json.dumps(answer))


async def _done_once(module):
    if hasattr(module, "prepare"):
        await _done(module.prepare())


if __name__ == "__main__":
    import driving

    driving.main(*sys.argv[1:])
