"""Properties of Java's clients, as people give them to Kafka's tools, in librdkafka's terms.

    rdkafka_settings({"linger.ms": "5", "max.request.size": "2000000"}, PRODUCER)

What Java's clients would refuse is refused in their words. A property that librdkafka has no match for is left out:
most of those tune how Java's client goes about its work, and Kafka, too, says nothing of names that it does not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.cli.kafka.flags import read_int, read_long
from barnabas.cli.kafka.tool import ToolError
from barnabas.client.jaas import OPTION as JAAS
from barnabas.client.option_reader import Options, SettingsError
from barnabas.client.security import OAUTHBEARER, security_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.client.security import Pem, SaslSettings, TlsSettings

INT: Final = "INT"
LONG: Final = "LONG"
BOOLEAN: Final = "BOOLEAN"
STRING: Final = "STRING"
_INT_MAX: Final = (1 << 31) - 1


class Property(NamedTuple):
    """One of Java's properties: its type and range there, and what it is called here."""

    kind: str
    names: tuple[str, ...] = ()
    """What librdkafka calls it; more than one name where it has made several things of it, none if it has no match."""
    at_least: int | None = None
    """What Java's clients refuse anything below of."""
    within: tuple[int, int] = (0, _INT_MAX)
    """What librdkafka takes; a number that is beyond becomes the nearest."""
    one_of: tuple[str, ...] = ()


COMMON: Final[dict[str, Property]] = {
    "client.dns.lookup": Property(STRING, ("client.dns.lookup",)),
    "client.id": Property(STRING, ("client.id",)),
    "connections.max.idle.ms": Property(LONG, ("connections.max.idle.ms",)),
    "metadata.max.age.ms": Property(
        LONG, ("metadata.max.age.ms", "topic.metadata.refresh.interval.ms"), at_least=0, within=(10, 3_600_000)
    ),
    "receive.buffer.bytes": Property(INT, ("socket.receive.buffer.bytes",), at_least=-1, within=(0, 100_000_000)),
    "reconnect.backoff.max.ms": Property(LONG, ("reconnect.backoff.max.ms",), at_least=0, within=(0, 3_600_000)),
    "reconnect.backoff.ms": Property(LONG, ("reconnect.backoff.ms",), at_least=0, within=(0, 3_600_000)),
    "request.timeout.ms": Property(INT, ("socket.timeout.ms",), at_least=0, within=(10, 300_000)),
    "retry.backoff.max.ms": Property(LONG, ("retry.backoff.max.ms",), at_least=0, within=(1, 300_000)),
    "retry.backoff.ms": Property(LONG, ("retry.backoff.ms",), at_least=0, within=(1, 300_000)),
    "send.buffer.bytes": Property(INT, ("socket.send.buffer.bytes",), at_least=-1, within=(0, 100_000_000)),
    "socket.connection.setup.timeout.ms": Property(
        LONG, ("socket.connection.setup.timeout.ms",), within=(1_000, _INT_MAX)
    ),
}

PRODUCER: Final[dict[str, Property]] = {
    **COMMON,
    "acks": Property(STRING, ("acks",), one_of=("all", "-1", "0", "1")),
    "batch.size": Property(INT, ("batch.size",), at_least=0, within=(1, _INT_MAX)),
    "buffer.memory": Property(LONG, (), at_least=0),
    "compression.gzip.level": Property(INT),
    "compression.type": Property(STRING, ("compression.type",), one_of=("none", "gzip", "snappy", "lz4", "zstd")),
    "delivery.timeout.ms": Property(INT, ("delivery.timeout.ms",), at_least=0, within=(1, _INT_MAX)),
    "enable.idempotence": Property(BOOLEAN, ("enable.idempotence",)),
    "linger.ms": Property(LONG, ("linger.ms",), at_least=0, within=(0, 900_000)),
    "max.block.ms": Property(LONG, (), at_least=0),
    "max.in.flight.requests.per.connection": Property(
        INT, ("max.in.flight.requests.per.connection",), at_least=1, within=(1, 1_000_000)
    ),
    "max.request.size": Property(INT, (), at_least=0),
    "request.timeout.ms": Property(INT, ("request.timeout.ms",), at_least=0, within=(1, 900_000)),
    "retries": Property(INT, ("message.send.max.retries",), at_least=0),
    "transaction.timeout.ms": Property(INT, ("transaction.timeout.ms",), within=(1_000, _INT_MAX)),
    "transactional.id": Property(STRING, ("transactional.id",)),
}

