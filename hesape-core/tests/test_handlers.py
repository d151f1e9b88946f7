from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import attrs
import pytest

import hesape
from hesape import Attributes, Grant, Job, system_grant
from hesape.config import single
from hesape.errors import (
    ActionMismatchError,
    ArgumentsMismatchError,
    HandlerError,
    HandlerUnknownError,
    NoTenantError,
    PayloadInvalidError,
)
from hesape.handlers import Handler, Registry
from hesape.testing import FakeJob

if TYPE_CHECKING:
    from nowhere import Unknown  # type: ignore[import-not-found]


@attrs.frozen
class Line:
    price: Decimal
    count: int


@pytest.fixture
def app() -> Iterator[hesape.App]:
    app = hesape.App(single("memory://"))
    yield app
    app.close()


def run(handler: Handler[..., Any], payload: object) -> Any:
    job = FakeJob(handler.name, "acme", payload)
    return handler.bind(job, hesape.grant_for(job))()


def do_nothing() -> None:
    """A handler without parameters."""


SEND = system_grant("invoice.send", "acme")


# What a decorated function is.


def test_a_decorated_function_stays_callable_as_itself(app: hesape.App) -> None:
    @app.handler("invoice.send")
    def send(job: Job, invoice_id: int) -> tuple[str, int]:
        """Send it."""
        return job.name, invoice_id

    assert send(FakeJob("invoice.send", "acme"), invoice_id=42) == ("invoice.send", 42)
    assert (vars(send)["__name__"], send.__doc__, send.is_async) == ("send", "Send it.", False)


def test_a_handler_s_action_is_its_name_unless_it_says_otherwise(app: hesape.App) -> None:
    assert app.handler("invoice.send")(lambda: None).action == "invoice.send"
    assert app.handler("SendInvoice", action="invoice.send")(lambda: None).action == "invoice.send"


def test_a_name_that_can_not_be_an_action_asks_for_one(app: hesape.App) -> None:
    with pytest.raises(HandlerError, match=r"handler 'Send it': action 'Send it': .*; its name is no action, so set"):
        app.handler("Send it")


def test_attributes_are_the_fields_of_attributes(app: hesape.App) -> None:
    handler = app.handler("x", tries=5, backoff=(1, timedelta(seconds=10)), queue="mail")(lambda: None)
    assert handler.attributes == Attributes(tries=5, backoff=(1, 10), queue="mail")


def test_an_unknown_attribute_names_the_nearest(app: hesape.App) -> None:
    with pytest.raises(HandlerError, match=r"handler 'x': no setting 'trys'; did you mean 'tries'\? \(known: tries, "):
        app.handler("x", trys=5)  # type: ignore[call-arg]


def test_an_attribute_out_of_range_names_the_handler(app: hesape.App) -> None:
    with pytest.raises(HandlerError, match=r"handler 'x': backoff \(-1\.0,\): a delay can't be negative"):
        app.handler("x", backoff=-1)


def test_a_decorator_without_a_name_says_what_to_write(app: hesape.App) -> None:
    with pytest.raises(HandlerError, match=r'a handler needs a name: write @app\.handler\("invoice\.send"\)'):
        app.handler(lambda: None)  # type: ignore[arg-type]


def test_a_name_that_is_taken_names_both_functions(app: hesape.App) -> None:
    app.handler("x")(test_a_decorator_without_a_name_says_what_to_write)
    with pytest.raises(HandlerError, match=r"handler 'x' is registered twice, by .*without_a_name.* and .*<lambda>"):
        app.handler("x")(lambda: None)


@pytest.mark.parametrize("function", [lambda *args: None, lambda **kwargs: None], ids=["args", "kwargs"])
def test_open_ended_parameters_are_refused(app: hesape.App, function: Callable[..., None]) -> None:
    with pytest.raises(HandlerError, match=r"handler 'x': \*+\w+ can't be filled from a payload; name each parameter"):
        app.handler("x")(function)


# Finding.


def test_a_handler_is_found_by_the_exact_name_then_by_the_part_before_the_at() -> None:
    registry = Registry()
    plain, exact = (Handler(do_nothing, name, "a") for name in ("SendInvoice", "SendInvoice@later"))
    registry.add(plain)
    registry.add(exact)
    assert registry.find("SendInvoice") is plain
    assert registry.find("SendInvoice@handle") is plain
    assert registry.find("SendInvoice@later") is exact


