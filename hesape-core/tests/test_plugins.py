from __future__ import annotations

import copy
import logging
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import hesape.plugins
from hesape.driver import CONTRACT
from hesape.errors import (
    ConfigError,
    DriverBlockedError,
    DriverBrokenError,
    DriverConflictError,
    DriverError,
    DriverIncompatibleError,
    DriverNotInstalledError,
    DriverUnknownError,
)
from hesape.plugins import Plugins

GOOD = """
from hesape.driver import CONTRACT, Capability, DriverSpec, Fact
from hesape.plugins import hookimpl

@hookimpl
def hesape_register_driver():
    return DriverSpec(name="acme", contract=CONTRACT, summary="For tests.", open=print)
"""
_numbers = count()

Install = Callable[..., str]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put a distribution with one entry point on `sys.path`; returns its module's name."""
    monkeypatch.syspath_prepend(tmp_path)

    def fake(
        source: str,
        *,
        name: str = "acme",
        distribution: str = "acme-jobs",
        version: str = "1.2",
        group: str = "hesape.drivers",
        attribute: str = "",
    ) -> str:
        module = f"hesape_fake_{next(_numbers)}"
        (tmp_path / f"{module}.py").write_text(textwrap.dedent(source))
        folder = tmp_path / f"{distribution.replace('-', '_')}-{version}.dist-info"
        folder.mkdir(exist_ok=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        with (folder / "entry_points.txt").open("a") as file:
            file.write(f"[{group}]\n{name} = {module}{attribute}\n")
        return module

    return fake


@pytest.fixture
def plugins(tmp_path: Path) -> Callable[..., Plugins]:
    """What is installed, looking at the fakes alone."""
    return lambda **environ: Plugins(environ=environ, path=[str(tmp_path)])


def refused(kind: type[DriverError], found: Plugins, name: str = "acme") -> DriverError:
    with pytest.raises(kind) as caught:
        found.driver(name)
    assert type(caught.value) is kind
    return caught.value


# Found.


def test_an_installed_driver_is_found_by_its_entry_point_and_loaded_when_it_is_used(
    install: Install, plugins: Any
) -> None:
    module = install(GOOD)
    found = plugins()
    assert found.names == ["acme"]
    assert module not in sys.modules
    assert found.driver("acme").summary == "For tests."
    assert module in sys.modules


def test_the_spec_is_asked_for_once(install: Install, plugins: Any) -> None:
    install(GOOD)
    found = plugins()
    assert found.driver("acme") is found.driver("acme")


def test_an_alias_finds_its_driver(install: Install, plugins: Any) -> None:
    install(GOOD.replace('"acme"', '"postgres"'), name="postgres")
    assert plugins().driver("postgresql").name == "postgres"


def test_of_two_copies_of_a_distribution_the_first_on_the_path_counts(
    install: Install, plugins: Any, tmp_path: Path
) -> None:
    install(GOOD)
    found = Plugins(environ={}, path=[str(tmp_path), str(tmp_path)])
    assert found.driver("acme").name == "acme"


def test_the_drivers_that_ship_are_found_as_everybody_s_are() -> None:
    assert {"memory", "sqlite"} <= set(Plugins(environ={}).names)


# Missing.


def test_an_official_driver_that_is_missing_names_what_to_install(install: Install, plugins: Any) -> None:
    install(GOOD)
    error = refused(DriverNotInstalledError, plugins(), "postgres")
    assert str(error) == (
        "no driver named 'postgres' is installed; install it with: pip install hesape-postgres (installed here: acme)"
    )
    assert (error.name, error.distribution, error.code) == ("postgres", "hesape-postgres", "driver-not-installed")


def test_an_unknown_driver_names_the_nearest_and_those_installed(install: Install, plugins: Any) -> None:
    install(GOOD)
    assert str(refused(DriverUnknownError, plugins(), "reddis")) == (
        "no driver named 'reddis'; did you mean 'redis'? (installed here: acme)"
    )
    assert str(refused(DriverUnknownError, plugins(), "zzz")) == "no driver named 'zzz' (installed here: acme)"


def test_with_nothing_installed_the_error_says_none(plugins: Any) -> None:
    assert str(refused(DriverUnknownError, plugins(), "zzz")) == "no driver named 'zzz' (installed here: none)"


# Broken. Each case comes with a good neighbour, which works.

BROKEN = {
    "import error": ("import no_such_client", "", "ModuleNotFoundError: No module named 'no_such_client'"),
    "exit at import": ("raise SystemExit(3)", "", "SystemExit: 3"),
    "any error at import": ("1 / 0", "", "ZeroDivisionError: division by zero"),
    "missing attribute": ("", ":Plugin", "AttributeError: module 'MODULE' has no attribute 'Plugin'"),
    "no hook": (
        "",
        "",
        "TypeError: it has no hook hesape_register_driver marked with hesape.plugins.hookimpl",
    ),
    "unknown hook": (
        GOOD + "\n@hookimpl\ndef hesape_grant(grant): ...",
        "",
        "PluginValidationError: unknown hook 'hesape_grant' in plugin <module 'MODULE' from 'FILE'>",
    ),
    "not a spec": (
        "from hesape.plugins import hookimpl\n@hookimpl\ndef hesape_register_driver(): return 'acme'",
        "",
        "TypeError: hesape_register_driver() returned str, expected hesape.DriverSpec",
    ),
    "an error in the hook": (
        "from hesape.plugins import hookimpl\n@hookimpl\ndef hesape_register_driver(): raise OSError('no')",
        "",
        "OSError: no",
    ),
    "another name": (
        GOOD.replace('"acme"', '"emca"'),
        "",
        "ValueError: its spec is named 'emca', its entry point 'acme'",
    ),
    "an unknown capability": (
        GOOD.replace("open=print", "open=print, capabilities=['magic']"),
        "",
        "TypeError: its spec claims 'magic', which this version doesn't know",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_driver_is_reported_by_name_and_harms_nobody_else(
    install: Install, plugins: Any, tmp_path: Path, case: str
) -> None:
    source, attribute, cause = BROKEN[case]
    module = install(source, attribute=attribute)
    install(GOOD.replace('"acme"', '"good"'), name="good", distribution="good-jobs")
    found = plugins()
    assert found.driver("good").name == "good"
    error = refused(DriverBrokenError, found)
    text = str(error).replace(str(tmp_path / f"{module}.py"), "FILE").replace(module, "MODULE")
    assert text == f"driver 'acme' from acme-jobs 1.2 could not be loaded: {cause}"
    assert error.distribution == "acme-jobs"
    assert type(error.__cause__).__name__ == cause.partition(":")[0]
    assert [(one.name, one.problem is None) for one in found.look()] == [("acme", False), ("good", True)]


def test_a_problem_is_kept_and_said_again(install: Install, plugins: Any) -> None:
    install("1 / 0")
    found = plugins()
    assert str(refused(DriverBrokenError, found)) == str(refused(DriverBrokenError, found))


def test_damaged_metadata_harms_nobody_else(install: Install, plugins: Any, tmp_path: Path) -> None:
    (tmp_path / "damaged-1.dist-info").mkdir()
    (tmp_path / "damaged-1.dist-info" / "entry_points.txt").write_text("[hesape.drivers]\nthis is no entry point\n")
    install(GOOD)
    assert plugins().driver("acme").name == "acme"


@pytest.mark.parametrize("step", [1, -1])
def test_another_major_contract_is_refused_with_both_numbers(install: Install, plugins: Any, step: int) -> None:
    theirs = CONTRACT[0] + step
    install(GOOD.replace("contract=CONTRACT", f"contract=({theirs}, 4)"))
    older = "hesape-core" if step > 0 else "acme-jobs"
    assert str(refused(DriverIncompatibleError, plugins())) == (
        f"driver 'acme' from acme-jobs 1.2 speaks contract {theirs}.4; "
        f"this hesape-core 0.1.0 speaks {CONTRACT[0]}.{CONTRACT[1]}. Upgrade {older}"
    )


def test_another_minor_contract_is_accepted(install: Install, plugins: Any) -> None:
    install(GOOD.replace("contract=CONTRACT", "contract=(CONTRACT[0], 99)"))
    assert plugins().driver("acme").contract == (CONTRACT[0], 99)


# Conflicts, pins, blocks.


def test_of_two_packages_for_one_name_neither_is_used_and_both_are_named(install: Install, plugins: Any) -> None:
    modules = [
        install(GOOD.replace('"acme"', '"redis"'), name="redis", distribution=distribution)
        for distribution in ("hesape-redis", "a-other-redis")
    ]
    assert str(refused(DriverConflictError, plugins(), "redis")) == (
        "driver name 'redis' is claimed by a-other-redis 1.2 and hesape-redis 1.2; neither is used. "
        "Uninstall one, or set HESAPE_DRIVERS=redis=hesape-redis"
    )
    assert not set(modules) & set(sys.modules)


def test_a_pin_settles_a_conflict_whatever_way_the_distribution_is_written(install: Install, plugins: Any) -> None:
    install(GOOD)
    install(GOOD.replace("For tests.", "The other."), distribution="other-jobs")
    assert plugins(HESAPE_DRIVERS="x=y, acme = Other_Jobs").driver("acme").summary == "The other."


def test_a_pin_to_somebody_who_offers_nothing_says_who_does(install: Install, plugins: Any) -> None:
    install(GOOD)
    assert str(refused(DriverNotInstalledError, plugins(HESAPE_DRIVERS="acme=mine"))) == (
        "HESAPE_DRIVERS takes the driver 'acme' from mine, which offers none (offered by acme-jobs 1.2)"
    )


def test_a_pin_that_is_none_is_an_error_that_shows_it(install: Install, plugins: Any) -> None:
    install(GOOD)
    with pytest.raises(ConfigError) as caught:
        plugins(HESAPE_DRIVERS="acme").driver("acme")
    assert str(caught.value) == "HESAPE_DRIVERS=acme: expected NAME=DISTRIBUTION, several divided by commas"


@pytest.mark.parametrize("blocked", ["acme", "x, ACME-jobs"])
def test_a_blocked_driver_isn_t_loaded_and_the_variable_is_named(install: Install, plugins: Any, blocked: str) -> None:
    module = install(GOOD)
    found = plugins(HESAPE_BLOCK=blocked)
    assert str(refused(DriverBlockedError, found)) == (
        f"driver 'acme' from acme-jobs 1.2 is blocked by HESAPE_BLOCK={blocked}; take it out to use it"
    )
    assert found.names == []
    assert module not in sys.modules


def test_blocking_one_of_two_packages_heals_a_conflict(install: Install, plugins: Any) -> None:
    install(GOOD)
    install("1 / 0", distribution="other-jobs")
    assert plugins(HESAPE_BLOCK="other-jobs").driver("acme").name == "acme"


@pytest.mark.parametrize("kind", [DriverUnknownError, DriverConflictError, DriverBrokenError])
def test_an_error_survives_pickling_with_all_it_carries(kind: type[DriverError]) -> None:
    for twin in (
        pickle.loads(pickle.dumps(kind("text", "acme", "acme-jobs"))),  # noqa: S301 - what was pickled a moment ago
        copy.copy(kind("text", "acme", "acme-jobs")),
    ):
        assert (type(twin), str(twin), twin.name, twin.distribution) == (kind, "text", "acme", "acme-jobs")


# Observers.

OBSERVER = """
from hesape.plugins import hookimpl
seen = []
@hookimpl
def hesape_event(event):
    seen.append(event)
"""


def test_observers_are_loaded_at_the_first_event_and_told_of_each(install: Install, plugins: Any) -> None:
    module = install(OBSERVER, name="watch", group="hesape.plugins")
    found = plugins()
    assert module not in sys.modules
    found.notify("one")
    found.notify("two")
    assert sys.modules[module].seen == ["one", "two"]


@pytest.mark.parametrize("fault", ["1 / 0", "raise SystemExit"])
def test_what_an_observer_raises_is_logged_and_the_others_are_told(
    install: Install, plugins: Any, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    install(OBSERVER.replace("seen.append(event)", fault), name="a", group="hesape.plugins")
    module = install(OBSERVER, name="b", distribution="b", group="hesape.plugins")
    plugins().notify("one")
    assert sys.modules[module].seen == ["one"]
    assert "an observer failed at str" in caplog.text


@pytest.mark.parametrize("source", ["1 / 0", "raise SystemExit", OBSERVER + "\n@hookimpl\ndef hesape_push(job): ..."])
def test_a_broken_observer_is_named_once_and_left_out(
    install: Install, plugins: Any, caplog: pytest.LogCaptureFixture, source: str
) -> None:
    install(source, name="watch", group="hesape.plugins")
    found = plugins()
    with caplog.at_level(logging.WARNING):
        found.notify("one")
        found.notify("two")
    assert caplog.text.count("observer 'watch' from acme-jobs 1.2 could not be loaded") == 1
    assert [(one.kind, type(one.problem)) for one in found.look()] == [("observer", DriverBrokenError)]


def test_a_blocked_observer_isn_t_loaded(install: Install, plugins: Any) -> None:
    module = install(OBSERVER, name="watch", group="hesape.plugins")
    plugins(HESAPE_BLOCK="watch").notify("one")
    assert module not in sys.modules


def test_an_observer_can_be_added_and_removed_without_installing_it(plugins: Any) -> None:
    class Watch:
        def __init__(self) -> None:
            self.seen: list[object] = []

        @hesape.plugins.hookimpl
        def hesape_event(self, event: object) -> None:
            self.seen.append(event)

    found, watch = plugins(), Watch()
    assert found.observers() == ()
    remove = found.add_observer(watch)
    found.notify("one")
    remove()
    found.notify("two")
    assert watch.seen == ["one"]


def test_an_object_without_the_hook_is_no_observer(plugins: Any) -> None:
    with pytest.raises(TypeError, match="no hook hesape_event marked with"):
        plugins().add_observer(object())


# Nothing is loaded before it is used.


def test_importing_hesape_loads_no_plugin_even_when_one_is_broken(install: Install, tmp_path: Path) -> None:
    module = install("raise SystemExit(9)")
    ask = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import hesape; print({module!r} in sys.modules)"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
