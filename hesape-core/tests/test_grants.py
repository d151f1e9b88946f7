"""A grant proves a decision, and nothing else can stand in for one (G1, G3)."""

from __future__ import annotations

import copy
import gc
import pickle
from enum import StrEnum

import pytest

import hesape
from hesape import grants


class Answers:
    """A policy that gives one answer and remembers that it was asked."""

    def __init__(self, answer: object) -> None:
        self.answer = answer
        self.asked = 0

    def can(self, subject: hesape.Subject, action: str, resource: object) -> bool:
        self.asked += 1
        return self.answer  # type: ignore[return-value]  # other answers are the test


ANNA = hesape.Subject(id="anna", tenant="acme", roles=["clerk"])


def test_a_policy_that_says_yes_gives_a_grant_of_subject_action_and_tenant() -> None:
    grant = hesape.authorize(Answers(answer=True), ANNA, "invoice.send")
    assert (grant.subject, grant.action, grant.tenant) == (ANNA, "invoice.send", "acme")
    grant.check("invoice.send")


@pytest.mark.parametrize("answer", [False, None, 1, "yes", object()])
def test_any_answer_but_true_refuses(answer: object) -> None:
    with pytest.raises(hesape.ForbiddenError, match=r"anna.*acme.*invoice\.send"):
        hesape.authorize(Answers(answer), ANNA, "invoice.send")


def test_a_policy_that_raises_gives_no_grant() -> None:
    class Broken:
        def can(self, *_: object) -> bool:
            raise RuntimeError("no database")

    with pytest.raises(RuntimeError):
        hesape.authorize(Broken(), ANNA, "invoice.send")


@pytest.mark.parametrize("subject", [hesape.Subject(id="", tenant="acme"), None, "anna"])
def test_without_a_subject_the_policy_is_not_asked(subject: object) -> None:
    policy = Answers(answer=True)
    with pytest.raises(hesape.ForbiddenError, match="without a subject"):
        hesape.authorize(policy, subject, "invoice.send")  # type: ignore[arg-type]
    assert policy.asked == 0


@pytest.mark.parametrize("tenant", ["", "Acme", "a b", "-a", "a\n", "ä", "a" * 65, "a:b", "a/b", None, 7])
def test_a_tenant_outside_its_form_is_refused_where_the_grant_is_made(tenant: str) -> None:
    with pytest.raises(hesape.NameInvalidError, match="tenant"):
        hesape.system_grant("invoice.send", tenant)
    with pytest.raises(hesape.NameInvalidError):
        hesape.authorize(Answers(answer=True), hesape.Subject(id="anna", tenant=tenant), "invoice.send")


@pytest.mark.parametrize("tenant", ["a", "7", "acme-1_x", "a" * 64])
def test_a_tenant_of_its_form_is_accepted(tenant: str) -> None:
    assert hesape.system_grant("invoice.send", tenant).tenant == tenant


def test_a_system_grant_is_of_the_system() -> None:
    assert hesape.system_grant("invoice.send", "acme").subject.id == "system"


def test_a_check_for_another_action_names_both() -> None:
    with pytest.raises(hesape.ForbiddenError, match=r"invoice\.view.*invoice\.send"):
        hesape.system_grant("invoice.view", "acme").check("invoice.send")


def test_a_grant_cannot_be_built_subclassed_copied_or_pickled() -> None:
    grant = hesape.system_grant("invoice.send", "acme")
    with pytest.raises(hesape.ForgedError):
        hesape.Grant("acme")  # type: ignore[arg-type]
    with pytest.raises(hesape.ForgedError):
        type("Mine", (hesape.Grant,), {})
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(hesape.ForgedError):
            attempt(grant)


def test_a_rebuilt_grant_has_no_tenant_and_passes_no_check() -> None:
    rebuilt = object.__new__(hesape.Grant)
    assert (rebuilt.tenant, rebuilt.action, rebuilt.subject.id) == ("", "", "")
    with pytest.raises(hesape.ForbiddenError, match="not issued"):
        rebuilt.check("invoice.send")
    with pytest.raises(hesape.ForbiddenError):
        rebuilt.check("")


def test_a_genuine_grant_has_nothing_that_can_be_altered() -> None:
    grant = hesape.system_grant("invoice.send", "acme")
    for field in ("tenant", "action", "subject", "_tenant", "anything"):
        with pytest.raises(AttributeError):
            object.__setattr__(grant, field, "evil")
    object.__setattr__(grant.subject, "tenant", "evil")
    assert grant.tenant == "acme"


def test_what_imitates_a_grant_has_no_facts() -> None:
    class Imitation:
        tenant, action, subject = "acme", "invoice.send", ANNA

    assert grants.facts(Imitation()) == ("", "", "")


def test_an_enum_as_action_and_tenant_is_taken_by_its_text() -> None:
    class Action(StrEnum):
        SEND = "invoice.send"

    grant = hesape.system_grant(Action.SEND, "acme")
    assert type(grant.action) is str


def test_a_text_that_compares_as_it_likes_is_taken_by_its_characters() -> None:
    class Chameleon(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 0

        def __str__(self) -> str:
            return "evil"

    grant = hesape.system_grant(Chameleon("invoice.view"), Chameleon("acme"))
    assert (type(grant.tenant), grant.tenant) == (str, "acme")
    with pytest.raises(hesape.ForbiddenError):
        grant.check("invoice.send")


def test_a_grant_that_is_gone_leaves_nothing_behind() -> None:
    def held() -> int:
        return sum(type(thing) is hesape.Grant for thing in gc.get_objects())

    gc.collect()
    before = held()
    for _ in range(1000):
        hesape.system_grant("invoice.send", "acme")
    assert held() == before


def test_the_representation_names_the_facts() -> None:
    assert repr(hesape.system_grant("invoice.send", "acme")) == "<Grant invoice.send for acme by system>"
    assert repr(object.__new__(hesape.Grant)) == "<Grant: not issued>"
