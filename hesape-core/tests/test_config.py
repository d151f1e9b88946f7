from __future__ import annotations

from pathlib import Path

import pytest

from hesape import config
from hesape.config import ConnectionSettings, canonical, load, mask, single
from hesape.errors import ConfigError
from hesape.masking import masked, scrub


def write(folder: Path, text: str, name: str = "hesape.toml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder / name


def refused(folder: Path, text: str, **environ: str) -> str:
    write(folder, text)
    with pytest.raises(ConfigError) as caught:
        load(folder=folder, environ=environ).settings()
    return str(caught.value).replace(str(folder), "FOLDER")


# Where it is found.


def test_without_any_file_the_default_is_sqlite_in_the_working_directory(tmp_path: Path) -> None:
    found = load(folder=tmp_path, environ={}).settings()
    assert found == ConnectionSettings(
        name="default", driver="sqlite", url="sqlite:///hesape.db", options={}, folder=tmp_path
    )


def test_the_nearest_hesape_toml_upwards_is_used_and_relative_paths_are_against_its_folder(tmp_path: Path) -> None:
    write(tmp_path, "[connections.far]\nurl = 'sqlite:///far.db'")
    file = write(tmp_path / "a", "[connections.near]\nurl = 'sqlite:///near.db'")
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    found = load(folder=tmp_path / "a" / "b" / "c", environ={})
    assert (found.file, found.settings().name, found.settings().folder) == (file, "near", tmp_path / "a")


def test_a_pyproject_counts_only_with_its_table_and_only_without_a_hesape_toml(tmp_path: Path) -> None:
    write(tmp_path, "[tool.hesape.connections.far]\nurl = 'sqlite:///a.db'", "pyproject.toml")
    write(tmp_path / "a", "[project]\nname = 'x'", "pyproject.toml")
    assert load(folder=tmp_path / "a", environ={}).names == ["far"]
    write(tmp_path, "[connections.first]\nurl = 'sqlite:///a.db'")
    assert load(folder=tmp_path / "a", environ={}).names == ["first"]


def test_a_named_file_or_folder_beats_the_variable_and_the_variable_what_is_found(tmp_path: Path) -> None:
    write(tmp_path, "[connections.found]\nurl = 'sqlite:///a.db'")
    other = write(tmp_path / "o", "[connections.other]\nurl = 'sqlite:///a.db'")
    write(tmp_path / "p", "[tool.hesape.connections.third]\nurl = 'sqlite:///a.db'", "pyproject.toml")
    environ = {"HESAPE_CONFIG": str(other)}
    assert load(folder=tmp_path, environ=environ).names == ["other"]
    assert load(tmp_path / "p" / "pyproject.toml", folder=tmp_path, environ=environ).names == ["third"]
    assert load(tmp_path, folder=tmp_path, environ=environ).names == ["found"]


def test_a_named_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: there is no such configuration file"):
        load(tmp_path / "none.toml", environ={})


# Which connection.


def test_a_name_beats_the_variable_which_beats_the_file(tmp_path: Path) -> None:
    write(tmp_path, "default = 'a'\n" + "".join(f"[connections.{n}]\nurl = 'sqlite:///{n}.db'\n" for n in "abc"))
    assert load(folder=tmp_path, environ={}).settings().name == "a"
    found = load(folder=tmp_path, environ={"HESAPE_CONNECTION": "b"})
    assert (found.settings().name, found.settings("c").name) == ("b", "c")


def test_the_only_connection_and_one_called_default_need_no_default(tmp_path: Path) -> None:
    write(tmp_path, "[connections.one]\nurl = 'sqlite:///a.db'")
    assert load(folder=tmp_path, environ={}).settings().name == "one"
    write(tmp_path, "[connections.one]\nurl = 'sqlite:///a.db'\n[connections.default]\nurl = 'sqlite:///b.db'")
    assert load(folder=tmp_path, environ={}).settings().name == "default"


def test_several_connections_without_a_default_are_named(tmp_path: Path) -> None:
    text = "[connections.a]\nurl = 'sqlite:///a.db'\n[connections.b]\nurl = 'sqlite:///b.db'"
    assert refused(tmp_path, text) == "FOLDER/hesape.toml: default: not set, and there are several connections: a, b"


def test_an_unknown_connection_names_the_nearest_and_all_that_are_configured(tmp_path: Path) -> None:
    write(tmp_path, "[connections.orders]\nurl = 'sqlite:///a.db'")
    with pytest.raises(ConfigError) as caught:
        load(folder=tmp_path, environ={}).settings("order")
    assert str(caught.value) == (
        f"no connection named 'order'; did you mean 'orders'? (configured: orders; {tmp_path}/hesape.toml)"
    )


def test_a_variable_that_names_no_connection_is_named_itself(tmp_path: Path) -> None:
    text = "[connections.orders]\nurl = 'sqlite:///a.db'"
    assert refused(tmp_path, text, HESAPE_CONNECTION="ordesr") == (
        "HESAPE_CONNECTION: no connection named 'ordesr'; did you mean 'orders'? "
        "(configured: orders; FOLDER/hesape.toml)"
    )


# Drivers.


@pytest.mark.parametrize(
    ("url", "driver"),
    [
        ("sqlite:///a.db", "sqlite"),
        ("postgres://h/d", "postgres"),
        ("postgresql://h/d", "postgres"),
        ("postgresql+psycopg://h/d", "postgres"),
        ("mariadb://h/d", "mysql"),
        ("rediss://h", "redis"),
        ("redis+sentinel://h", "redis"),
        ("redis+cluster://h", "redis"),
        ("acme+tls://h", "acme"),
        ("SQLite:///a.db", "sqlite"),
    ],
)
def test_the_scheme_names_the_driver(url: str, driver: str) -> None:
    assert single(url).settings().driver == driver


def test_a_driver_beats_the_scheme_and_may_be_an_alias(tmp_path: Path) -> None:
    write(tmp_path, "[connections.a]\ndriver = 'mariadb'\nurl = 'postgres://h/d'\nprefix = 'x_'")
    found = load(folder=tmp_path, environ={}).settings()
    assert (found.driver, found.url, found.options) == ("mysql", "postgres://h/d", {"prefix": "x_"})


def test_a_composite_keeps_its_list_of_connections(tmp_path: Path) -> None:
    write(tmp_path, "[connections.safe]\ndriver = 'failover'\nconnections = ['a', 'b']")
    assert load(folder=tmp_path, environ={}).settings().options == {"connections": ["a", "b"]}


def test_canonical_leaves_an_unknown_driver_alone() -> None:
    assert canonical("acme") == "acme"


# Variables.


def test_variables_are_replaced_wherever_text_is(tmp_path: Path) -> None:
    write(tmp_path, "[connections.a]\nurl = 'postgres://u:${PW}@${HOST}/d'\nlist = ['${HOST}']\ntls = {ca = '${HOST}'}")
    found = load(folder=tmp_path, environ={"PW": "s3", "HOST": "h"}).settings()
    assert (found.url, found.options) == ("postgres://u:s3@h/d", {"list": ["h"], "tls": {"ca": "h"}})


def test_what_a_variable_holds_is_not_replaced_again(tmp_path: Path) -> None:
    write(tmp_path, "[connections.a]\nurl = 'x://u:${PW}@h'")
    assert load(folder=tmp_path, environ={"PW": "${HOST}", "HOST": "no"}).settings().url == "x://u:${HOST}@h"


def test_an_unset_variable_is_named_with_its_key_when_its_connection_is_used(tmp_path: Path) -> None:
    text = "default = 'b'\n[connections.a]\nurl = 'sqlite:///a.db'\n[connections.b]\nurl = '${DATABASE_URL}'"
    assert refused(tmp_path, text) == (
        "FOLDER/hesape.toml: connections.b.url: the environment variable DATABASE_URL isn't set"
    )
    assert load(folder=tmp_path, environ={}).settings("a").driver == "sqlite"


def test_a_variable_written_in_another_way_is_refused(tmp_path: Path) -> None:
    assert refused(tmp_path, "[connections.a]\nurl = 'x://${A:-b}'") == (
        "FOLDER/hesape.toml: connections.a.url: expected ${NAME}, with a name of letters, digits and '_'"
    )


# What is wrong in a file.


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("defualt = 'a'", "defualt: unknown key; did you mean 'default'?"),
        ("zzz = 1", "zzz: unknown key; expected one of default, connections, signing, worker"),
        ("default = 3", "default: expected text, found a whole number"),
        ("connections = 3", "connections: expected a table, found a whole number"),
        ("connections.a = 'sqlite:///x'", "connections.a: expected a table, found text"),
        ("[connections.a]\nurl = 3", "connections.a.url: expected text, found a whole number"),
        ("[connections.a]\nulr = 'x'", "connections.a: neither url nor driver is set; did you mean 'url'?"),
        (
            "[connections.a]\nprefix = 'x'",
            "connections.a: neither url nor driver is set; set url, such as 'sqlite:///hesape.db'",
        ),
        (
            "[connections.a]\nurl = 'jobs.db'",
            "connections.a.url: no scheme names the driver; expected one such as sqlite:///hesape.db",
        ),
        (
            "[connections.'A b']\nurl = 'x://h'",
            "connections.A b: connection 'A b': expected 1 to 64 of a-z, 0-9, '_' and '-'",
        ),
        (
            "default = 'b'\n[connections.a]\nurl = 'x://h'",
            "default: no connection named 'b' (configured: a)",
        ),
        ("[worker]\nconcurency = 3", "worker.concurency: unknown key; did you mean 'concurrency'?"),
        ("[worker]\nconcurrency = '3'", "worker.concurrency: expected a whole number, found text"),
        ("[worker]\nconcurrency = true", "worker.concurrency: expected a whole number, found true or false"),
        ("[worker]\nlease = []", "worker.lease: expected a whole number or a number, found a list"),
        ("[signing]\nsaeling = 'a'", "signing.saeling: unknown key; did you mean 'sealing'?"),
        (
            "[signing]\nsealing = 'a'",
            'signing.keys: no key is set; expected ids and secrets, such as { k1 = "${HESAPE_KEY}" }',
        ),
        ("[signing]\nkeys = { a = 1 }", "signing.keys.a: expected text, found a whole number"),
        (
            "[signing.keys]\na = 'x'\nb = 'y'",
            'signing.sealing: not set; name the key that seals (a, b), or "" to seal nothing',
        ),
    ],
)
def test_a_mistake_names_the_file_the_key_and_what_to_write(tmp_path: Path, text: str, message: str) -> None:
    assert refused(tmp_path, text) == f"FOLDER/hesape.toml: {message}"


