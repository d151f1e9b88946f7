"""What a supervisor tells the worker process that it starts."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final, Self

import attrs

from hesape.worker.options import WorkerOptions
from hesape.worker.reports import FACTS

_FORMAT: Final = "%(asctime)s %(levelname)s %(message)s"


@attrs.frozen(kw_only=True)
class Launch:
    """Everything a worker process needs but the end of the line that it comes through. No URL, no secret."""

    app: str
    """`MODULE:ATTRIBUTE` of the App."""
    connection: str | None
    options: WorkerOptions
    log_level: int = logging.INFO
    log_json: bool = False
    worker: str = ""
    """The process's id; a new one for each start."""
    board: int = -1
    """The file descriptor of its board."""

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {**attrs.asdict(self, recurse=False), "options": self.options.plain()}

    @classmethod
    def from_plain(cls, found: dict[str, Any]) -> Self:
        """Read what `plain` wrote."""
        return cls(**{**found, "options": WorkerOptions.from_plain(found["options"])})


class JsonLines(logging.Formatter):
    """One JSON object a line, with the facts of the job that a record carries."""

    def format(self, record: logging.LogRecord) -> str:
        """Write one record."""
        said = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "message": record.getMessage(),
            "process": record.process,
        }
        facts = {name: value for name, value in vars(record).items() if name in FACTS}
        trace = {"traceback": self.formatException(record.exc_info)} if record.exc_info else {}
        return json.dumps({**said, **facts, **trace}, default=str)


def log_to_stderr(level: int, *, as_json: bool = False) -> None:
    """Show the records of hesape from `level` on, unless the application has set up logging itself."""
    if not logging.getLogger().handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonLines() if as_json else logging.Formatter(_FORMAT))
        logging.getLogger().addHandler(handler)
    logging.getLogger("hesape").setLevel(level)
