"""The border to the file system: none of its errors gets past here."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from hesape.errors import StoreRefusedError, StoreUnavailableError

_REFUSED: Final = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.EISDIR)
)
"""A retry won't help soon."""


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Turn what the file system raises into the contract's errors (E1, E3).

    Whoever raises after a write has undone it before, so nothing was written in either case.
    """
    try:
        yield
    except OSError as error:
        message = f"the journal {path}: {error}"
        raise (StoreRefusedError if error.errno in _REFUSED else StoreUnavailableError)(message) from error
