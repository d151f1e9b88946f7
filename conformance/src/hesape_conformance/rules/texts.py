"""P4, P5: the text of errors, and names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hesape import errors
from hesape_conformance.catalogue import rule
from hesape_conformance.expect import raises
from hesape_conformance.rules.forgery import DOORS, pusher
from hesape_conformance.trial import OTHER_TENANT, READ, TENANT, attributes

if TYPE_CHECKING:
    from hesape_conformance.trial import Trial

MAX_ERROR = 16 * 1024

WORDS = ("emails", "Emails", "EMAILS", "e", "e.", "e-", "e_", "a:b", "a/b", "a:b:c", "0", "x" * 128, "X" * 128)
BAD_WORDS = (
    "a b",
    "emails ",
    " emails",
    "emails\n",
    "é",
    "a\0",
    "a%s",
    "a'b",
    "a*",
    "a{b}",
    "\uff21",
    "x" * 129,
    7,
    None,
)
TEXTS = (
    "job",
    "Job",
    "JOB",
    "job ",
    "jöb",
    "job%s%(x)s$1?",
    "'; DROP TABLE hesape_jobs; --",
    'a"b`c[d]',
    "\\' OR 1=1",
    "{job}*?[a-z]",
    "漢字🦊",
    "straße",
    "STRASSE",
    "n" * 255,
    "🦊" * 255,
)
BAD_TEXTS = ("a\nb", "a\0b", "tab\t", "\u2028", "\ud800", "n" * 256, "🦊" * 256, "\x7f", 7, b"job")


class _UnprintableError(Exception):
    def __str__(self) -> str:
        message = "no message either"
        raise ValueError(message)


CAUSES: tuple[Any, ...] = (
    ValueError("plain"),
    ValueError("\0\0"),
    ValueError("lone \ud800 surrogate"),
    ValueError("🦊" * 20_000),
    ValueError("x" * 100_000),
    ValueError("first line\n" + "middle\n" * 10_000 + "the end"),
    ValueError(),
    _UnprintableError(),
    KeyError(b"\xff"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
    ExceptionGroup("many", [ValueError("é"), TypeError("\0")]),
    SystemExit(3),
    "text: only",
    "",
    "'; DROP TABLE hesape_jobs; -- %s $1 ?",
    "e\u0301 \ufffe \uffff \U0010ffff",
)


@rule("P4", "Any error can be stored, in at most 16 KiB of valid text")
def any_error(trial: Trial) -> None:
    for cause in CAUSES:
        job = trial.taken()
        job.fail(cause)
        stored = trial.row(job)["last_error"]
        assert stored is not None
        assert len(stored.encode()) <= MAX_ERROR
        assert "\0" not in stored
        assert trial.queue.find(trial.grant(action=READ), job.id).last_error == stored
        if isinstance(cause, BaseException):
            assert stored.startswith(type(cause).__name__)


@rule("P4", "A release keeps the same text, and it comes back with the next delivery")
def released_error(trial: Trial) -> None:
    for cause in CAUSES:
        job = trial.taken()
        job.last_error = cause if isinstance(cause, str) else f"{type(cause).__name__}: {cause.args!s}"
        job.exceptions = 1
        job.release()
        stored = trial.row(job)["last_error"]
        assert stored is not None
        assert len(stored.encode()) <= MAX_ERROR
        assert trial.take().last_error == stored


def _break(message: str) -> None:
    raise ConnectionError(message)


@rule(
    "P4", "The form is class and message, a blank line, the traceback; of a long text the first line and the tail stay"
)
def form(trial: Trial) -> None:
    job = trial.taken()
    try:
        _break("broken pipe to é")
    except ConnectionError as error:
        job.fail(error)
    stored = trial.row(job)["last_error"] or ""
    head, blank, *trace = stored.split("\n")
    assert (head, blank) == ("ConnectionError: broken pipe to é", "")
    assert trace[0].startswith("Traceback")
    assert "raise ConnectionError(message)" in stored
    for size in range(MAX_ERROR - 4, MAX_ERROR + 5):
        job = trial.taken()
        text = "First: line\n" + "é" * ((size - 12) // 2) + "." * (size % 2)
        job.fail(text)
        stored = trial.row(job)["last_error"] or ""
        assert stored.startswith("First: line\n")
        assert stored.endswith(text[-100:])
        assert (stored == text) == (len(text.encode()) <= MAX_ERROR)


@rule("P5", "Queue names are compared exactly: case, length and every character count")
def exact_queues(trial: Trial) -> None:
    jobs = {word: trial.push({"q": word}, queue=word) for word in WORDS}
    assert trial.queue.queues() == sorted(WORDS)
    for word in WORDS:
        assert trial.tally(word) == (1, 0, 0, 0)
        found = trial.queue.pop(word, n=len(WORDS))
        assert [job.id for job in found] == [jobs[word].id], word
        assert found[0].queue == word
        found[0].fail("Boom")
    for word in WORDS:
        failed = trial.queue.failed(trial.grant(action=READ), queue=word)
        assert [job.id for job in failed] == [jobs[word].id], word


@rule("P5", "A queue or an action that isn't such a word is refused at push, at pop, and with the character")
def bad_words(trial: Trial) -> None:
    for word in BAD_WORDS:
        wrong: Any = word
        said = [ascii(word[1])] if word in {"a b", "a\0", "a*"} and isinstance(word, str) else []
        with raises(errors.NameInvalidError):
            trial.grant(action=wrong)
        if word is not None:
            with raises(errors.NameInvalidError, *said):
                trial.job(queue=wrong)
        with raises(errors.NameInvalidError, *said):
            trial.queue.push_on(trial.grant(), wrong, trial.job())
        for call in (trial.queue.counts, trial.queue.operator().pause, trial.queue.operator().clear):
            with raises(errors.NameInvalidError):
                call(wrong)
        with raises(errors.NameInvalidError, *said):
            trial.queue.pop([wrong, "default"] if word is not None else ["a b"])
        for door in DOORS:
            job = trial.job()
            job.queue = wrong
            if word is not None and door != "push_on":
                with raises(errors.NameInvalidError):
                    pusher(trial.queue, trial.grant(), door)(job)
    assert trial.rows() == {}


@rule("P5", "Job names and display names of any printable text are kept exactly")
def texts(trial: Trial) -> None:
    for text in TEXTS:
        job = trial.push(name=text, display_name=text)
        row = trial.row(job)
        assert row["name"] == text
        found = trial.take()
        assert (found.id, found.name, found.display_name) == (job.id, text, text)
        found.fail("Boom")
        shown = trial.queue.find(trial.grant(action=READ), job.id)
        assert (shown.name, shown.display_name, shown.problem) == (text, text, "")


@rule("P5", "Names that aren't printable or too long are refused, also when written on the job afterwards")
def bad_texts(trial: Trial) -> None:
    for text in BAD_TEXTS:
        wrong: Any = text
        with raises(errors.NameInvalidError):
            trial.job(name=wrong)
        with raises(errors.NameInvalidError):
            trial.job(display_name=wrong)
        for door in DOORS:
            for field in ("name", "display_name"):
                job = trial.job()
                setattr(job, field, wrong)
                with raises(errors.NameInvalidError):
                    pusher(trial.queue, trial.grant(), door)(job)
    assert trial.rows() == {}


@rule("P5", "Joined keys never collide")
def joined_keys(trial: Trial) -> None:
    lasting = [
        (TENANT, attributes(unique_for=60, unique_key="b:c")),
        ("a", attributes(unique_for=60, unique_key="b:c")),
        (f"{TENANT}-b", attributes(unique_for=60, unique_key="c")),
        (OTHER_TENANT, attributes(unique_for=60, unique_key="B:c")),
        (TENANT, attributes(unique_for=60, unique_key="b:C")),
        (TENANT, attributes(unique_for=60, unique_key="b:c ")),
    ]
    for tenant, wanted in lasting:
        trial.push(tenant=tenant, attributes=wanted)
    for tenant, wanted in lasting:
        with raises(errors.AlreadyQueuedError):
            trial.push(tenant=tenant, attributes=wanted)
    assert len(trial.rows()) == len(lasting)
    for key in ("a:b", "a", "b", "A:b", "a:b ", "é", "lock:x", "x" * 5000):
        assert trial.queue.lock(key, 60, owner="me").take(), key
        assert trial.queue.counter(key, 60).add() == 1, key
        assert trial.queue.flag(key, 60).value() is None, key
        trial.queue.flag(key, 60).set(key[:200])
    assert trial.queue.flag("a:b", 60).value() == "a:b"
    assert not trial.queue.lock("a:b", 60, owner="you").take()


@rule("P5", "Attributes come back exactly, up to 4 KiB encoded, and more is refused at push")
def encoded_attributes(trial: Trial) -> None:
    full = attributes(
        tries=-1,
        backoff=(0.0, 1.5, 60.0),
        timeout=-1.0,
        max_exceptions=3,
        fail_on_timeout=True,
        unique_for=60.0,
        unique_key="🦊 'key' %s",
        wraps="Übung",
    )
    trial.push(attributes=full)
    assert trial.take().attributes == full
    roomy = attributes(backoff=[float(n) for n in range(600)])
    trial.push(attributes=roomy)
    assert trial.take().attributes == roomy
    with trial.unchanged(), raises(errors.AttributesInvalidError, "4096"):
        trial.push(attributes=attributes(backoff=[float(n) for n in range(1000)]))
