"""huey on four stores: threads, as it comes, without a store of results. A task leaves the queue before it runs."""

import driving
from huey import PostgresHuey, RedisHuey, SqliteHuey
from huey.contrib.sql_huey import SqlHuey

KIND = driving.URL.partition(":")[0]
FACTS = {
    "distributions": ["huey"],
    "acknowledges": "before the work",
    "durable": "yes",
    "keeps": "nothing",
    "slots": "--workers",
}


def _huey():
    if KIND == "postgresql":
        return PostgresHuey("bench", dsn=driving.URL, results=False)
    if KIND == "redis":
        return RedisHuey("bench", url=driving.URL, results=False)
    if KIND == "sqlite":
        return SqliteHuey("bench", filename=driving.URL.removeprefix("sqlite:///"), results=False)
    return SqlHuey("bench", database=driving.URL.replace("mysql://", "mysql+pool://", 1), results=False)


huey = _huey()


@huey.task(name="noop")
def noop(slot, filling):
    driving.stamp(slot)


def push(slot, filling):
    noop(slot, filling)


def worker(slots):
    words = ["with_huey.huey", "--worker-type", "thread", "--workers", str(slots), "--quiet"]
    return [driving.program("huey_consumer"), *words]
