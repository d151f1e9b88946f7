"""Secrets stay out of everything that is shown: output, errors, logs, reprs (E4)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

if TYPE_CHECKING:
    from hesape.config import ConnectionSettings

_WORDS: Final = "pass|pwd|secret|token|key|credential"
_SECRET_NAME = re.compile(_WORDS, re.IGNORECASE)
_SECRET_PAIR = re.compile(rf"([\w.-]*(?:{_WORDS})[\w.-]*)(\s*=\s*)('[^']*'|[^&\s]*)", re.IGNORECASE)
_MASKED: Final = "***"


def mask(url: str) -> str:
    """A URL or connection string with its password replaced, whatever else may be wrong with it (E4)."""
    scheme, slashes, rest = url.partition("://")
    if not slashes:
        return _SECRET_PAIR.sub(rf"\1\2{_MASKED}", url)
    if "@" in rest:
        user, place = _split_user(rest)
        name, colon, _ = user.partition(":")
        rest = f"{name}{colon}{_MASKED if colon else ''}@{place}"
    return scheme + slashes + _SECRET_PAIR.sub(rf"\1\2{_MASKED}", rest)


def masked(name: str, value: Any) -> Any:
    """An option's value as it may be shown."""
    if isinstance(value, list):
        return [masked(name, entry) for entry in value]
    if isinstance(value, dict):
        return {key: masked(key, entry) for key, entry in value.items()}
    if _SECRET_NAME.search(name):
        return _MASKED
    return mask(value) if isinstance(value, str) else value


def scrub(text: str, settings: ConnectionSettings) -> str:
    """Somebody else's text without the secrets of a connection (E4)."""
    found = text.replace(settings.url, mask(settings.url)) if settings.url else text
    for secret in _secrets(settings):
        found = found.replace(secret, _MASKED)
    return found


def _secrets(settings: ConnectionSettings) -> list[str]:
    texts = [pair.group(3).strip("'") for pair in _SECRET_PAIR.finditer(settings.url)]
    if "@" in settings.url:
        texts.append(_split_user(settings.url.partition("://")[2])[0].partition(":")[2])
    texts += [str(value) for name, value in settings.options.items() if _SECRET_NAME.search(name)]
    decoded = [unquote(text) for text in texts]
    return sorted({text for text in texts + decoded if text}, key=len, reverse=True)


def _split_user(rest: str) -> tuple[str, str]:
    """User info and the rest. A password with a bare `/`, `?` or `@` ends at the last `@` before the parameters."""
    before, question, query = rest.rpartition("?")
    if question and "@" in before and "@" not in query.partition("=")[0]:
        user, _, place = before.rpartition("@")
        return user, f"{place}?{query}"
    user, _, place = rest.rpartition("@")
    return user, place
