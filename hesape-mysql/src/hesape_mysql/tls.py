"""TLS: one context for all connections, since reading the certificates takes longer than the rest of opening one."""

from __future__ import annotations

import functools
import ssl
from typing import Any

import pymysql
from pymysql.err import OperationalError

from hesape_mysql.settings import Settings


def context(settings: Settings) -> ssl.SSLContext | None:
    """What a connection is to be opened with, shared by all that are opened alike; `None` for no TLS."""
    if settings.tls == "off":
        return None
    return _verifying(settings.tls_ca) if settings.tls == "verify" else _encrypting()


@functools.cache
def _verifying(ca: str | None) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca)


@functools.cache
def _encrypting() -> ssl.SSLContext:
    """Whoever answers is believed, so no certificate is read."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    return made


def open_with(connection: pymysql.Connection[Any], settings: Settings) -> None:
    """Connect one that was made with `context` and deferred."""
    if settings.tls == "prefer":
        connection._ssl_required = False  # type: ignore[attr-defined]  # noqa: SLF001 - a context would mean that it is
    try:
        connection.connect()
    except OperationalError as error:
        # The file may have been replaced: the next connection reads it again.
        if isinstance(getattr(error, "original_exception", None), ssl.SSLCertVerificationError):
            _verifying.cache_clear()
        raise