CONSUMER: Final[dict[str, Property]] = {
    **COMMON,
    "allow.auto.create.topics": Property(BOOLEAN, ("allow.auto.create.topics",)),
    "auto.commit.interval.ms": Property(INT, ("auto.commit.interval.ms",), at_least=0, within=(0, 86_400_000)),
    "auto.offset.reset": Property(STRING),
    "check.crcs": Property(BOOLEAN, ("check.crcs",)),
    "client.rack": Property(STRING, ("client.rack",)),
    "default.api.timeout.ms": Property(INT, (), at_least=0),
    "enable.auto.commit": Property(BOOLEAN, ("enable.auto.commit",)),
    "exclude.internal.topics": Property(BOOLEAN),
    "fetch.max.bytes": Property(INT, ("fetch.max.bytes",), at_least=0),
    "fetch.max.wait.ms": Property(INT, ("fetch.wait.max.ms",), at_least=0, within=(0, 300_000)),
    "fetch.min.bytes": Property(INT, ("fetch.min.bytes",), at_least=0, within=(1, 100_000_000)),
    "group.id": Property(STRING, ("group.id",)),
    "group.instance.id": Property(STRING, ("group.instance.id",)),
    "group.protocol": Property(STRING, ("group.protocol",)),
    "group.remote.assignor": Property(STRING, ("group.remote.assignor",)),
    "heartbeat.interval.ms": Property(INT, ("heartbeat.interval.ms",), within=(1, 3_600_000)),
    "isolation.level": Property(STRING, ("isolation.level",), one_of=("read_committed", "read_uncommitted")),
    "max.partition.fetch.bytes": Property(INT, ("max.partition.fetch.bytes",), at_least=0, within=(1, 1_000_000_000)),
    "max.poll.interval.ms": Property(INT, ("max.poll.interval.ms",), at_least=1, within=(1, 86_400_000)),
    "max.poll.records": Property(INT, (), at_least=1),
    "partition.assignment.strategy": Property(STRING),
    "session.timeout.ms": Property(INT, ("session.timeout.ms",), within=(1, 3_600_000)),
}
_CONSUMER_PROTOCOL_LACKS: Final = ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy")
"""The broker decides on these in groups of KIP-848, and the client refuses them."""

_ASSIGNORS: Final = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}
_QUIET: Final = {"log_level": 0}
"""librdkafka's own log is for its developers."""


def rdkafka_settings(properties: Mapping[str, str], known: Mapping[str, Property]) -> dict[str, Any]:
    """What a client of librdkafka is made with."""
    settings: dict[str, Any] = {"bootstrap.servers": properties["bootstrap.servers"], **_QUIET}
    is_consumer_protocol = properties.get("group.protocol", "").lower() == "consumer"
    for name, text in properties.items():
        if name not in known or (is_consumer_protocol and name in _CONSUMER_PROTOCOL_LACKS):
            continue
        value = value_of(name, text, known[name])
        settings.update(dict.fromkeys(known[name].names, value))
    settings.update(_assignors(properties, is_consumer_protocol))
    return settings | _security(properties)


def value_of(name: str, text: str, known: Property) -> str | int | bool:
    """The value of a property, as librdkafka takes it; ToolError with Java's words for one that cannot be."""
    text = text.strip()
    if known.kind == BOOLEAN:
        if text.lower() not in ("true", "false"):
            raise config_error(name, text, "Expected value to be either true or false")
        return text.lower() == "true"
    if known.kind == STRING:
        if known.one_of and text not in known.one_of:
            raise config_error(name, text, f"String must be one of: {', '.join(known.one_of)}")
        return text
    try:
        number = read_int(text) if known.kind == INT else read_long(text)
    except ValueError:
        raise config_error(name, text, f"Not a number of type {known.kind}") from None
    if known.at_least is not None and number < known.at_least:
        raise config_error(name, text, f"Value must be at least {known.at_least}")
    return min(max(number, known.within[0]), known.within[1])


def config_error(name: str, value: str, problem: str) -> ToolError:
    return ToolError(
        f"org.apache.kafka.common.config.ConfigException: Invalid value {value} for configuration {name}: {problem}"
    )


def _assignors(properties: Mapping[str, str], is_consumer_protocol: bool) -> dict[str, str]:
    text = properties.get("partition.assignment.strategy")
    if text is None or is_consumer_protocol:
        return {}
    names = [_ASSIGNORS.get(each.strip(), each.strip()) for each in text.split(",")]
    for name in names:
        if name not in _ASSIGNORS.values():
            raise ToolError(
                "org.apache.kafka.common.KafkaException: Failed to construct kafka consumer",
                hint=f"{name} is no assignor that is there: {', '.join(_ASSIGNORS)}",
            )
    # The two ways of changing hands do not go together; Java's client falls back to the first as well.
    eager = [name for name in names if name != "cooperative-sticky"]
    return {"partition.assignment.strategy": ",".join(eager or names)}


def _security(properties: Mapping[str, str]) -> dict[str, Any]:
    try:
        security = security_of(Options(properties))
    except SettingsError as error:
        raise ToolError(str(error)) from None
    settings: dict[str, Any] = {}
    if "security.protocol" in properties:
        settings["security.protocol"] = properties["security.protocol"].strip().lower()
    if security.tls is not None:
        settings |= _tls(security.tls)
    if security.sasl is not None:
        settings |= _sasl(security.sasl)
    return settings


def _tls(tls: TlsSettings) -> dict[str, Any]:
    return {
        **_pem("ssl.ca", tls.ca),
        **_pem("ssl.certificate", tls.certificate),
        **_pem("ssl.key", tls.key),
        **({} if tls.key_password is None else {"ssl.key.password": tls.key_password}),
        "enable.ssl.certificate.verification": tls.verifies_certificate,
        "ssl.endpoint.identification.algorithm": "https" if tls.verifies_host_name else "none",
    }


def _pem(name: str, pem: Pem | None) -> dict[str, str]:
    if pem is None:
        return {}
    if pem.location is not None:
        return {f"{name}.location": pem.location}
    return {f"{name}.pem": pem.text or ""}


def _sasl(sasl: SaslSettings) -> dict[str, Any]:
    if sasl.mechanism == OAUTHBEARER:
        raise ToolError(f"{JAAS}: tokens are not supported by this tool: log in with a user and a password")
    return {"sasl.mechanism": sasl.mechanism, "sasl.username": sasl.username, "sasl.password": sasl.password}
