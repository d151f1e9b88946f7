from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hesape.config import ConnectionSettings
from hesape.errors import ConfigError
from hesape_mysql.driver import MySQLDriver
from hesape_mysql.settings import Settings, parse

SECRET = "p@ss:w/rd"
URL = "mysql://ann:p%40ss%3Aw%2Frd@db.example:3307/shop"


def parsed(url: str = URL, **options: Any) -> Settings:
    return parse(ConnectionSettings(name="main", driver="mysql", url=url, options=options, folder=Path("/etc/app")))


def test_an_address_is_read_in_full() -> None:
    settings = parsed()
    assert (settings.host, settings.port, settings.user, settings.database) == ("db.example", 3307, "ann", "shop")
    assert settings.password == SECRET.encode()


def test_what_an_address_leaves_out_has_a_default() -> None:
    settings = parsed("mariadb://h/d")
    assert (settings.port, settings.user, settings.password, settings.prefix) == (3306, "root", b"", "hesape_")


def test_options_stand_in_the_address_or_beside_it_and_the_latter_wins() -> None:
    settings = parsed(f"{URL}?prefix=a_&pool=3&migrate=manual&read_timeout=2.5", prefix="b_")
    assert (settings.prefix, settings.pool, settings.migrate, settings.read_timeout_s) == ("b_", 3, False, 2.5)


def test_a_certificate_is_against_the_configurations_folder_and_asks_for_verification() -> None:
    settings = parsed(tls_ca="ca.pem")
    assert (settings.tls, settings.tls_ca) == ("verify", "/etc/app/ca.pem")


@pytest.mark.parametrize(
    ("url", "options", "message"),
    [
        (URL, {"colour": "red"}, "unknown option colour; the mysql driver takes database, prefix"),
        (f"{URL}?colour=red", {}, "unknown option colour"),
        ("mysql://ann:p%40ss%3Aw%2Frd@h", {}, "names no database"),
        ("mysql://ann:p%40ss%3Aw%2Frd@h:x/d", {}, "can't be read"),
        ("http://ann:p%40ss%3Aw%2Frd@h/d", {}, "begins with 'http'"),
        (URL, {"prefix": "Hesape_"}, "prefix = 'Hesape_'"),
        (URL, {"prefix": "a`; drop table x"}, "prefix ="),
        (URL, {"pool": -1}, "pool = -1"),
        (URL, {"pool": "many"}, "pool = 'many': expected a number"),
        (URL, {"pool": True}, "pool = True: expected a number"),
        (URL, {"read_timeout": 0}, "read_timeout = 0"),
        (URL, {"migrate": "sometimes"}, "expected one of auto, manual"),
        (URL, {"tls": True}, "expected one of off, prefer, verify"),
        (URL, {"socket": 3}, "socket = 3: expected text"),
    ],
)
def test_what_is_not_understood_is_refused_and_the_password_not_shown(
    url: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parsed(url, **options)
    assert message in str(caught.value)
    assert "p@ss" not in str(caught.value)
    assert "p%40ss" not in str(caught.value)


def test_nothing_shows_the_password() -> None:
    driver = MySQLDriver(parsed())
    for shown in (repr(driver), repr(parsed()), str(parsed()), parsed().where):
        assert "p@ss" not in shown


def test_being_installed_costs_no_client_library() -> None:
    program = "import sys, hesape_mysql.plugin; print('pymysql' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "False"
