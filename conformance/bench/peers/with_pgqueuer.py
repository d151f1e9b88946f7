"""pgqueuer: one asyncpg connection, its own command line; a batch instead of slots, of ten as it comes."""

import asyncio
import contextlib

import asyncpg
import driving
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

FACTS = {
    "distributions": ["pgqueuer", "asyncpg"],
    "acknowledges": "after the work",
    "durable": "yes",
    "keeps": "a log",
    "slots": "--batch-size",
}
held = {}


async def prepare():
    command = (driving.program("pgq"), "--pg-dsn", driving.URL, "install")
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)
    if await process.wait():
        raise SystemExit("pgq install failed")


async def open():
    held["connection"] = await asyncpg.connect(driving.URL)
    held["queries"] = Queries(AsyncpgDriver(held["connection"]))


async def close():
    await held["connection"].close()


async def push(slot, filling):
    await held["queries"].enqueue("noop", f"{slot} {filling}".encode())


async def bulk(slots, filling):
    payloads = [f"{slot} {filling}".encode() for slot in slots]
    await held["queries"].enqueue(["noop"] * len(payloads), payloads, [0] * len(payloads))


@contextlib.asynccontextmanager
async def application():
    connection = await asyncpg.connect(driving.URL)
    application = PgQueuer.from_asyncpg_connection(connection)

    @application.entrypoint("noop")
    async def noop(job):
        driving.stamp(int(job.payload.split()[0]))

    try:
        yield application
    finally:
        await connection.close()


def worker(slots):
    words = ["--pg-dsn", driving.URL, "run", "with_pgqueuer:application", "--log-level", "WARNING"]
    return [driving.program("pgq"), *words, "--batch-size", str(slots)]
