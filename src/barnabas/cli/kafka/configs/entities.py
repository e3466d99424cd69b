"""What `kafka-configs` is about: the types and names that its flags say, in the old way and in the new one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from barnabas.cli.kafka.flags import Given

TOPICS: Final = "topics"
CLIENTS: Final = "clients"
USERS: Final = "users"
BROKERS: Final = "brokers"
IPS: Final = "ips"
CLIENT_METRICS: Final = "client-metrics"
GROUPS: Final = "groups"
BROKER_LOGGERS: Final = "broker-loggers"

TYPES: Final = (TOPICS, CLIENTS, USERS, BROKERS, IPS, CLIENT_METRICS, GROUPS, BROKER_LOGGERS)
WITH_DEFAULTS: Final = (USERS, CLIENTS, BROKERS, IPS)
"""For which there are defaults, which are settings of an entity without a name."""
THE_DEFAULT: Final = ""

NAME_FLAGS: Final = {
    "topic": TOPICS,
    "client": CLIENTS,
    "user": USERS,
    "broker": BROKERS,
    "broker-logger": BROKER_LOGGERS,
    "ip": IPS,
    "client-metrics": CLIENT_METRICS,
    "group": GROUPS,
}
DEFAULT_FLAGS: Final = {
    "client-defaults": CLIENTS,
    "user-defaults": USERS,
    "broker-defaults": BROKERS,
    "ip-defaults": IPS,
}


class Entities(NamedTuple):
    """Types, and the names that go with them; there may be fewer of those."""

    types: list[str]
    names: list[str]

    @property
    def type(self) -> str:
        """The one that decides what is done."""
        return self.types[0]

    @property
    def name(self) -> str | None:
        return self.names[0] if self.names else None

    @property
    def has_name(self) -> bool:
        return any(self.names)

    @property
    def has_default(self) -> bool:
        return THE_DEFAULT in self.names


def entities_in(given: Given) -> Entities:
    types, names = given.texts("entity-type"), []
    named = iter(given.texts("entity-name"))
    for flag in given.order:
        if flag == "entity-name":
            names.append(next(named))
        elif flag == "entity-default":
            names.append(THE_DEFAULT)
    for flag, kind in NAME_FLAGS.items():
        if given.has(flag):
            types.append(kind)
            names.append(given.required(flag))
    for flag, kind in DEFAULT_FLAGS.items():
        if given.has(flag):
            types.append(kind)
            names.append(THE_DEFAULT)
    return Entities(types, names)


def singular(kind: str) -> str:
    return kind[:-1]
