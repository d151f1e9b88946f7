from __future__ import annotations

import subprocess
import sys

import pymysql
import pytest

from hesape.errors import (
    HesapeError,
    OutcomeUnknownError,
    SchemaError,
    StoreBusyError,
    StoreRefusedError,
    StoreUnavailableError,
)
from hesape_mysql.errors import translated

E = pymysql.err.OperationalError


@pytest.mark.parametrize(
    ("error", "while_reading", "while_committing"),
    [
        (E(1213, "Deadlock found"), StoreBusyError, StoreBusyError),
        (E(1205, "Lock wait timeout exceeded"), StoreBusyError, StoreBusyError),
        (E(1114, "The table is full"), StoreRefusedError, StoreRefusedError),
        (E(1290, "--read-only"), StoreRefusedError, StoreRefusedError),
        (E(1836, "Running in read-only mode"), StoreRefusedError, StoreRefusedError),
        (E(1045, "Access denied"), StoreRefusedError, StoreRefusedError),
        (E(1049, "Unknown database"), StoreRefusedError, StoreRefusedError),
        (E(2003, "Can't connect"), StoreUnavailableError, StoreUnavailableError),
        (E(1040, "Too many connections"), StoreUnavailableError, StoreUnavailableError),
        (E(2006, "gone away"), StoreUnavailableError, StoreUnavailableError),
        (pymysql.err.InterfaceError(0, ""), StoreUnavailableError, StoreUnavailableError),
        (E(2013, "Lost connection"), StoreUnavailableError, OutcomeUnknownError),
        (E(1927, "Connection was killed"), StoreUnavailableError, OutcomeUnknownError),
        (E(1053, "Server shutdown in progress"), StoreUnavailableError, OutcomeUnknownError),
        (pymysql.err.InternalError("Packet sequence number wrong"), StoreUnavailableError, OutcomeUnknownError),
        (ConnectionResetError(), StoreUnavailableError, OutcomeUnknownError),
        (pymysql.err.ProgrammingError(1146, "no such table"), SchemaError, SchemaError),
    ],
    ids=lambda value: str(value.args[0]) if isinstance(value, Exception) and value.args else None,
)
def test_an_error_says_whether_something_may_have_been_written(
    error: Exception, while_reading: type[HesapeError], while_committing: type[HesapeError]
) -> None:
    assert type(translated(error, committing=False)) is while_reading
    assert type(translated(error, committing=True)) is while_committing


@pytest.mark.parametrize("first", ["hesape_mysql.errors", "MySQLdb.err"])
def test_errors_are_known_where_pymysql_stands_in_for_mysqldb(first: str) -> None:
    """As under Django: importing `MySQLdb.err` loads that module anew, and lays it in the place of `pymysql.err`."""
    program = f"""
import importlib, pymysql
known = pymysql.err.OperationalError
pymysql.install_as_MySQLdb()
importlib.import_module({first!r})
import MySQLdb.err
from hesape_mysql.errors import CLIENT_ERRORS, translated
assert pymysql.err.OperationalError is not known
assert issubclass(known, CLIENT_ERRORS)
print(type(translated(known(2003, "Can't connect"), committing=False)).__name__)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("StoreUnavailableError\n", "")
