"""procrastinate: psycopg, its own command line, asynchronous handlers, finished rows kept as it comes."""

import driving
import procrastinate

FACTS = {
    "distributions": ["procrastinate", "psycopg"],
    "acknowledges": "after the work",
    "durable": "yes",
    "keeps": "finished rows",
    "slots": "--concurrency",
}
app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=driving.URL))


@app.task(name="noop", queue="bench")
async def noop(slot, filling):
    driving.stamp(slot)


async def prepare():
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


async def open():
    await app.open_async()


async def close():
    await app.close_async()


async def push(slot, filling):
    await noop.defer_async(slot=slot, filling=filling)


async def bulk(slots, filling):
    await noop.batch_defer_async(*({"slot": slot, "filling": filling} for slot in slots))


def worker(slots):
    words = ["--log-level", "warning", "--app", "with_procrastinate.app", "worker", "--queues", "bench"]
    return [driving.program("procrastinate"), *words, "--concurrency", str(slots)]
