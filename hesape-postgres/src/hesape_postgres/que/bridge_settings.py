"""The settings of a bridge: `driver = "que"`, `url`, and under whose name the table's jobs run."""

from __future__ import annotations

from typing import Final

import attrs

from hesape import names
from hesape.config import ConnectionSettings
from hesape.errors import ConfigError, NameInvalidError
from hesape.jobs import DEFAULT_QUEUE
from hesape_postgres.settings import Settings

_OWN: Final = ("tenant", "action", "queue")
_SHARED: Final = ("connect_timeout", "statement_timeout", "lock_timeout")


@attrs.frozen(kw_only=True)
class BridgeSettings:
    """Which rows a bridge works, and the tenant and the action that their jobs run under."""

    postgres: Settings
    queue: str
    """The queue's name in the table; Que's default is the empty one."""
    tenant: str
    action: str

    @property
    def shown(self) -> str:
        """The queue's name in hesape, where none is empty."""
        return self.queue or DEFAULT_QUEUE


def read_settings(settings: ConnectionSettings) -> BridgeSettings:
    """Read a connection's settings; `ConfigError` without a tenant and an action.

    The rows don't say who enqueued them, so nobody may run them unless the configuration says for whom and as what.
    """
    where = f"connection {settings.name!r}"
    options = dict(settings.options)
    own = {name: options.pop(name, "") for name in _OWN}
    for name in ("tenant", "action"):
        if not own[name]:
            message = f"{where}: {name} isn't set: the jobs of a Que table run under a tenant and an action of yours"
            raise ConfigError(message)
    unknown = sorted(options.keys() - set(_SHARED))
    if unknown:
        known = ", ".join((*_OWN, *_SHARED))
        raise ConfigError(f"{where}: unknown option {unknown[0]!r}; the que driver has {known}")
    try:
        names.check_tenant(own["tenant"])
        names.check_action(own["action"])
        if own["queue"] != "":
            names.check_queue(own["queue"])
    except NameInvalidError as error:
        raise ConfigError(f"{where}: {error}") from error
    url = settings.url.replace("que://", "postgresql://", 1) if settings.url.startswith("que://") else settings.url
    return BridgeSettings(postgres=Settings.read(attrs.evolve(settings, url=url, options=options)), **own)
