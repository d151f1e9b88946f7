"""litequeue: a queue without a worker, so one process in a loop: pop, run, mark as done; it looks every 5 ms."""

import sys
import time

import driving
from litequeue import LiteQueue

FACTS = {
    "distributions": ["litequeue"],
    "acknowledges": "after the work; no lease",
    "durable": "nearly: synchronous NORMAL",
    "keeps": "finished rows",
    "slots": "none: a loop",
}
queue = LiteQueue(driving.URL.removeprefix("sqlite:///"))


def push(slot, filling):
    queue.put(f"{slot} {filling}")


def work():
    while True:
        message = queue.pop()
        if message is None:
            time.sleep(0.005)
            continue
        driving.stamp(int(message.data.split()[0]))
        queue.done(message.message_id)


def worker(slots):
    return [sys.executable, "-c", "import with_litequeue; with_litequeue.work()"]
