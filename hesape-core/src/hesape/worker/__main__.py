"""One worker process: `python -m hesape.worker FD`, started by a supervisor that is at the other end of FD."""

from __future__ import annotations

import logging
import os
import sys
from typing import Final

from hesape import plugins
from hesape.app import App, load_app
from hesape.errors import HesapeError
from hesape.worker import signals
from hesape.worker.board import Board
from hesape.worker.control import Control
from hesape.worker.launch import Launch, log_to_stderr
from hesape.worker.worker import Stop, Worker

logger = logging.getLogger("hesape.worker")

_PATIENCE_S: Final = 30.0


def main(fd: int) -> int:
    """Learn what to do, do it, and say how it ended; the exit code."""
    control = Control.at(fd)
    lines = control.receive(_PATIENCE_S)
    if not lines:
        return 1
    launch = Launch.from_plain(lines[0])
    try:
        app = load_app(launch.app)
        log_to_stderr(launch.log_level, as_json=launch.log_json)
        stop = _work(app, launch, control)
    except HesapeError as error:
        log_to_stderr(launch.log_level, as_json=launch.log_json)
        logger.exception("worker %s can't work", launch.worker)
        control.send(failed=f"{type(error).__name__}: {error}")
        return 1
    control.send(stopping=stop.reason, status=stop.status)
    app.close()
    if not stop.clean:  # a handler still runs in one of the threads: nothing of it may hold the process up
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(stop.status)
    return stop.status


def _work(app: App, launch: Launch, control: Control) -> Stop:
    queue = app.connection(launch.connection)
    if queue.notify is None and plugins.observed():
        queue.notify = plugins.notify
    worker = Worker(
        queue,
        app.handlers,
        launch.options,
        middleware=app.middleware,
        worker=launch.worker,
        control=control,
        board=Board(launch.board, launch.options.concurrency),
    )
    signals.handle(stop=worker.stop, hold=worker.hold, go_on=worker.go_on)
    control.send(ready=True)
    return worker.run()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