def test_an_unknown_job_names_the_nearest_and_all_that_are_registered() -> None:
    registry = Registry()
    with pytest.raises(HandlerUnknownError, match=r"^no handler for the job 'x' \(registered: none\)$"):
        registry.find("x")
    registry.add(Handler(do_nothing, "invoice.send", "a"))
    registry.add(Handler(do_nothing, "b", "a"))
    with pytest.raises(HandlerUnknownError) as caught:
        registry.find("invoice.sned")
    assert str(caught.value) == (
        "no handler for the job 'invoice.sned'; did you mean 'invoice.send'? (registered: b, invoice.send)"
    )


# Binding.


def test_job_and_grant_are_injected_by_annotation_and_the_rest_comes_from_the_payload(app: hesape.App) -> None:
    @app.handler("x")
    def handler(number: int, job: Job, *, grant: Grant, when: datetime, note: str = "none") -> tuple[Any, ...]:
        return number, job.tenant, grant.action, when, note

    when = datetime(2026, 3, 1, tzinfo=UTC)
    assert run(handler, {"when": "2026-03-01T00:00:00+00:00", "number": 3}) == (3, "acme", "x", when, "none")


def test_an_optional_job_is_injected_too(app: hesape.App) -> None:
    @app.handler("x")
    def handler(number: int, job: Job | None = None) -> bool:
        return isinstance(job, Job)

    assert run(handler, {"number": 1}) is True
    assert handler(1) is False


def test_parameters_without_annotation_take_json_as_it_is(app: hesape.App) -> None:
    @app.handler("x")
    def handler(a, b=2):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        return a, b

    assert run(handler, {"a": {"k": [1.0]}}) == ({"k": [1.0]}, 2)


def test_an_array_fills_parameters_by_position(app: hesape.App) -> None:
    @app.handler("x")
    def handler(job: Job, a: int, b: str = "b") -> tuple[int, str]:
        return a, b

    assert run(handler, [1]) == (1, "b")
    assert run(handler, [1, "c"]) == (1, "c")


def test_positional_only_parameters_are_filled(app: hesape.App) -> None:
    @app.handler("x")
    def handler(a: int = 1, b: int = 2, /) -> tuple[int, int]:
        return a, b

    assert run(handler, {"b": 3}) == (1, 3)


MISFITS: list[tuple[object, str]] = [
    ({}, "missing invoice_id"),
    ({"invoice_id": 1, "invoiceId": 1, "x": 2}, "unexpected invoiceId, x"),
    ({"invoice_id": "42"}, "invoice_id: expected int, found str"),
    ({"lines": [{"price": "1", "count": True}]}, "missing invoice_id; lines[0].count: expected int, found bool"),
    ([], "missing invoice_id"),
    ([1, [], 3], "3 values for 2 parameters"),
    ("text", "the payload is str, expected an object or an array"),
]


@pytest.mark.parametrize(("payload", "problem"), MISFITS)
def test_a_payload_that_does_not_fit_names_everything_that_is_wrong(
    app: hesape.App, payload: object, problem: str
) -> None:
    @app.handler("invoice.send")
    def handler(job: Job, invoice_id: int, lines: list[Line] | None = None) -> None: ...

    job = FakeJob("invoice.send", "acme", payload)
    with pytest.raises(ArgumentsMismatchError) as caught:
        handler.bind(job, hesape.grant_for(job))
    assert str(caught.value) == f"job {job.id} doesn't fit handler 'invoice.send': {problem}"


