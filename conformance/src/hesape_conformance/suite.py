"""The suite for an author's own tests: one file runs it, and its test ids are the rules'.

    import pytest
    from hesape_conformance.suite import *
    from hesape_mine.testing import MyHarness

    @pytest.fixture(scope="session")
    def hesape_harness():
        return MyHarness()

`HESAPE_CONFORMANCE_DEPTH` (quick, default, full) and `HESAPE_CONFORMANCE_SEED` set what the command's options set.
"""

from __future__ import annotations

import json
import os
import platform
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pytest

pytest.register_assert_rewrite(
    "hesape_conformance.rules", "hesape_conformance.sweep", "hesape_conformance.trial", "hesape_conformance.expect"
)

from hesape.driver import CONTRACT  # noqa: E402 - assertions must be rewritten before the checks are imported
from hesape_conformance import catalogue  # noqa: E402
from hesape_conformance.engine import Engine, Verdict  # noqa: E402
from hesape_conformance.harness import Harness, HarnessUnavailableError  # noqa: E402
from hesape_conformance.installed import owner_of  # noqa: E402
from hesape_conformance.sentences import ALL  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["hesape_engine", "test_rule"]

_RULES = catalogue.everything()


@pytest.fixture(scope="session")
def hesape_engine(hesape_harness: Harness) -> Iterator[Engine]:
    """The driver of the author's harness, started; without a server the run ends with code 4."""
    unknown = sorted(hesape_harness.known_failures.keys() - ALL.keys())
    if unknown:
        pytest.exit(f"known_failures names rules that don't exist: {', '.join(unknown)}", returncode=4)
    try:
        hesape_harness.start()
        depth = catalogue.Depth(os.environ.get("HESAPE_CONFORMANCE_DEPTH") or "default")
        yield Engine(hesape_harness, depth=depth, seed=int(os.environ.get("HESAPE_CONFORMANCE_SEED") or 0))
    except HarnessUnavailableError as error:
        pytest.exit(f"no harness: {error}", returncode=4)
    finally:
        hesape_harness.stop()


@pytest.mark.parametrize("rule_id", _RULES)
def test_rule(rule_id: str, hesape_engine: Engine, record_property: Callable[[str, object], None]) -> None:
    """One rule of the contract, or another part of the run: all its checks."""
    try:
        result = hesape_engine.rule(_RULES[rule_id])
    except (pytest.skip.Exception, pytest.xfail.Exception) as error:
        pytest.fail(f"{rule_id}: a part of it was skipped, and here nothing is: {error}", pytrace=False)
    record_property("hesape_run", json.dumps(about(hesape_engine)))
    record_property("hesape_result", json.dumps(result.as_data()))
    if result.verdict not in {Verdict.FAILED, Verdict.ERROR, Verdict.NOT_RUN}:
        return
    failures = [error for error in result.errors if isinstance(error, Exception)]
    if len(failures) == 1:
        failures[0].add_note(f"{rule_id} {result.verdict}: {result.rule.sentence}")
        raise failures[0]
    if failures:
        message = f"{rule_id} {result.verdict}: {result.rule.sentence}"
        raise ExceptionGroup(message, failures)
    pytest.fail(f"{rule_id} {result.verdict}: {result.detail}", pytrace=False)


def about(engine: Engine) -> dict[str, Any]:
    """What was tested, with what: for the report."""
    spec, (product, release) = engine.spec, engine.harness.server()
    distribution, distribution_version = owner_of(spec.name)
    return {
        "driver": {
            "name": spec.name,
            "distribution": distribution,
            "version": distribution_version,
            "contract": list(spec.contract),
            "capabilities": sorted(spec.capabilities),
            "facts": sorted(spec.facts),
            "kind": spec.kind,
        },
        "environment": {
            "server": f"{product} {release}",
            "python": platform.python_version(),
            "platform": f"{platform.system()}-{platform.machine()}".lower(),
        },
        "suite": {
            "version": version("hesape-conformance"),
            "core": version("hesape-core"),
            "contract": list(CONTRACT),
            "catalogue": catalogue.digest(),
            "rules": len(_RULES),
        },
        "depth": engine.depth.value,
        "seed": engine.seed,
        "known_failures": dict(engine.harness.known_failures),
    }
