from __future__ import annotations

import threading
import traceback
from pathlib import Path
from typing import Any

import pytest

import hesape
from hesape.config import Configuration, ConnectionSettings, load, single
from hesape.driver import CONTRACT, Driver, DriverSpec, Host
from hesape.errors import ConfigError, DriverBrokenError, DriverNotInstalledError, DriverUnknownError, UnsupportedError
from hesape.manager import Manager
from hesape.plugins import Plugins
from hesape.testing import FakeJob

MEMORY = Plugins(environ={}).driver("memory")


class Fakes(Plugins):
    """Drivers by name, without installing them; `opened` remembers each opening."""

    def __init__(self, **opening: Any) -> None:
        super().__init__(environ={}, path=[])
        self.opened: list[str] = []
        self._opening = opening

    def driver(self, name: str) -> DriverSpec:
        if name not in self._opening:
            return super().driver(name)

        def opened(settings: ConnectionSettings, host: Host) -> Driver:
            self.opened.append(settings.name)
            found: Driver = self._opening[name](settings, host)
            return found

        return DriverSpec(name=name, contract=CONTRACT, summary="", open=opened)


def configured(tmp_path: Path, text: str, **environ: str) -> Configuration:
    (tmp_path / "hesape.toml").write_text(text)
    return load(folder=tmp_path, environ=environ)


TWO = "default = 'a'\n[connections.a]\nurl = 'fake://g'\n[connections.b]\nurl = 'fake://h'\n"


def test_a_connection_is_opened_when_it_is_first_used_and_once(tmp_path: Path) -> None:
    fakes = Fakes(fake=MEMORY.open)
    manager = Manager(configured(tmp_path, TWO), found=fakes)
    assert fakes.opened == []
    assert manager.connection().name == "a"
    assert manager.connection("b") is manager.connection("b")
    assert manager.connection("a") is manager.connection()
    assert fakes.opened == ["a", "b"]


def test_many_threads_open_one_connection_once(tmp_path: Path) -> None:
    fakes = Fakes(fake=MEMORY.open)
    manager = Manager(configured(tmp_path, TWO), found=fakes)
    gate, found = threading.Barrier(8), []

    def ask() -> None:
        gate.wait()
        found.append(manager.connection("b"))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(set(found)), fakes.opened) == (1, ["b"])


def test_switching_the_driver_changes_one_line_and_nothing_else(tmp_path: Path) -> None:
    grant = hesape.system_grant("a", "acme")
    for url in ("memory://", "sqlite:///jobs.db"):
        manager = Manager(configured(tmp_path, f"[connections.main]\nurl = '{url}'"))
        queue = manager.connection()
        queue.push(grant, hesape.Job.new(grant, "a", {"n": 1}))
        assert [job.decode() for job in queue.pop()] == [{"n": 1}]
        manager.close()


def test_the_signing_keys_are_the_application_s_for_every_connection(tmp_path: Path) -> None:
    text = TWO + "[signing.keys]\nk1 = '0123456789abcdef'"
    manager = Manager(configured(tmp_path, text), found=Fakes(fake=MEMORY.open))
    assert manager.connection("a").keys is manager.connection("b").keys
    assert manager.connection("a").keys.sealing == "k1"


def test_a_driver_may_ask_its_host_for_another_connection(tmp_path: Path) -> None:
    text = "default = 'safe'\n[connections.safe]\ndriver = 'both'\n[connections.b]\nurl = 'fake://h'"
    fakes = Fakes(fake=MEMORY.open, both=lambda _, host: host.driver("b"))
    manager = Manager(configured(tmp_path, text), found=fakes)
    assert manager.connection().driver is manager.connection("b").driver


