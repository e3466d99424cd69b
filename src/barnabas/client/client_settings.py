"""What a client has to know of a cluster before it connects, read from options under the names that Kafka users know.

    ClientSettings.from_options({"bootstrap.servers": "one:9092,two:9092", "client.id": "report"})

The Java client and librdkafka call some things by different names; both are understood, and a value is given once. A
value that cannot be right is a `SettingsError` before anything is connected. A name that nothing here acts on is kept
in `unused`, for the caller to warn of: Kafka's own clients do the same, as one set of options often serves several
programs.

Settings are plain values: they are compared, hashed and pickled, because they travel to the tasks of a pipeline and
find the connections there that were made with the same settings before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.client.option_reader import Options, SettingsError
from barnabas.client.security import SecuritySettings, security_of

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Address", "ClientSettings", "SettingsError"]

_ADDRESS: Final = re.compile(r"(?:\w+://)?(?:\[(?P<ipv6>[^\]]+)\]|(?P<host>[^:\s\[\]]+)):(?P<port>\d{1,5})")
_PORT_MAX: Final = 65_535


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class ClientSettings:
    """How to reach a cluster, and how long to try."""

    bootstrap_servers: tuple[Address, ...]
    client_id: str = "barnabas"
    request_timeout_ms: int = 30_000
    """How long one request may wait for its answer."""
    default_api_timeout_ms: int = 60_000
    """How long one call may take with all its tries."""
    connection_setup_timeout_ms: int = 10_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    at_controllers: bool = False
    """Whether the bootstrap servers are controllers: they answer what an administrator asks, and lead no topic."""
    security: SecuritySettings = field(default_factory=SecuritySettings)
    unused: tuple[str, ...] = field(default=(), compare=False)
    """Options that were given and mean nothing to a client of this kind."""

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> ClientSettings:
        """Settings from options without a `kafka.` before their names."""
        return cls.taken_from(Options(options))

    @classmethod
    def taken_from(cls, taken: Options) -> ClientSettings:
        """The same, for a caller who wants to know which options there are."""
        return cls(
            bootstrap_servers=_addresses(taken),
            client_id=taken.text("client.id") or cls.client_id,
            request_timeout_ms=taken.positive(
                "request.timeout.ms", "socket.timeout.ms", default=cls.request_timeout_ms
            ),
            default_api_timeout_ms=taken.positive("default.api.timeout.ms", default=cls.default_api_timeout_ms),
            connection_setup_timeout_ms=taken.positive(
                "socket.connection.setup.timeout.ms", default=cls.connection_setup_timeout_ms
            ),
            retry_backoff_ms=taken.positive("retry.backoff.ms", default=cls.retry_backoff_ms),
            retry_backoff_max_ms=taken.positive("retry.backoff.max.ms", default=cls.retry_backoff_max_ms),
            security=security_of(taken),
            unused=taken.unused(),
        )


def _addresses(options: Options) -> tuple[Address, ...]:
    name, text = options.first("bootstrap.servers", "metadata.broker.list")
    if text is None:
        raise SettingsError("bootstrap.servers", "is missing: it says where the cluster is, as host:port[,host:port…]")
    addresses = tuple(_address(name, part.strip()) for part in text.split(",") if part.strip())
    if not addresses:
        raise SettingsError(name, "is empty: it says where the cluster is, as host:port[,host:port…]")
    return addresses


def _address(name: str, text: str) -> Address:
    found = _ADDRESS.fullmatch(text)
    if found is None or not 0 < int(found["port"]) <= _PORT_MAX:
        raise SettingsError(name, f"has {text!r}, which is no host:port (an IPv6 address stands in brackets)")
    return Address(found["ipv6"] or found["host"], int(found["port"]))