def test_a_mistake_in_a_pyproject_names_the_key_in_full(tmp_path: Path) -> None:
    write(tmp_path, "[tool.hesape]\nwroker = 1", "pyproject.toml")
    with pytest.raises(
        ConfigError, match=r"pyproject\.toml: tool\.hesape\.wroker: unknown key; did you mean 'worker'\?"
    ):
        load(folder=tmp_path, environ={})


def test_what_is_not_toml_is_named_with_its_line(tmp_path: Path) -> None:
    assert refused(tmp_path, "a = \n") == "FOLDER/hesape.toml: not TOML: Invalid value (at line 1, column 5)"


# Worker and keys.


def test_the_worker_table_is_kept_as_it_is(tmp_path: Path) -> None:
    write(tmp_path, "[worker]\nconcurrency = 8\nlease = 30\nqueue = 'high,default'")
    assert load(folder=tmp_path, environ={}).worker == {"concurrency": 8, "lease": 30, "queue": "high,default"}


def test_signing_keys_come_from_the_table_and_the_only_one_seals(tmp_path: Path) -> None:
    assert not load(folder=tmp_path, environ={}).keys()
    write(tmp_path, "[signing.keys]\nk1 = '${KEY}'")
    keys = load(folder=tmp_path, environ={"KEY": "0123456789abcdef"}).keys()
    assert (keys.secrets, keys.sealing, keys.accept_unsealed) == ({"k1": b"0123456789abcdef"}, "k1", False)


