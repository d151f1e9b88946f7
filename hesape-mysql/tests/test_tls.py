from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hesape.config import ConnectionSettings
from hesape.errors import StoreRefusedError, StoreUnavailableError
from hesape_conformance.servers import find_program
from hesape_mysql import tls
from hesape_mysql.driver import MySQLDriver
from hesape_mysql.pool import OwnSession, connect
from hesape_mysql.testing import PrivateMariaDB

CIPHER = "show status like 'Ssl_cipher'"


class TlsMariaDB(PrivateMariaDB):
    """A server with a certificate of its own making for 127.0.0.1."""

    def __init__(self) -> None:
        super().__init__()
        self.certificate, key = certify(self.folder, "server")
        if self.user is not None:
            shutil.chown(key, self.user)
        self.options |= {"ssl-cert": self.certificate, "ssl-key": key}


def certify(folder: Path, name: str) -> tuple[Path, Path]:
    """A new certificate, and its key."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    files = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([find_program("openssl"), *words, *files], check=True, capture_output=True)
    return certificate, key


@pytest.fixture(scope="module")
def server() -> Iterator[TlsMariaDB]:
    with TlsMariaDB() as server:
        yield server


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Each time that certificates were read, of which files."""
    tls._verifying.cache_clear()
    made: list[Any] = []
    original = ssl.create_default_context

    def create(*args: Any, **options: Any) -> ssl.SSLContext:
        made.append(options.get("cafile"))
        return original(*args, **options)

    monkeypatch.setattr(ssl, "create_default_context", create)
    return made


@pytest.fixture
def opened(server: TlsMariaDB) -> Iterator[Callable[..., OwnSession]]:
    """Opens a connection to the server with options."""
    sessions: list[OwnSession] = []

    def open_one(**options: object) -> OwnSession:
        given = ConnectionSettings(name="main", driver="mysql", url=server.url, options=options)
        sessions.append(connect(MySQLDriver.from_settings(given)._settings))
        return sessions[-1]

    yield open_one
    for session in sessions:
        session.connection.close()


def encrypted(session: OwnSession) -> bool:
    return bool(session.ask(CIPHER)[0].rows[0][1])


def test_an_offer_of_tls_is_taken_unless_it_is_off_and_no_certificate_is_read(
    opened: Callable[..., OwnSession], loads: list[Any]
) -> None:
    assert [encrypted(opened()), encrypted(opened(tls="prefer")), encrypted(opened(tls="off"))] == [True, True, False]
    assert loads == []


def test_certificates_are_read_once_for_all_connections(
    opened: Callable[..., OwnSession], loads: list[Any], server: TlsMariaDB
) -> None:
    assert all(encrypted(opened(tls_ca=str(server.certificate))) for _ in range(5))
    assert loads == [str(server.certificate)]


def test_verify_refuses_a_certificate_that_nobody_vouches_for(opened: Callable[..., OwnSession]) -> None:
    with pytest.raises(StoreUnavailableError, match="certificate verify failed"):
        opened(tls="verify")


def test_certificates_that_were_replaced_are_read_once_the_old_ones_fail(
    opened: Callable[..., OwnSession], server: TlsMariaDB, tmp_path: Path
) -> None:
    ca, _ = certify(tmp_path, "ca")
    with pytest.raises(StoreUnavailableError, match="certificate verify failed"):
        opened(tls_ca=str(ca))
    shutil.copy(server.certificate, ca)
    assert encrypted(opened(tls_ca=str(ca)))


def test_without_an_offer_of_tls_verify_refuses_before_it_logs_in_and_prefer_goes_on() -> None:
    with PrivateMariaDB(ssl=0) as server:
        stranger = server.url.replace("root@", "stranger:secret@")
        verifying, preferring = (
            MySQLDriver.from_settings(ConnectionSettings(name="main", driver="mysql", url=url, options={"tls": wanted}))
            for url, wanted in ((stranger, "verify"), (server.url, "prefer"))
        )
        with pytest.raises(StoreRefusedError, match=r"TLS|SSL"):
            verifying.ping()
        assert "MariaDB" in preferring.ping()
        preferring.close()
