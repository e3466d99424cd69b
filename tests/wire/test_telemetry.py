"""GetTelemetrySubscriptions and PushTelemetry: clients learn which metrics are wanted of them, and push these."""

from __future__ import annotations

import gzip
import uuid
from typing import TYPE_CHECKING

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.config_resources import ResourceType
from barnabas.protocol.errors import Error
from barnabas.protocol.uuids import ZERO_UUID, Uuid
from tests.peers import running, wait_until
from tests.wire.connection import CLIENT_ID, Connection
from tests.wire.test_config_resources import DELETE, SET, change, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.peers import Peer, PeerKind

NO_CODEC, GZIP = 0, 1
EVERY_CODEC = {4, 3, 1, 2}
LONG_MS = 300_000

# One gauge, "m", with the value 7, in OTLP's protobuf.
POINT = b"\x31" + (7).to_bytes(8, "little")
GAUGE = b"\x0a" + bytes([len(POINT)]) + POINT
METRIC = b"\x0a\x01m\x2a" + bytes([len(GAUGE)]) + GAUGE
SCOPE = b"\x12" + bytes([len(METRIC)]) + METRIC
RESOURCE = b"\x12" + bytes([len(SCOPE)]) + SCOPE
METRICS = b"\x0a" + bytes([len(RESOURCE)]) + RESOURCE


