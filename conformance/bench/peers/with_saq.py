"""saq on Redis: its own command line, one process of asynchronous handlers, results kept for ten minutes."""

import os

import driving
from saq import Queue

FACTS = {
    "distributions": ["saq", "redis"],
    "acknowledges": "after the work",
    "durable": "yes",
    "keeps": "results, ten minutes",
    "slots": "concurrency",
}
queue = Queue.from_url(driving.URL, name="bench")


async def noop(ctx, *, slot, filling):
    driving.stamp(slot)


settings = {"queue": queue, "functions": [noop], "concurrency": int(os.environ.get("PEER_SLOTS", "10"))}


async def open():
    await queue.connect()


async def close():
    await queue.disconnect()


async def push(slot, filling):
    await queue.enqueue("noop", slot=slot, filling=filling)


def worker(slots):
    return [driving.program("saq"), "with_saq.settings", "--workers", "1", "--quiet"]
