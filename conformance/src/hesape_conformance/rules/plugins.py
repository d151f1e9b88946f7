"""N1, N2, N3: how a driver is found."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from contextlib import contextmanager
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from hesape import errors
from hesape.config import Configuration
from hesape.driver import CONTRACT, Capability, Fact
from hesape.manager import Manager
from hesape.plugins import Plugins
from hesape_conformance.catalogue import rule
from hesape_conformance.expect import raises
from hesape_conformance.installed import owner_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hesape_conformance.trial import Trial


@contextmanager
def distributions(*offers: tuple[str, str, str]) -> Iterator[list[str]]:
    """A path with distributions beside those that are installed: name, driver's name, plugin module."""
    folder = tempfile.mkdtemp(prefix="hesape-plugins-")
    try:
        for name, driver, module in offers:
            place = Path(folder, f"{name.replace('-', '_')}-9.9.dist-info")
            place.mkdir()
            (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 9.9\n", encoding="utf-8")
            (place / "entry_points.txt").write_text(f"[hesape.drivers]\n{driver} = {module}\n", encoding="utf-8")
        yield [folder, *sys.path]
    finally:
        shutil.rmtree(folder)


def clients(driver: str) -> set[str]:
    """The top-level modules of what a driver's distribution needs and the core doesn't."""
    own, core = _needs(owner_of(driver)[0]), _needs("hesape-core") | {"hesape-core", "hesape-conformance"}
    provided = packages_distributions()
    return {top for top, owners in provided.items() if {owner.lower() for owner in owners} & (own - core)}


def _needs(distribution: str) -> set[str]:
    return {re.split(r"[^A-Za-z0-9_.-]", line)[0].lower() for line in requires(distribution) or ()}


@rule("N1", "The driver is found by its name among what is installed, and is the one under test")
def found(trial: Trial) -> None:
    plugins = Plugins()
    assert trial.spec.name in plugins.names
    spec = plugins.driver(trial.spec.name)
    assert attrs.evolve(spec, open=trial.spec.open) == trial.spec
    assert trial.harness.driver == trial.spec.name
    problems = [each for each in plugins.look() if each.name == trial.spec.name and each.problem]
    assert problems == []


@rule("N1", "Loading its plugin opens nothing and imports no client library")
def costs_nothing(trial: Trial) -> None:
    name, contract, capabilities, facts, kind, loaded = trial.child("plugin", trial.spec.name).answer()
    assert (name, contract, kind) == (trial.spec.name, list(trial.spec.contract), trial.spec.kind)
    assert (capabilities, facts) == (sorted(trial.spec.capabilities), sorted(trial.spec.facts))
    wanted = clients(trial.spec.name)
    assert not wanted & set(loaded), f"the plugin imports {sorted(wanted & set(loaded))}"


@rule("N2", "A name that nobody offers is told with what is installed, and the nearest name with it")
def unknown(trial: Trial) -> None:
    with raises(errors.DriverUnknownError, repr(trial.spec.name)) as caught:
        Plugins().driver(f"{trial.spec.name}x")
    assert caught.error.name == f"{trial.spec.name}x"
    assert isinstance(caught.error, LookupError)


@rule("N2", "A broken plugin beside it is reported by name, and harms nobody")
def broken_neighbour(trial: Trial) -> None:
    with distributions(("some-broken", "broken", "no_such_module_at_all")) as path:
        plugins = Plugins(path=path)
        for _ in range(2):
            with raises(errors.DriverBrokenError, "broken", "some-broken 9.9", "no_such_module_at_all") as caught:
                plugins.driver("broken")
            assert isinstance(caught.error.__cause__, ImportError)
        assert plugins.driver(trial.spec.name).name == trial.spec.name
        assert {each.name for each in plugins.look() if each.problem} >= {"broken"}


@rule("N2", "Two distributions for its name: neither is used, both are named, and a pin settles it")
def claimed_twice(trial: Trial) -> None:
    name = trial.spec.name
    owner = owner_of(name)[0]
    with distributions(("some-other", name, "no_such_module_at_all")) as path:
        with raises(errors.DriverConflictError, "some-other 9.9", owner) as caught:
            Plugins(path=path, environ={}).driver(name)
        assert caught.error.name == name
        pinned = Plugins(path=path, environ={"HESAPE_DRIVERS": f"{name}={owner}"})
        assert pinned.driver(name).name == name
        with raises(errors.DriverBlockedError, "HESAPE_BLOCK"):
            Plugins(environ={"HESAPE_BLOCK": name}).driver(name)


@rule("N3", "It states a contract that this core speaks, and its claims are known")
def contract(trial: Trial) -> None:
    major, minor = trial.spec.contract
    assert major == CONTRACT[0]
    assert minor <= CONTRACT[1]
    assert trial.spec.capabilities <= frozenset(Capability)
    assert trial.spec.facts <= frozenset(Fact)
    assert trial.spec.summary
    assert "\n" not in trial.spec.summary
    envelope = trial.row(trial.push())["envelope"]
    assert envelope.startswith(b"hesape1 ")


@rule("N3", "Another major version is refused with both numbers, before anything of it is used")
def other_major(trial: Trial) -> None:
    module = "hesape_conformance_other_major"
    text = (
        "import attrs\nfrom hesape.driver import CONTRACT, DriverSpec\nfrom hesape.plugins import hookimpl\n"
        "@hookimpl\ndef hesape_register_driver():\n"
        "    return DriverSpec(name='other', contract=(CONTRACT[0] + 1, 0), summary='x', open=None)\n"
    )
    with distributions(("some-newer", "other", module)) as path:
        Path(path[0], f"{module}.py").write_text(text, encoding="utf-8")
        sys.path.insert(0, path[0])
        try:
            with raises(errors.DriverIncompatibleError, f"{CONTRACT[0] + 1}.0", f"{CONTRACT[0]}.{CONTRACT[1]}"):
                Plugins(path=path).driver("other")
        finally:
            sys.path.remove(path[0])
            sys.modules.pop(module, None)
    assert Plugins().driver(trial.spec.name).contract == trial.spec.contract


@rule("N4", "A configuration's connection opens it by its name alone, and by its URL's scheme")
def configured(trial: Trial) -> None:
    settings = trial.settings
    tables: dict[str, dict[str, Any]] = {"named": {"driver": settings.driver, "url": settings.url, **settings.options}}
    if settings.url:
        tables["by_url"] = {"url": settings.url, **settings.options}
    manager = Manager(Configuration(tables=tables, default="named", folder=settings.folder, source="a test"))
    try:
        for name in tables:
            queue = manager.connection(name)
            pushed = queue.push(trial.grant(), trial.job({"via": name}))
            [job] = queue.pop()
            assert (job.id, job.connection_name) == (pushed.id, name)
            job.delete()
    finally:
        manager.close()