@pytest.fixture(scope="module")
def telemetry_node(peer_kind: PeerKind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    root = tmp_path_factory.mktemp("telemetry")
    settings = {"barnabas.client.telemetry.dir": str(root / "metrics"), "telemetry.max.bytes": "1000"}
    with running(peer_kind, root, settings) as node:
        yield node


@pytest.fixture
def connect(telemetry_node: Peer) -> Iterator[Callable[[], Connection]]:
    opened: list[Connection] = []

    def open_one() -> Connection:
        opened.append(Connection(telemetry_node.port))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


@pytest.fixture
def connection(connect: Callable[[], Connection]) -> Iterator[Connection]:
    """It ends with no subscription."""
    connection = connect()
    yield connection
    for _, name in listed(connection, [ResourceType.CLIENT_METRICS]):
        remove(connection, name)


def subscribe(connection: Connection, name: str, **settings: str) -> None:
    operations: dict[str, tuple[int, str | None]] = {
        key.replace("_", "."): (SET, value) for key, value in settings.items()
    }
    answer = change(connection, ResourceType.CLIENT_METRICS, name, operations)
    assert answer.error_code == Error.NONE, answer.error_message


def remove(connection: Connection, name: str) -> None:
    operations: dict[str, tuple[int, str | None]] = dict.fromkeys(("metrics", "interval.ms", "match"), (DELETE, None))
    assert change(connection, ResourceType.CLIENT_METRICS, name, operations).error_code == Error.NONE


def get(connection: Connection, instance: Uuid = ZERO_UUID) -> m.GetTelemetrySubscriptionsResponse:
    request = m.GetTelemetrySubscriptionsRequest(client_instance_id=instance)
    return connection.call(request, 0, m.GetTelemetrySubscriptionsResponse)


def push(
    connection: Connection,
    instance: Uuid,
    subscription_id: int,
    metrics: bytes = METRICS,
    codec: int = NO_CODEC,
    *,
    is_last: bool = False,
) -> Error:
    request = m.PushTelemetryRequest(
        client_instance_id=instance,
        subscription_id=subscription_id,
        terminating=is_last,
        compression_type=codec,
        metrics=metrics,
    )
    return Error(connection.call(request, 0, m.PushTelemetryResponse).error_code)


def an_id() -> Uuid:
    return Uuid(uuid.uuid4().bytes)


def wanted_metrics(connection: Connection) -> set[str]:
    """Of a client that asks for the first time."""
    return set(get(connection, an_id()).requested_metrics)


def test_a_client_is_given_an_id_and_told_how_to_push(connection: Connection, peer_kind: PeerKind) -> None:
    answer = get(connection)
    assert answer.error_code == Error.NONE
    assert answer.client_instance_id != ZERO_UUID
    assert answer.requested_metrics == []
    assert set(answer.accepted_compression_types) == EVERY_CODEC
    assert (answer.push_interval_ms, answer.telemetry_max_bytes) == (LONG_MS, 1000)
    # Where only the newest push is kept, it has to hold totals.
    assert answer.delta_temporality == (peer_kind == "kafka")
    instance = an_id()
    assert get(connection, instance).client_instance_id == instance


def test_subscriptions_that_match_are_put_together(connection: Connection) -> None:
    version = m.ApiVersionsRequest(client_software_name="wire", client_software_version="1.2.3")
    assert connection.call(version, 4, m.ApiVersionsResponse).error_code == Error.NONE
    subscribe(connection, "all", metrics="a.,b.", interval_ms="5000")
    subscribe(connection, "mine", metrics="b.,c.", match=f"client_id={CLIENT_ID},client_software_version=1.*")
    subscribe(connection, "local", metrics="d.", match="client_source_address=127[.]0[.]0[.]1,client_source_port=\\d+")
    subscribe(connection, "others", metrics="x.", match="client_software_name=another")
    subscribe(connection, "part", metrics="y.", match="client_id=wire", interval_ms="100")
    wait_until(lambda: wanted_metrics(connection) == {"a.", "b.", "c.", "d."}, "four subscriptions are in effect")
    assert get(connection, an_id()).push_interval_ms == 5000
    subscribe(connection, "everything", metrics="*", interval_ms="60000")
    wait_until(lambda: wanted_metrics(connection) == {"*"}, "everything is asked for")
    assert get(connection, an_id()).push_interval_ms == 5000
    for name in ("all", "mine", "local", "others", "part", "everything"):
        remove(connection, name)
    wait_until(lambda: wanted_metrics(connection) == set(), "nothing is asked for")


def test_a_client_that_asks_or_pushes_too_early_is_throttled(connection: Connection) -> None:
    answer = get(connection)
    instance, subscription = answer.client_instance_id, answer.subscription_id
    too_early = get(connection, instance)
    assert too_early.error_code == Error.THROTTLING_QUOTA_EXCEEDED
    assert (too_early.subscription_id, too_early.push_interval_ms) == (0, 0)
    assert push(connection, instance, subscription) is Error.NONE, "the first one after asking may come at once"
    assert push(connection, instance, subscription) is Error.THROTTLING_QUOTA_EXCEEDED
    assert get(connection, instance).error_code == Error.THROTTLING_QUOTA_EXCEEDED
    assert push(connection, instance, subscription, is_last=True) is Error.NONE, "the last one may come at any time"
    assert push(connection, instance, subscription, is_last=True) is Error.INVALID_REQUEST
    assert push(connection, instance, subscription) is Error.INVALID_REQUEST
    assert push(connection, instance, subscription) is Error.THROTTLING_QUOTA_EXCEEDED


@pytest.mark.parametrize(
    ("subscription", "codec", "metrics", "expected"),
    [
        (1, NO_CODEC, METRICS, Error.UNKNOWN_SUBSCRIPTION_ID),
        (1, 77, bytes(2000), Error.UNKNOWN_SUBSCRIPTION_ID),
        (0, 77, bytes(2000), Error.UNSUPPORTED_COMPRESSION_TYPE),
        (0, -1, METRICS, Error.UNSUPPORTED_COMPRESSION_TYPE),
        (0, NO_CODEC, bytes(1001), Error.TELEMETRY_TOO_LARGE),
        (0, NO_CODEC, b"", Error.NONE),
        (0, GZIP, gzip.compress(METRICS), Error.NONE),
    ],
    ids=["subscription", "subscription first", "codec", "no codec", "too large", "nothing", "gzip"],
)
def test_what_is_wrong_with_a_push(
    connection: Connection, subscription: int, codec: int, metrics: bytes, expected: Error
) -> None:
    answer = get(connection)
    instance = answer.client_instance_id
    assert push(connection, instance, answer.subscription_id ^ subscription, metrics, codec) is expected
    may_ask = expected in (Error.UNKNOWN_SUBSCRIPTION_ID, Error.UNSUPPORTED_COMPRESSION_TYPE)
    asked = get(connection, instance)
    assert asked.error_code == (Error.NONE if may_ask else Error.THROTTLING_QUOTA_EXCEEDED)
    assert push(connection, instance, answer.subscription_id) is Error.THROTTLING_QUOTA_EXCEEDED


def test_ids_that_nobody_has_are_refused(connection: Connection) -> None:
    assert push(connection, ZERO_UUID, 0) is Error.INVALID_REQUEST
    assert push(connection, Uuid(bytes(15) + b"\x01"), 0) is Error.INVALID_REQUEST


def test_a_client_that_never_asked_may_push_to_the_subscription_that_it_knows_of(connection: Connection) -> None:
    assert push(connection, an_id(), 12345) is Error.UNKNOWN_SUBSCRIPTION_ID


def test_a_changed_subscription_has_another_id_and_lets_the_client_ask_at_once(connection: Connection) -> None:
    before = get(connection)
    instance = before.client_instance_id
    subscribe(connection, "changed", metrics="a.", interval_ms="10000")
    wait_until(lambda: wanted_metrics(connection) == {"a."}, "the subscription is in effect")
    assert push(connection, instance, before.subscription_id) is Error.UNKNOWN_SUBSCRIPTION_ID
    assert get(connection, instance).error_code == Error.NONE
    subscribe(connection, "changed", metrics="a.,b.")
    wait_until(lambda: wanted_metrics(connection) == {"a.", "b."}, "the subscription is in effect")
    after = get(connection, instance)
    assert after.error_code == Error.NONE
    assert after.subscription_id != before.subscription_id
    assert push(connection, instance, after.subscription_id) is Error.NONE


def test_a_client_that_connects_again_is_a_new_one(connect: Callable[[], Connection]) -> None:
    first, second = connect(), connect()
    answer = get(first)
    instance = answer.client_instance_id
    assert get(second, instance).error_code == Error.THROTTLING_QUOTA_EXCEEDED
    first.close()
    again = connect()
    wait_until(lambda: get(again, instance).error_code == Error.NONE, "the old connection is forgotten", deadline_s=5)


def test_metrics_are_advertised_only_where_something_receives_them(telemetry_node: Peer, peer_kind: PeerKind) -> None:
    with Connection(telemetry_node.port) as connection:
        answer = connection.call(m.ApiVersionsRequest(), 0, m.ApiVersionsResponse)
    advertised = {each.api_key for each in answer.api_keys} & {
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        ApiKey.PUSH_TELEMETRY,
    }
    assert len(advertised) == (2 if peer_kind == "barnabas" else 0), "Apache Kafka has no receiver here"