def test_a_connection_that_leads_back_to_itself_is_an_error_that_shows_the_circle(tmp_path: Path) -> None:
    text = "default = 'x'\n[connections.x]\ndriver = 'one'\n[connections.y]\ndriver = 'two'"
    fakes = Fakes(one=lambda _, host: host.driver("y"), two=lambda _, host: host.driver("x"))
    manager = Manager(configured(tmp_path, text), found=fakes)
    with pytest.raises(ConfigError, match=r"hesape\.toml: connections\.x: it leads back to itself: x -> y -> x"):
        manager.connection()
    with pytest.raises(ConfigError, match="leads back"):
        manager.connection()


def test_a_driver_that_can_not_be_opened_is_named_without_the_password(tmp_path: Path) -> None:
    def fail(settings: ConnectionSettings, host: Host) -> Driver:
        raise OSError(f"can't reach {settings.url} with hush")

    text = "[connections.a]\nurl = 'fake://u:hush@h'"
    manager = Manager(configured(tmp_path, text), found=Fakes(fake=fail))
    with pytest.raises(DriverBrokenError) as caught:
        manager.connection()
    assert str(caught.value) == (
        "connection 'a': driver 'fake' could not be opened: OSError: can't reach fake://u:***@h with ***"
    )
    assert "fake://u:hush" not in "".join(traceback.format_exception(caught.value))


def test_a_missing_client_library_is_the_cause(tmp_path: Path) -> None:
    def fail(settings: ConnectionSettings, host: Host) -> Driver:
        raise ModuleNotFoundError("No module named 'client'", name="client")

    manager = Manager(configured(tmp_path, TWO), found=Fakes(fake=fail))
    with pytest.raises(DriverBrokenError) as caught:
        manager.connection("b")
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_what_is_no_driver_is_refused(tmp_path: Path) -> None:
    manager = Manager(configured(tmp_path, TWO), found=Fakes(fake=lambda *_: "driver"))
    with pytest.raises(DriverBrokenError, match=r"driver 'fake' opened a str, expected a hesape\.Driver"):
        manager.connection()


def test_a_driver_that_is_not_installed_is_the_error_of_its_connection_alone(tmp_path: Path) -> None:
    text = "default = 'b'\n[connections.a]\nurl = 'postgres://h/d'\n[connections.b]\nurl = 'fake://h'"
    manager = Manager(configured(tmp_path, text), found=Fakes(fake=MEMORY.open))
    assert manager.connection().name == "b"
    with pytest.raises(DriverNotInstalledError, match="pip install hesape-postgres"):
        manager.connection("a")


def test_running_a_job_needs_an_app() -> None:
    with pytest.raises(UnsupportedError, match="a local driver needs the handlers of an App"):
        Manager(single("memory://")).run(FakeJob("a", "acme"))


# Without a configuration.


def test_connect_gives_a_queue_without_any_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hesape.toml").write_text("this is not even TOML")
    monkeypatch.chdir(tmp_path)
    queue = hesape.connect("memory://")
    grant = hesape.system_grant("a", "acme")
    queue.push(grant, hesape.Job.new(grant, "a"))
    assert (queue.name, queue.counts().pending, queue.pop()[0].connection_name) == ("default", 1, "default")


def test_connect_takes_keys_a_name_and_the_driver_s_options() -> None:
    keys = hesape.Keys(secrets={"k": b"0123456789abcdef"}, sealing="k")
    queue = hesape.connect("memory://", keys=keys, name="mine")
    assert (queue.keys, queue.name) == (keys, "mine")
    with pytest.raises(ConfigError, match="prefx"):
        hesape.connect("memory://", prefx="x")


@pytest.mark.parametrize(
    ("url", "kind", "text"),
    [
        ("jobs.db", ConfigError, "connect(): connections.default.url: no scheme names the driver"),
        ("reddis://:hush@h", DriverUnknownError, "no driver named 'reddis'; did you mean 'redis'?"),
    ],
)
def test_connect_says_what_is_wrong_with_a_url_and_not_the_url(url: str, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind) as caught:
        hesape.connect(url)
    assert text in str(caught.value)
    assert "hush" not in str(caught.value)
