from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import hesape
from hesape.app import load_app
from hesape.config import single
from hesape.errors import ActionMismatchError, ConfigError, HandlerError, HandlerUnknownError
from hesape.testing import FakeJob

_numbers = count()


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Write a module into the working directory and return its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(source: str) -> str:
        name = f"jobs_{next(_numbers)}"
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(source))
        return name

    return write


# Configuration.


def test_an_app_finds_its_configuration_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HESAPE_CONNECTION", raising=False)
    (tmp_path / "hesape.toml").write_text("[connections.main]\nurl = 'memory://'")
    monkeypatch.chdir(tmp_path)
    assert hesape.App().connection().name == "main"
    assert hesape.App(tmp_path / "hesape.toml").connection() is not hesape.App(tmp_path).connection()


def test_an_app_says_at_once_what_is_wrong_in_its_file(tmp_path: Path) -> None:
    (tmp_path / "hesape.toml").write_text("conections = 3")
    with pytest.raises(ConfigError, match=r"hesape\.toml: conections: unknown key; did you mean 'connections'\?"):
        hesape.App(tmp_path)


def test_an_app_takes_keys_instead_of_those_of_the_file() -> None:
    keys = hesape.Keys(secrets={"k": b"0123456789abcdef"}, sealing="k")
    app = hesape.App(single("memory://"), keys=keys)
    assert app.connection().keys is app.keys is keys


def test_an_app_s_repr_has_no_url() -> None:
    assert repr(hesape.App(single("redis://:hush@h"))) == "<App connect(), 0 handlers>"


# Running a job here and now.


def test_run_calls_the_handler_under_the_job_s_own_grant_inside_its_middleware() -> None:
    app = hesape.App(single("memory://"))
    seen: list[object] = []

    def around(name: str) -> Any:
        def middleware(job: hesape.Job, step: Callable[[], object]) -> object:
            seen.append(name)
            return step()

        return middleware

    @app.handler("x", middleware=[around("own")])
    def handler(grant: hesape.Grant, n: int) -> None:
        job = hesape.current_job()
        assert job is not None
        seen.extend([n, grant.tenant, job.id, hesape.current_grant() is grant])

    app.middleware.append(around("app"))
    job = FakeJob("x", "acme", {"n": 3})
    app.run(job)
    assert seen == ["app", "own", 3, "acme", job.id, True]
    assert (hesape.current_job(), hesape.current_grant()) == (None, None)


def test_run_awaits_a_coroutine_and_lets_its_error_out() -> None:
    app = hesape.App(single("memory://"))

    @app.handler("x")
    async def handler() -> None:
        raise KeyError("from the handler")

    with pytest.raises(KeyError, match="from the handler"):
        app.run(FakeJob("x", "acme"))
    assert hesape.current_job() is None


def test_run_refuses_an_unknown_name_and_another_action() -> None:
    app = hesape.App(single("memory://"))
    app.handler("x", action="y")(lambda: None)
    with pytest.raises(HandlerUnknownError):
        app.run(FakeJob("z", "acme"))
    with pytest.raises(ActionMismatchError, match="the job's action is 'x', its handler 'x' runs under 'y'"):
        app.run(FakeJob("x", "acme"))


# Loading MODULE:ATTRIBUTE.


def test_an_app_is_loaded_from_the_working_directory(module: Any) -> None:
    name = module("import hesape\nclass made: app = hesape.App()\napp = made.app")
    assert load_app(f"{name}:app") is load_app(f"{name}:made.app")


@pytest.mark.parametrize("reference", ["jobs", ":app", "jobs:", ""])
def test_a_reference_of_another_shape_shows_the_right_one(reference: str) -> None:
    with pytest.raises(ConfigError, match=r"expected MODULE:ATTRIBUTE, such as jobs:app"):
        load_app(reference)


def test_a_module_that_is_not_there_is_named_with_the_place(module: Any, tmp_path: Path) -> None:
    module("")
    with pytest.raises(ConfigError) as caught:
        load_app("no_such_jobs.inner:app")
    assert str(caught.value) == (
        f"--app no_such_jobs.inner:app: no module named 'no_such_jobs' in {tmp_path} or installed"
    )


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("import no_such_client", "ModuleNotFoundError: No module named 'no_such_client' ({file}, line 1)"),
        ("\n1 / 0", "ZeroDivisionError: division by zero ({file}, line 2)"),
        ("raise SystemExit(3)", "SystemExit: 3 ({file}, line 1)"),
        ("def (", "SyntaxError: invalid syntax ({name}.py, line 1)"),
    ],
)
def test_a_module_whose_import_fails_says_why_and_where(module: Any, tmp_path: Path, source: str, text: str) -> None:
    name = module(source)
    with pytest.raises(ConfigError) as caught:
        load_app(f"{name}:app")
    expected = text.format(file=tmp_path / f"{name}.py", name=name)
    assert str(caught.value) == f"--app {name}:app: importing {name!r} failed: {expected}"


def test_an_attribute_that_is_missing_or_no_app_names_the_apps_that_are_there(module: Any) -> None:
    name = module("import hesape\napplication = hesape.App()\nother = 3")
    with pytest.raises(ConfigError) as caught:
        load_app(f"{name}:aplication")
    assert (
        str(caught.value)
        == f"--app {name}:aplication: module {name!r} has no 'aplication'; did you mean 'application'?"
    )
    with pytest.raises(ConfigError) as caught:
        load_app(f"{name}:other")
    assert str(caught.value).endswith("has a int there, expected a hesape.App (Apps there: application)")


def test_handlers_that_can_never_be_filled_are_found_when_the_app_is_loaded(module: Any) -> None:
    name = module("import hesape\napp = hesape.App()\n@app.handler('x')\ndef x(ids: set[int]): ...")
    with pytest.raises(HandlerError, match=r"parameter ids: set\[int\] has no exact JSON form"):
        load_app(f"{name}:app")
