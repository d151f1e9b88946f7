"""Hesape itself, driven as the others are: the file of its configuration, a handler, `hesape work`."""

import json
import os
import sys
from pathlib import Path

import driving

import hesape

FACTS = {
    "distributions": ["hesape-core"],
    "acknowledges": "after the work",
    "durable": "yes",
    "keeps": "nothing",
    "slots": "--concurrency",
}
NAME = "bench.noop"
GRANT = hesape.system_grant(NAME, "acme")

lines = ["[connections.main]", f"url = {json.dumps(driving.URL)}"]
lines += [f"{name} = {json.dumps(value)}" for name, value in json.loads(os.environ["PEER_OPTIONS"]).items()]
Path("hesape.toml").write_text('default = "main"\n\n' + "\n".join(lines) + "\n")
app = hesape.App()
queue = app.connection()


@app.handler(NAME)
def noop(slot: int, filling: str) -> None:
    driving.stamp(slot)


def prepare():
    queue.driver.migrate()


def push(slot, filling):
    noop.push(GRANT, slot=slot, filling=filling)


def bulk(slots, filling):
    queue.bulk(GRANT, [noop.job(GRANT, slot=slot, filling=filling) for slot in slots])


def worker(slots):
    return [sys.executable, "-m", "hesape", "work", "--app", "with_hesape:app", "--concurrency", str(slots)]


def close():
    app.close()
