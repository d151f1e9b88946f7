"""E4: what is never shown."""

from __future__ import annotations

import logging
import pickle
import traceback
from typing import TYPE_CHECKING
from urllib.parse import quote

import attrs

from hesape import errors
from hesape.driver import Fact
from hesape_conformance.catalogue import rule
from hesape_conformance.harness import NoHost
from hesape_conformance.relay import Relay

if TYPE_CHECKING:
    from collections.abc import Collection

    from hesape_conformance.trial import Trial

MARKED = "s3cr3t-P4ssw0rd"


class _Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage() + (record.exc_text or "") + str(record.args))
        if record.exc_info:
            self.lines.append("".join(traceback.format_exception(*record.exc_info)))


@rule("E4", "The password is in no repr, error, traceback or log line, whether the store answers or not",
      facts=[Fact.NETWORKED])  # fmt: skip
def password(trial: Trial) -> None:
    secret = trial.harness.secret()
    assert secret, "a networked driver's harness names the password of its URL"
    forms = {secret, quote(secret), quote(secret, safe="")}
    heard = _Heard()
    logging.getLogger().addHandler(heard)
    level = logging.getLogger().level
    logging.getLogger().setLevel(logging.DEBUG)
    try:
        with Relay(("127.0.0.1", 9)) as relay:
            nobody = relay.endpoint
        shown = [*_texts(trial), trial.driver.ping()]
        settings = trial.harness.settings(trial.namespace, endpoint=nobody)
        wrong = attrs.evolve(settings, url=_with_another(settings.url, forms))
        refused = attrs.evolve(trial.settings, url=_with_another(trial.settings.url, forms))
        for each in (settings, wrong, refused):
            driver = trial.spec.open(each, NoHost())
            shown += [repr(driver), repr(each), str(each)]
            for call in (driver.ping, driver.queues):
                try:
                    call()
                except errors.HesapeError as error:
                    shown += ["".join(traceback.format_exception(error)), repr(error.__dict__), repr(error.args)]
                    shown.append(repr(pickle.dumps(error)))
            driver.close()
        shown += heard.lines
    finally:
        logging.getLogger().removeHandler(heard)
        logging.getLogger().setLevel(level)
    for text in shown:
        assert not any(form in text for form in forms), "the password is shown"
        assert MARKED not in text, "a password is shown"


def _with_another(url: str, forms: Collection[str]) -> str:
    """The URL with another password, however the true one is written in it."""
    for form in forms:
        url = url.replace(form, MARKED)
    assert MARKED in url, "the harness's secret isn't in its URL"
    return url


def _texts(trial: Trial) -> list[str]:
    return [
        repr(thing) for thing in (trial.driver, trial.queue, trial.settings, trial.spec, trial.queue.operator())
    ] + [
        str(trial.driver),
        str(trial.settings),
    ]


@rule("E4", "Neither a queue nor a driver nor its settings shows its URL")
def url(trial: Trial) -> None:
    address = trial.settings.url
    marked = attrs.evolve(trial.settings, url=f"x://user:{MARKED}@host/{address}", options={"password": MARKED})
    for text in (*_texts(trial), repr(marked), str(marked)):
        assert MARKED not in text
        assert not address or len(address) < 8 or address not in text, f"the URL is shown: {text}"


@rule("E4", "Settings that can't be used are refused without showing what they hold")
def bad_settings(trial: Trial) -> None:
    settings = attrs.evolve(trial.settings, options={**trial.settings.options, "no_such_option": MARKED})
    try:
        trial.spec.open(settings, NoHost()).ping()
    except errors.ConfigError as error:
        assert "no_such_option" in str(error)
        assert MARKED not in "".join(traceback.format_exception(error))
    else:
        message = "an unknown option was taken"
        raise AssertionError(message)
