"""The clients that push metrics, and what each of them is asked for: decisions from values, and time comes in.

A *client instance* is a client as it knows itself: it asks for its subscription under an id that it was given, and
pushes metrics under that id and the *subscription id*, which stands for what was asked of it. All subscriptions that
match the client are put together. When any of them changes, the client is as if new, and what it pushes under the old
subscription id is refused, so that it asks again.

A client may ask, and push, once in an interval. The first push after it has asked may come sooner, as clients spread
their first pushes, and so may its last one. One that was told that its subscription has changed may ask at once.

What is remembered of clients is limited in number and time, and ends with their connections.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple
from weakref import ref

from crc32c import crc32c

from barnabas.config.client_metrics import DEFAULT_INTERVAL_MS, Subscription, parse_subscription
from barnabas.protocol.compression import Codec
from barnabas.protocol.config_resources import ResourceType
from barnabas.protocol.errors import Error, KafkaError
from barnabas.protocol.uuids import ZERO_UUID, Uuid, to_text

if TYPE_CHECKING:
    from collections.abc import Collection

    from barnabas.metadata.image import ConfigsImage
    from barnabas.net.connection import Connection

INSTANCES_MAX = 16_384
EXPIRY_MS_MIN = 60_000
EXPIRY_INTERVALS = 3
ALL_METRICS = "*"
NEVER_MS = -(1 << 62)
RESERVED_IDS = (ZERO_UUID, Uuid(bytes(15) + b"\x01"))
_MAY_ASK_AGAIN = (Error.UNKNOWN_SUBSCRIPTION_ID, Error.UNSUPPORTED_COMPRESSION_TYPE)


class ClientAttributes(NamedTuple):
    """What subscriptions can match, under the names of their selectors."""

    client_instance_id: str
    client_id: str | None
    client_software_name: str | None
    client_software_version: str | None
    client_source_address: str
    client_source_port: str

    def is_matched_by(self, subscription: Subscription) -> bool:
        values = self._asdict()
        return all(
            (value := values[selector]) is not None and pattern.fullmatch(value) is not None
            for selector, pattern in subscription.patterns.items()
        )


class ClientInstance:
    """What is asked of one client, and when it last asked and pushed."""

    __slots__ = (
        "attributes",
        "connection",
        "is_terminating",
        "last_error",
        "last_get_ms",
        "last_push_ms",
        "last_seen_ms",
        "metrics",
        "push_interval_ms",
        "subscription_id",
        "version",
    )

    def __init__(
        self,
        instance_id: Uuid,
        attributes: ClientAttributes,
        connection: Connection,
        subscriptions: Collection[Subscription],
        version: int,
    ) -> None:
        matching = [each for each in subscriptions if attributes.is_matched_by(each)]
        metrics = {metric for each in matching for metric in each.metrics}
        self.attributes = attributes
        self.connection = ref(connection)
        self.version = version
        self.metrics = [ALL_METRICS] if ALL_METRICS in metrics else sorted(metrics)
        self.push_interval_ms = min([DEFAULT_INTERVAL_MS, *(each.interval_ms for each in matching)])
        self.subscription_id = subscription_id(self.metrics, self.push_interval_ms, instance_id)
        self.last_get_ms = self.last_push_ms = NEVER_MS
        self.last_seen_ms = NEVER_MS
        self.is_terminating = False
        self.last_error = Error.NONE

    def is_forgotten(self, now_ms: int) -> bool:
        connection = self.connection()
        lifetime_ms = max(EXPIRY_MS_MIN, EXPIRY_INTERVALS * self.push_interval_ms)
        return connection is None or connection.is_closed or now_ms - self.last_seen_ms > lifetime_ms

    def get(self, now_ms: int) -> None:
        """Raises KafkaError if the client asks too early."""
        if now_ms - max(self.last_get_ms, self.last_push_ms) >= self.push_interval_ms:
            self.last_get_ms = now_ms
        elif self.last_error not in _MAY_ASK_AGAIN:
            raise self._too_early()
        self.last_error = Error.NONE

    def push(self, wanted_id: int, codec: int, size: int, size_max: int, now_ms: int, *, is_last: bool) -> None:
        """Raises KafkaError if what the client pushes is not accepted."""
        try:
            self._check_push(wanted_id, codec, size, size_max, now_ms, is_last=is_last)
        except KafkaError as refused:
            self.last_error = refused.error
            raise
        finally:
            self.is_terminating = is_last
        self.last_error = Error.NONE

    def _check_push(self, wanted_id: int, codec: int, size: int, size_max: int, now_ms: int, *, is_last: bool) -> None:
        if self.is_terminating:
            raise KafkaError(Error.INVALID_REQUEST, f"{self._name} has pushed for the last time before")
        if self.last_get_ms > self.last_push_ms or now_ms - self.last_push_ms >= self.push_interval_ms:
            self.last_push_ms = now_ms
        elif not is_last:
            raise self._too_early()
        if wanted_id != self.subscription_id:
            raise KafkaError(Error.UNKNOWN_SUBSCRIPTION_ID, f"{self._name} has another subscription than {wanted_id}")
        if codec not in tuple(Codec):
            raise KafkaError(Error.UNSUPPORTED_COMPRESSION_TYPE, f"{self._name} pushes with codec {codec}")
        if size > size_max:
            raise KafkaError(Error.TELEMETRY_TOO_LARGE, f"{self._name} pushes {size} bytes, {size_max} are allowed")

    def _too_early(self) -> KafkaError:
        return KafkaError(
            Error.THROTTLING_QUOTA_EXCEEDED, f"{self._name} is to come once in {self.push_interval_ms} ms"
        )

    @property
    def _name(self) -> str:
        return f"client {self.attributes.client_instance_id}"


class ClientInstances:
    def __init__(self) -> None:
        self._instances: OrderedDict[Uuid, ClientInstance] = OrderedDict()
        """The one that was heard of last is the last one."""
        self._configs: ConfigsImage | None = None
        self._subscriptions: dict[str, Subscription] = {}
        self._version = 0

    def __len__(self) -> int:
        return len(self._instances)

    def follow(self, configs: ConfigsImage) -> None:
        """The subscriptions are those of this image."""
        if configs is self._configs:
            return
        self._configs = configs
        subscriptions = {
            resource.name: parse_subscription(settings)
            for resource, settings in configs.resources.items()
            if resource.type == ResourceType.CLIENT_METRICS
        }
        if subscriptions != self._subscriptions:
            self._subscriptions = subscriptions
            self._version += 1

    def find(
        self, instance_id: Uuid, attributes: ClientAttributes, connection: Connection, now_ms: int
    ) -> ClientInstance:
        """The client under this id; a new one if nobody has it, or if it is asked for something else by now."""
        found = self._instances.get(instance_id)
        if found is None or found.version != self._version or found.is_forgotten(now_ms):
            if found is not None and not found.is_forgotten(now_ms):
                attributes = found.attributes
            found = ClientInstance(instance_id, attributes, connection, self._subscriptions.values(), self._version)
            self._instances[instance_id] = found
            if len(self._instances) > INSTANCES_MAX:
                self._instances.popitem(last=False)
        self._instances.move_to_end(instance_id)
        found.last_seen_ms = now_ms
        return found


def subscription_id(metrics: list[str], push_interval_ms: int, instance_id: Uuid) -> int:
    """Another one for each client, and for everything else that may be asked of it. As Kafka makes it."""
    checksum = crc32c(f"[{', '.join(metrics)}]{push_interval_ms}".encode())
    words = (int.from_bytes(instance_id[start : start + 4], "big") for start in range(0, 16, 4))
    for word in words:
        checksum ^= word
    return checksum - (1 << 32) if checksum >= 1 << 31 else checksum


def attributes_of(
    instance_id: Uuid, client_id: str | None, software: tuple[str, str] | None, peer: tuple[str, int]
) -> ClientAttributes:
    name, version = software or (None, None)
    return ClientAttributes(to_text(instance_id), client_id, name, version, peer[0], str(peer[1]))