def test_several_keys_name_the_one_that_seals(tmp_path: Path) -> None:
    write(tmp_path, "[signing]\nsealing='b'\naccept_unsealed=true\nkeys={a='0123456789abcdef', b='fedcba9876543210'}")
    keys = load(folder=tmp_path, environ={}).keys()
    assert (sorted(keys.secrets), keys.sealing, keys.accept_unsealed) == (["a", "b"], "b", True)


def test_a_short_or_missing_key_is_named_with_the_file_and_never_shown(tmp_path: Path) -> None:
    write(tmp_path, "[signing.keys]\nk1 = 'hush'")
    with pytest.raises(ConfigError) as caught:
        load(folder=tmp_path, environ={}).keys()
    assert str(caught.value) == (
        f"{tmp_path}/hesape.toml: signing: the signing key 'k1' is too short: expected at least 16 bytes"
    )
    write(tmp_path, "[signing.keys]\nk1 = '${KEY}'")
    with pytest.raises(ConfigError, match=r"signing\.keys\.k1: the environment variable KEY isn't set"):
        load(folder=tmp_path, environ={}).keys()


# Secrets.


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///jobs.db", "sqlite:///jobs.db"),
        ("postgres://u:hush@h:5432/d", "postgres://u:***@h:5432/d"),
        ("postgres://u@h/d", "postgres://u@h/d"),
        ("redis://:hush@h/0", "redis://:***@h/0"),
        ("postgres://u:hu@sh@h/d", "postgres://u:***@h/d"),
        ("postgres://u:hu/sh@h/d", "postgres://u:***@h/d"),
        ("postgres://u:hu?sh@h/d", "postgres://u:***@h/d"),
        ("postgres://u:hu://sh@h/d", "postgres://u:***@h/d"),
        ("postgres://u:hush@h/d?application_name=me@x", "postgres://u:***@h/d?application_name=me@x"),
        ("postgres://h/d?user=u&password=hush&x=1", "postgres://h/d?user=u&password=***&x=1"),
        ("postgres://h/d?sslpassword=hush", "postgres://h/d?sslpassword=***"),
        ("host=h password=hush dbname=d", "host=h password=*** dbname=d"),
        ("host=h password='hush hush' dbname=d", "host=h password=*** dbname=d"),
    ],
)
def test_a_masked_url_shows_everything_but_the_password(url: str, shown: str) -> None:
    assert mask(url) == shown


