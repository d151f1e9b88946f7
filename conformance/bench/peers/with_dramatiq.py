"""dramatiq: the Redis broker, its own command line, one process of threads."""

import dramatiq
import driving
from dramatiq.brokers.redis import RedisBroker

FACTS = {
    "distributions": ["dramatiq", "redis"],
    "acknowledges": "after the work",
    "durable": "yes",
    "keeps": "nothing",
    "slots": "--threads",
}
dramatiq.set_broker(RedisBroker(url=driving.URL))


@dramatiq.actor
def noop(slot, filling):
    driving.stamp(slot)


def push(slot, filling):
    noop.send(slot, filling)


def worker(slots):
    return [driving.program("dramatiq"), "with_dramatiq", "--processes", "1", "--threads", str(slots)]
