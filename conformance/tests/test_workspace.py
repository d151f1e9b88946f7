"""What holds for every distribution of this repository, whatever it is called."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = sorted(path.parent for path in ROOT.glob("*/pyproject.toml"))
PROJECTS = {folder: tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8")) for folder in FOLDERS}
each = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


def project(folder: Path) -> dict[str, Any]:
    table: dict[str, Any] = PROJECTS[folder]["project"]
    return table


def package(folder: Path) -> str:
    [path] = (folder / "src").glob("*/__init__.py")
    return path.parent.name


def ours(requirements: list[str]) -> set[str]:
    """The names of our distributions among the requirements."""
    names = {re.split(r"[^\w-]", requirement)[0] for requirement in requirements}
    return names & {project(folder)["name"] for folder in FOLDERS}


def test_there_are_five_distributions_of_one_version() -> None:
    assert len(FOLDERS) == 5
    assert len({project(folder)["version"] for folder in FOLDERS}) == 1


@each
def test_a_distribution_has_its_texts_and_says_that_it_is_typed(folder: Path) -> None:
    for name in ("README.md", "CHANGELOG.md", "LICENSE", f"src/{package(folder)}/py.typed"):
        assert (folder / name).is_file(), name
    assert (folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@each
def test_a_changelog_begins_with_the_version_that_the_distribution_has(folder: Path) -> None:
    text = (folder / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(r"^## (\S+)", text, re.MULTILINE)
    assert found is not None
    assert found[1] == project(folder)["version"]


@each
def test_only_the_core_is_depended_on_and_only_in_the_versions_that_share_its_contract(folder: Path) -> None:
    _, minor, _ = project(folder)["version"].split(".")
    wanted = [] if package(folder) == "hesape" else [f"hesape-core>=0.{minor},<0.{int(minor) + 1}"]
    assert [line for line in project(folder)["dependencies"] if ours([line])] == wanted


def test_constraints_are_bare_names_and_versions() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9A-Za-z.+!]*", line)] == []


def test_every_dependency_is_pinned_for_development() -> None:
    pinned = {normal(line.split("==")[0]) for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").split()}
    needed = {normal(re.split(r"[^\w.-]", line)[0]) for folder in FOLDERS for line in requirements(folder)}
    assert needed - pinned == ours(sorted(needed))


def requirements(folder: Path) -> list[str]:
    extras = project(folder).get("optional-dependencies", {}).values()
    return [*project(folder)["dependencies"], *itertools.chain.from_iterable(extras)]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("wheels")
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(to), *map(str, FOLDERS))
    return to


@each
def test_a_wheel_installs_alone_with_nothing_of_ours_but_what_it_names(
    folder: Path, wheels: Path, tmp_path: Path
) -> None:
    venv.create(tmp_path / "clean", with_pip=False)
    python = tmp_path / "clean" / "bin" / "python"
    name = project(folder)["name"]
    together = {name} | ours(project(folder)["dependencies"])
    files = [str(wheel) for each_name in together for wheel in wheels.glob(f"{each_name.replace('-', '_')}-*.whl")]
    pip("--python", str(python), "install", "--constraint", str(ROOT / "constraints.txt"), *files)

    asked = "import sys, importlib.metadata as m; import {0}; print({0}.__file__, *[d.name for d in m.distributions()])"
    where, *installed = run(str(python), "-I", "-c", asked.format(package(folder))).split()
    assert Path(where).is_relative_to(tmp_path)
    assert Path(where).with_name("py.typed").is_file()
    assert ours(installed) == together
    pip("--python", str(python), "check")


def pip(*arguments: str) -> None:
    run(sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments)


def run(*command: str) -> str:
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
