r"""The envelope: the bytes of a job that are written once, at push, and never again.

Version 1 is three parts, divided by the first two newlines:

    hesape1 KEY SEAL \n          KEY and SEAL are `-` when it isn't sealed
    ["id", "tenant", "action", "author", "name", "display name", "queue", {attributes}] \n
    the payload's bytes as they are

The header is compact JSON, so it holds no newline. SEAL is the hexadecimal HMAC-SHA256, under the application's key of
that id, of `hesape1 KEY\n` and everything after the first line (G8). Two envelopes hold the same content when what
follows the first line is equal once decoded: neither version, nor key, nor seal is content (I1).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

import attrs

from hesape.attributes import Attributes
from hesape.errors import ConfigError, HesapeError, TamperedError, UnreadableError

if TYPE_CHECKING:
    from collections.abc import Mapping

ENVELOPE: Final = 1
"""The number of the stored format. It moves apart from the drivers' CONTRACT (N3)."""
_MAGIC: Final = b"hesape1"
_UNSEALED: Final = b"hesape1 - -"
_KEY_ID = re.compile(r"[A-Za-z0-9._]{1,32}")
_MIN_SECRET: Final = 16
_HEADER_FIELDS: Final = 8
_decode_header = json.JSONDecoder().decode
_TEXT_ONLY: Final = {str}
_encode_header = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _check_keys(instance: Keys, attribute: attrs.Attribute[Mapping[str, bytes]], secrets: Mapping[str, bytes]) -> None:
    for key_id, secret in secrets.items():
        if not _KEY_ID.fullmatch(key_id):
            message = f"signing key id {key_id!r}: expected 1 to 32 of A-Z, a-z, 0-9, '.' and '_'"
            raise ConfigError(message)
        if not isinstance(secret, bytes) or len(secret) < _MIN_SECRET:
            message = f"the signing key {key_id!r} is too short: expected at least {_MIN_SECRET} bytes"
            raise ConfigError(message)


@attrs.frozen(kw_only=True)
class Keys:
    """The application's signing keys: one that seals, and those that are still read (G8)."""

    secrets: Mapping[str, bytes] = attrs.field(factory=dict, repr=False, validator=_check_keys)
    """Every key by its id, the sealing one among them."""
    sealing: str = attrs.field(default="")
    """The id of the key that new envelopes are sealed with; empty: they aren't sealed."""
    accept_unsealed: bool = False
    """Run records without a seal although keys are set, as while sealing is being introduced."""

    def __attrs_post_init__(self) -> None:
        """Refuse to seal with a key that isn't there."""
        if self.sealing and self.sealing not in self.secrets:
            message = (
                f"the sealing key {self.sealing!r} isn't among the signing keys ({', '.join(self.secrets) or 'none'})"
            )
            raise ConfigError(message)

    def __bool__(self) -> bool:
        """Whether any key is set."""
        return bool(self.secrets)


NO_KEYS: Final = Keys()


class Content(NamedTuple):
    """What an envelope holds."""

    id: str
    tenant: str
    action: str
    authorized_by: str
    name: str
    display_name: str
    queue: str
    attributes: Attributes
    payload: bytes


def encode(content: Content, keys: Keys = NO_KEYS) -> bytes:
    """The stored bytes of `content`, sealed when `keys` name a sealing key."""
    parts = _encode_header(content.id).encode(), _alike(*content[1:7]), content.attributes.encode().encode()
    body = b"[%b,%b,%b]\n%b" % (*parts, content.payload)
    if not keys.sealing:
        return b"%b\n%b" % (_UNSEALED, body)
    key_id = keys.sealing.encode()
    return b"%b %b %b\n%b" % (_MAGIC, key_id, _seal(keys.secrets[keys.sealing], key_id, body), body)


@lru_cache(1024)
def _alike(*fields: str) -> bytes:
    """What the headers of an application's jobs share, between id and attributes: few, and encoded once each."""
    return _encode_header(fields)[1:-1].encode()


def decode(envelope: bytes, keys: Keys = NO_KEYS) -> Content:
    """Read stored bytes and check their seal.

    Raises `TamperedError` for what nobody wrote in this form and for a wrong or missing seal, `UnreadableError` for
    what another key or a newer version may read.
    """
    frame, _, body = envelope.partition(b"\n")
    if frame == _UNSEALED:
        if keys and not keys.accept_unsealed:
            message = (
                "the record isn't sealed, and this application runs sealed records only ([signing] accept_unsealed)"
            )
            raise TamperedError(message)
    else:
        _check_seal(frame, body, keys)
    return _read(body)


def content_of(envelope: bytes) -> Content:
    """What an envelope holds, whatever its seal says: for bytes that this process has just encoded itself."""
    return _read(envelope.partition(b"\n")[2])


def same_content(stored: bytes, new: bytes) -> bool:
    """Whether two envelopes hold the same content, whatever their version and seals (I1)."""
    try:
        return content_digest(stored) == content_digest(new)
    except HesapeError:
        return False


def content_digest(envelope: bytes) -> bytes:
    """The SHA-256 of the canonical content of an envelope, without version, key id and seal (I1)."""
    content = content_of(envelope)
    return hashlib.sha256(encode(content).partition(b"\n")[2]).digest()


def _seal(secret: bytes, key_id: bytes, body: bytes) -> bytes:
    return hmac.digest(secret, b"%b %b\n%b" % (_MAGIC, key_id, body), "sha256").hex().encode()


def _check_seal(frame: bytes, body: bytes, keys: Keys) -> None:
    magic, _, rest = frame.partition(b" ")
    key_id, _, seal = rest.partition(b" ")
    if magic != _MAGIC:
        if re.fullmatch(rb"hesape[0-9]{1,4}", magic):
            message = f"the record has the envelope version {magic[6:].decode()}, this hesape reads up to {ENVELOPE}"
            raise UnreadableError(message)
        message = f"the record isn't an envelope: it begins with {frame[:16]!r}"
        raise TamperedError(message)
    secret = keys.secrets.get(key_id.decode(errors="replace"))
    if secret is None:
        held = ", ".join(sorted(keys.secrets)) or "none"
        message = f"the record is sealed with the key {key_id[:32]!a}, which isn't configured here (configured: {held})"
        raise UnreadableError(message)
    if not hmac.compare_digest(seal, _seal(secret, key_id, body)):
        message = f"the record's seal under the key {key_id.decode()!r} is wrong: it was changed after it was pushed"
        raise TamperedError(message)


def _read(body: bytes) -> Content:
    header, _, payload = body.partition(b"\n")
    try:
        fields = _decode_header(header.decode())
        if not (isinstance(fields, list) and len(fields) >= _HEADER_FIELDS and isinstance(fields[7], dict)):
            raise TypeError(_NOT_HEADER)  # noqa: TRY301 - one place says what is wrong with a header
        if set(map(type, fields[:7])) != _TEXT_ONLY:
            raise TypeError(_NOT_HEADER)  # noqa: TRY301
        attributes = Attributes.from_dict(fields[7])
    except (ValueError, TypeError, RecursionError, OverflowError, HesapeError) as error:
        message = f"the record's header can't be read: {type(error).__name__}: {error}"
        raise TamperedError(message) from error
    return Content._make((*fields[:7], attributes, payload))


_NOT_HEADER = f"expected a list of {_HEADER_FIELDS} fields"
