"""What a connection of Django's, lent as `tx=`, has underneath. Every driver with transactions asks here (X1)."""

from __future__ import annotations

from typing import Any, Final

from hesape.errors import TransactionRefusedError

_WHAT: Final = "the lent connection of Django can't be joined"


def below_django(tx: object) -> object:
    """The client's own connection below `django.db.connection`, in a transaction; what isn't Django's as it is.

    `TransactionRefusedError` outside `transaction.atomic()`, in one that is going to be rolled back, and in a thread
    that the connection doesn't belong to. Django isn't imported here: what it didn't make, it needn't judge.
    """
    lent: Any = tx
    if not any(kind.__module__.startswith("django.") for kind in type(tx).__mro__) or not hasattr(tx, "get_autocommit"):
        return tx
    try:
        lent.validate_thread_sharing()
        autocommit = lent.get_autocommit()  # connects, where it isn't yet
    except Exception as error:
        message = f"{_WHAT}: it can't be used here ({type(error).__name__})"
        raise TransactionRefusedError(message) from error
    if autocommit:
        message = f"{_WHAT}: it is in autocommit, outside a transaction; push inside transaction.atomic()"
        raise TransactionRefusedError(message)
    if lent.needs_rollback:
        message = f"{_WHAT}: it is going to be rolled back; leave the atomic() block in which an error occurred first"
        raise TransactionRefusedError(message)
    return lent.connection
