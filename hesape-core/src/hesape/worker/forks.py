"""A handler that forks and lets the child return: the job is its parent's, and so is everything around it."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from hesape.jobs import Job

logger = logging.getLogger(__name__)


def end_child(job: Job | None) -> NoReturn:
    """End this process, a copy of one thread of a worker: it would settle its parent's job, and live on for ever."""
    what = "a job" if job is None else f"job {job.id} ({job.resolved_name})"
    logger.error("%s: its handler forked, and the child returned; it ends here. End it in the handler", what)
    os._exit(1)