def test_coroutine_functions_are_known_also_behind_a_decorator(app: hesape.App) -> None:
    def twice(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def both(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return both

    @app.handler("x")
    @twice
    async def handler(number: int) -> int:
        return number

    assert handler.is_async
    assert asyncio.run(run(handler, {"number": 3})) == 3


def test_annotations_that_exist_for_the_type_checker_alone_are_explained(app: hesape.App) -> None:
    @app.handler("x")
    def handler(thing: Unknown) -> None: ...

    with pytest.raises(HandlerError) as caught:
        app.handlers.check()
    assert str(caught.value) == (
        "handler 'x': its annotations can't be resolved: NameError: name 'Unknown' is not defined; "
        "import what they name at run time, not under TYPE_CHECKING"
    )


def test_a_parameter_without_an_exact_form_is_named(app: hesape.App) -> None:
    @app.handler("x")
    def handler(ids: set[int]) -> None: ...

    with pytest.raises(HandlerError, match=r"handler 'x': parameter ids: set\[int\] has no exact JSON form"):
        handler.push(system_grant("x", "acme"), ids={1})


# Pushing.


def test_push_stores_what_the_handler_will_read(app: hesape.App) -> None:
    @app.handler("invoice.send", tries=7)
    def send(job: Job, invoice: UUID, lines: list[Line], due: datetime, note: str | None = None) -> tuple[Any, ...]:
        return invoice, lines, due, note

    arguments = {
        "invoice": UUID("0190a5c8-1f2e-7abc-8def-0123456789ab"),
        "lines": [Line(Decimal("1.10"), 2)],
        "due": datetime(2026, 3, 1, tzinfo=UTC),
    }
    pushed = send.push(SEND, **arguments)
    (job,) = app.connection().pop()
    assert (job.id, job.payload, job.attributes) == (pushed.id, pushed.payload, Attributes(tries=7))
    assert send.bind(job, hesape.grant_for(job))() == (*arguments.values(), None)


def test_later_waits_by_the_store_s_clock(app: hesape.App) -> None:
    handler = app.handler("invoice.send")(lambda: None)
    handler.later(SEND, timedelta(minutes=5))
    assert app.connection().counts().delayed == 1


def test_a_payload_key_may_have_any_name(app: hesape.App) -> None:
    @app.handler("invoice.send")
    def send(grant: str, delay: int, self: int, queue: str) -> None: ...

    job = send.later(SEND, 0, grant="g", delay=1, self=2, queue="q")
    assert job.decode() == {"grant": "g", "delay": 1, "self": 2, "queue": "q"}


def test_using_keeps_settings_apart_from_the_payload(app: hesape.App) -> None:
    @app.handler("invoice.send", tries=5, timeout=9)
    def send(queue: str) -> None: ...

    job = send.using(
        queue="high",
        priority=3,
        attributes=Attributes(tries=2),
        display_name="Invoice",
        id="0190a5c8-1f2e-7abc-8def-0123456789ab",
        run_at=datetime(2026, 3, 1, tzinfo=UTC),
    ).push(SEND, queue="payload")
    assert (job.queue, job.priority, job.display_name, job.decode()) == ("high", 3, "Invoice", {"queue": "payload"})
    assert job.id == "0190a5c8-1f2e-7abc-8def-0123456789ab"
    assert job.run_at == datetime(2026, 3, 1, tzinfo=UTC)
    assert job.attributes == Attributes(tries=2, timeout=9)


def test_the_registered_queue_is_used_unless_the_push_names_one(app: hesape.App) -> None:
    handler = app.handler("invoice.send", queue="mail")(lambda: None)
    assert handler.push(SEND).queue == "mail"
    assert handler.using(attributes=Attributes(queue="low")).push(SEND).queue == "low"
    assert handler.using(queue="high").push(SEND).queue == "high"


def test_job_builds_what_a_bulk_takes(app: hesape.App) -> None:
    @app.handler("invoice.send")
    def send(invoice_id: int) -> None: ...

    stored = app.connection().bulk(SEND, [send.job(SEND, invoice_id=number) for number in (1, 2)])
    assert [job.decode() for job in stored] == [{"invoice_id": 1}, {"invoice_id": 2}]


def test_a_grant_for_another_action_is_refused_before_anything_is_stored(app: hesape.App) -> None:
    @app.handler("invoice.send", action="invoice.write")
    def send(invoice_id: int) -> None: ...

    for push in (send.push, send.job, send.using(queue="x").push, functools.partial(send.later, SEND, 3)):
        arguments = (SEND,) if not isinstance(push, functools.partial) else ()
        with pytest.raises(ActionMismatchError) as caught:
            push(*arguments, invoice_id="wrong too")
        assert str(caught.value) == (
            "handler 'invoice.send' runs under the action 'invoice.write', the grant is for 'invoice.send'"
        )
    assert app.connection().counts().size == 0


def test_a_grant_that_nobody_issued_is_refused(app: hesape.App) -> None:
    handler = app.handler("invoice.send")(lambda: None)
    with pytest.raises(NoTenantError):
        handler.push(object.__new__(Grant))


def test_arguments_that_do_not_fit_are_refused_before_anything_is_stored(app: hesape.App) -> None:
    @app.handler("invoice.send")
    def send(invoice_id: int, note: str = "") -> None: ...

    with pytest.raises(ArgumentsMismatchError) as caught:
        send.push(SEND, invoiceid=1, note=3)
    assert str(caught.value) == (
        "handler 'invoice.send': missing invoice_id; unexpected invoiceid; note: expected str, found int"
    )
    assert app.connection().counts().size == 0


def test_what_is_not_json_is_refused_where_json_is_taken_as_it_is(app: hesape.App) -> None:
    @app.handler("invoice.send")
    def send(anything: Any) -> None: ...

    with pytest.raises(PayloadInvalidError, match="set isn't JSON"):
        send.push(SEND, anything={1})


def test_a_handler_outside_an_app_can_be_called_but_not_pushed() -> None:
    handler = Handler(do_nothing, "invoice.send", "invoice.send")
    with pytest.raises(HandlerError, match=r"handler 'invoice\.send' belongs to no App"):
        handler.push(SEND)
