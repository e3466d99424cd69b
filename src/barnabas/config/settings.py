"""The table of every broker, topic and group setting, read from `settings.tsv`.

The columns of the file are: scope, name, type, default (`null` for none, `(required)` if it must be set), valid
values, the update mode of a broker setting or the broker synonyms of any other (highest precedence first), flags
(`acts`: this version acts on it; `internal`: not shown unless set; `dynamic-only`: not in a properties file), and
documentation. When a setting takes effect in this version, its row gets the flag `acts` and a line of documentation.
"""

import functools
import os
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from barnabas.config.values import ConfigError, ConfigType, Value, check_value, parse_value

__all__ = [
    "BROKER",
    "CLUSTER_WIDE",
    "GROUP",
    "PER_BROKER",
    "READ_ONLY",
    "TOPIC",
    "ConfigError",
    "ConfigType",
    "Setting",
    "broker_setting",
    "did_you_mean",
    "listener_base",
]

READ_ONLY = "read-only"
PER_BROKER = "per-broker"
CLUSTER_WIDE = "cluster-wide"

NOT_ACTING = "Accepted, but without effect in this version."


class Setting:
    """One setting. Broker settings have an `update_mode`; others may have `synonyms` among the broker settings."""

    __slots__ = (
        "acts",
        "default_text",
        "documentation",
        "dynamic_only",
        "internal",
        "name",
        "required",
        "synonyms",
        "type",
        "update_mode",
        "valid",
    )

    def __init__(self, scope: str, columns: list[str]) -> None:
        name, type_name, default, valid, update_or_synonyms, flags, documentation = columns
        is_broker = scope == "broker"
        self.name = name
        self.type = ConfigType[type_name]
        self.required = default == "(required)"
        self.default_text = default
        self.valid = valid
        self.update_mode = update_or_synonyms if is_broker else ""
        self.synonyms = tuple(update_or_synonyms.split(",")) if update_or_synonyms and not is_broker else ()
        self.acts = "acts" in flags
        self.dynamic_only = "dynamic-only" in flags
        self.internal = "internal" in flags
        self.documentation = documentation if documentation and self.acts else NOT_ACTING

    @property
    def default(self) -> Value:
        """The default value, or None if there is none."""
        return _default_value(self)

    @property
    def is_sensitive(self) -> bool:
        """Whether the value is a secret that must not appear in responses or logs."""
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str) -> Value:
        """The value of `text`. Raises `ConfigError` if it has the wrong type or is out of range."""
        value = parse_value(self.name, self.type, text)
        check_value(self.name, value, self.valid)
        return value

    def __repr__(self) -> str:
        return f"Setting({self.name}, {self.type.name}, default={self.default!r})"


@functools.cache
def _default_value(setting: Setting) -> Value:
    if setting.required or setting.default_text == "null":
        return None
    return parse_value(setting.name, setting.type, setting.default_text)


def _read_table() -> dict[str, dict[str, Setting]]:
    path = os.path.join(os.path.dirname(__file__), "settings.tsv")
    with open(path, encoding="utf-8") as file:
        rows = file.read().splitlines()
    column_count = rows[0].count("\t") + 1
    table: dict[str, dict[str, Setting]] = {"broker": {}, "topic": {}, "group": {}}
    for row in rows[1:]:
        columns = row.split("\t")
        columns += [""] * (column_count - len(columns))
        setting = Setting(columns[0], columns[1:])
        table[columns[0]][setting.name] = setting
    return table


_TABLE = _read_table()
BROKER: Mapping[str, Setting] = MappingProxyType(_TABLE["broker"])
TOPIC: Mapping[str, Setting] = MappingProxyType(_TABLE["topic"])
GROUP: Mapping[str, Setting] = MappingProxyType(_TABLE["group"])


_LISTENER_PREFIX = "listener.name."
_OF_A_MECHANISM = (
    "connections.max.reauth.ms",
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
)


def listener_base(name: str) -> str | None:
    """The SETTING in `listener.name.LISTENER.[MECHANISM.]SETTING`; None for any other name."""
    if not name.startswith(_LISTENER_PREFIX):
        return None
    base = name[len(_LISTENER_PREFIX) :].partition(".")[2]
    return next((setting for setting in _OF_A_MECHANISM if base.endswith(setting)), base)


def broker_setting(name: str) -> Setting | None:
    """The broker setting that `name` refers to, with or without a listener prefix; None if there is none."""
    return BROKER.get(listener_base(name) or name)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`"; did you mean …?"` with the closest valid name, or an empty string if none is close."""
    import difflib  # Takes longer to import than all of the configuration, and is needed only for typos.

    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    return f"; did you mean {nearest[0]}?" if nearest else ""
