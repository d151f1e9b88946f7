"""taskiq: the broker of Redis streams, which acknowledges; one process of asynchronous handlers."""

import driving
from taskiq_redis import RedisStreamBroker

FACTS = {
    "distributions": ["taskiq", "taskiq-redis", "redis"],
    "acknowledges": "after the work",
    "durable": "yes",
    "keeps": "the stream's entries",
    "slots": "--max-async-tasks",
}
broker = RedisStreamBroker(url=driving.URL, queue_name="bench")


@broker.task(task_name="noop")
async def noop(slot: int, filling: str) -> None:
    driving.stamp(slot)


async def prepare():
    await broker.startup()  # makes the group, before which nothing may be pushed
    await broker.shutdown()


async def open():
    await broker.startup()


async def close():
    await broker.shutdown()


async def push(slot, filling):
    await noop.kiq(slot, filling)


def worker(slots):
    words = [
        "worker",
        "with_taskiq:broker",
        "--workers",
        "1",
        "--max-async-tasks",
        str(slots),
        "--log-level",
        "WARNING",
    ]
    return [driving.program("taskiq"), *words]