def test_options_that_are_secret_by_name_or_hold_a_url_are_masked() -> None:
    assert masked("password", "hush") == "***"
    assert masked("tls", {"key_password": "hush", "ca": "x"}) == {"key_password": "***", "ca": "x"}
    assert masked("members", ["redis://:hush@h"]) == ["redis://:***@h"]
    assert masked("size", 3) == 3


def test_the_text_of_somebody_else_s_error_loses_the_secrets() -> None:
    settings = ConnectionSettings(
        name="a", driver="x", url="x://u:hu%40sh@h/d?token=abcdef", options={"password": "hidden"}
    )
    text = scrub("x://u:hu%40sh@h/d?token=abcdef hu@sh abcdef hidden", settings)
    assert text == "x://u:***@h/d?token=*** *** *** ***"


def test_no_repr_shows_a_secret(tmp_path: Path) -> None:
    write(
        tmp_path,
        "[connections.a]\nurl = 'x://u:hush@h'\npassword = 'hush'\n[signing.keys]\nk1 = 'hush-hush-hush-hush'",
    )
    found = load(folder=tmp_path, environ={"PW": "hush"})
    assert "hush" not in repr(found) + repr(found.settings()) + repr(found.keys())


def test_a_url_given_in_code_is_taken_as_it_is() -> None:
    found = single("x://u:${A}@h", name="n", options={"prefix": "p"}).settings()
    assert (found.name, found.url, found.options) == ("n", "x://u:${A}@h", {"prefix": "p"})


def test_config_names_what_drivers_and_applications_use() -> None:
    assert {"ConnectionSettings", "load", "mask", "single"} <= set(config.__all__)
