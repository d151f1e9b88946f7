"""The stored bytes of a job: read back exactly, sealed as a whole, compared by content (G8, I1, N3)."""

from __future__ import annotations

import pytest

from hesape.attributes import Attributes
from hesape.envelope import Content, Keys, content_digest, decode, encode, same_content
from hesape.errors import ConfigError, TamperedError, UnreadableError

CONTENT = Content(
    "0195a000-0000-7000-8000-000000000000",
    "acme",
    "invoice.send",
    "anna",
    "invoice.send",
    'Send \\ "invoice" é😀',
    "high",
    Attributes(tries=3, backoff=(1, 10)),
    b'{"a":"\n"}\n\n',
)
OLD, NEW = b"o" * 16, b"n" * 32
KEYS = Keys(secrets={"new": NEW, "old": OLD}, sealing="new")


@pytest.mark.parametrize("keys", [Keys(), KEYS])
def test_what_is_encoded_is_decoded(keys: Keys) -> None:
    assert decode(encode(CONTENT, keys), keys) == CONTENT


def test_version_one_is_these_bytes_for_good() -> None:
    plain = Content(*CONTENT[:5], "", "default", Attributes(tries=1), b"{}")
    assert encode(plain) == (
        b"hesape1 - -\n"
        b'["0195a000-0000-7000-8000-000000000000","acme","invoice.send","anna","invoice.send","","default",{"tries":1}]\n'
        b"{}"
    )
    assert encode(plain, Keys(secrets={"k": b"0123456789abcdef"}, sealing="k")).partition(b"\n")[0] == (
        b"hesape1 k 7dfbae78ca0263754450ab0683b67c05044403f9fe58ba7efce08f7ac495aaad"
    )


def test_each_changed_byte_breaks_the_seal() -> None:
    sealed = encode(CONTENT, KEYS)
    for position in range(len(sealed)):
        changed = bytearray(sealed)
        changed[position] ^= 1
        with pytest.raises((TamperedError, UnreadableError)):
            decode(bytes(changed), KEYS)


def test_a_seal_does_not_move_to_another_key_id() -> None:
    with pytest.raises(TamperedError, match="seal"):
        decode(encode(CONTENT, KEYS).replace(b"hesape1 new", b"hesape1 old"), KEYS)


def test_an_old_key_still_reads() -> None:
    sealed = encode(CONTENT, Keys(secrets={"old": OLD}, sealing="old"))
    assert decode(sealed, KEYS) == CONTENT


def test_an_unknown_key_and_no_key_are_no_tampering() -> None:
    sealed = encode(CONTENT, KEYS)
    for keys in (Keys(), Keys(secrets={"other": OLD}, sealing="other")):
        with pytest.raises(UnreadableError, match="'new'"):
            decode(sealed, keys)


def test_a_newer_version_is_no_tampering() -> None:
    with pytest.raises(UnreadableError, match="version 2"):
        decode(encode(CONTENT).replace(b"hesape1", b"hesape2", 1))


def test_an_unsealed_record_is_refused_where_keys_are_set_unless_accepted() -> None:
    with pytest.raises(TamperedError, match="isn't sealed"):
        decode(encode(CONTENT), KEYS)
    assert decode(encode(CONTENT), Keys(secrets={"new": NEW}, sealing="new", accept_unsealed=True)) == CONTENT


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"hesape1 - -\n",
        b"hesape1 - -\n{}\n{}",
        b"hesape1 - -\n[]\n{}",
        b'hesape1 - -\n["a","b","c","d","e","f","g"]\n{}',
        b'hesape1 - -\n["a","b","c","d","e","f",7,{}]\n{}',
        b'hesape1 - -\n["a","b","c","d","e","f","g",[]]\n{}',
        b'hesape1 - -\n["a","b","c","d","e","f","g",{"tries":"x"}]\n{}',
        b'hesape1 - -\n["a","b","c","d","e","f","g",{"retry_until":1e99}]\n{}',
        b'hesape1 - -\n["a","b","c","d","e","f","g",{"backoff":5,"timeout":null}]\n{}',
        b"hesape1 - -\n" + b"[" * 20_000,
        b"hesape1 - -\n\xff\n{}",
        b"hesape1 a\nb",
        b"INSERT INTO",
        b"\0" * 40,
    ],
)
def test_what_nobody_wrote_is_tampering_and_nothing_else_escapes(data: bytes) -> None:
    with pytest.raises((TamperedError, UnreadableError)):
        decode(data)


def test_content_is_compared_without_version_key_and_seal() -> None:
    plain, sealed = encode(CONTENT), encode(CONTENT, KEYS)
    resealed = encode(CONTENT, Keys(secrets={"old": OLD}, sealing="old"))
    assert same_content(plain, sealed)
    assert same_content(sealed, resealed)
    assert content_digest(plain.replace(b"hesape1", b"hesape9", 1)) == content_digest(plain)
    changed = [
        CONTENT._replace(tenant="b"),
        CONTENT._replace(queue="low"),
        CONTENT._replace(payload=b"{}"),
        CONTENT._replace(attributes=Attributes()),
    ]
    for other in changed:
        assert not same_content(plain, encode(other))
    assert not same_content(b"rubbish", plain)


@pytest.mark.parametrize(
    "wrong",
    [
        {"secrets": {"a b": NEW}},
        {"secrets": {"": NEW}},
        {"secrets": {"k": b"short"}},
        {"secrets": {"k": NEW}, "sealing": "other"},
    ],
)
def test_keys_that_cannot_work_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        Keys(**wrong)  # type: ignore[arg-type]


def test_secrets_are_not_shown() -> None:
    assert "nnnn" not in repr(KEYS)
