"""GetTelemetrySubscriptions and PushTelemetry: clients ask which metrics are wanted of them, and push these (KIP-714).

Served where something receives the metrics: where `barnabas.client.telemetry.dir` is set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.api.client_connection import ClientConnection
from barnabas.broker.api.environments import TelemetryEnvironment
from barnabas.broker.api.registry import handles
from barnabas.broker.telemetry.client_instances import RESERVED_IDS, attributes_of
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.compression import Codec
from barnabas.protocol.errors import Error, KafkaError
from barnabas.protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    from barnabas.broker.telemetry.client_instances import ClientInstance
    from barnabas.net.dispatch import Caller
    from barnabas.protocol.uuids import Uuid

ACCEPTED_CODECS = [Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY]
"""The one that is liked best comes first."""


@handles(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, TelemetryEnvironment, versions=(0, 0))
def get_telemetry_subscriptions(
    environment: TelemetryEnvironment, request: m.GetTelemetrySubscriptionsRequest, caller: Caller
) -> m.GetTelemetrySubscriptionsResponse:
    instance_id = request.client_instance_id
    if instance_id == ZERO_UUID:
        instance_id = environment.random.uuid()
    now_ms = environment.now_ms()
    instance = find_instance(environment, instance_id, caller, now_ms)
    try:
        instance.get(now_ms)
    except KafkaError as refused:
        return m.GetTelemetrySubscriptionsResponse(error_code=refused.error)
    return m.GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=list(ACCEPTED_CODECS),
        push_interval_ms=instance.push_interval_ms,
        telemetry_max_bytes=environment.settings.config.telemetry_max_bytes,
        delta_temporality=False,  # only the newest push is kept, so it has to say it all
        requested_metrics=instance.metrics,
    )


@handles(ApiKey.PUSH_TELEMETRY, TelemetryEnvironment, versions=(0, 0))
async def push_telemetry(
    environment: TelemetryEnvironment, request: m.PushTelemetryRequest, caller: Caller
) -> m.PushTelemetryResponse:
    if request.client_instance_id in RESERVED_IDS:
        return m.PushTelemetryResponse(error_code=Error.INVALID_REQUEST)
    now_ms = environment.now_ms()
    instance = find_instance(environment, request.client_instance_id, caller, now_ms)
    try:
        instance.push(
            request.subscription_id,
            request.compression_type,
            len(request.metrics),
            environment.settings.config.telemetry_max_bytes,
            now_ms,
            is_last=request.terminating,
        )
        if request.metrics:
            await environment.receiver.keep(instance.attributes, request.compression_type, bytes(request.metrics))
    except KafkaError as refused:
        instance.last_error = refused.error
        return m.PushTelemetryResponse(error_code=refused.error)
    return m.PushTelemetryResponse()


def find_instance(environment: TelemetryEnvironment, instance_id: Uuid, caller: Caller, now_ms: int) -> ClientInstance:
    connection = caller.connection
    assert isinstance(connection, ClientConnection), "these APIs are not forwarded"
    environment.instances.follow(environment.metadata.image.configs)
    attributes = attributes_of(instance_id, caller.client_id, connection.software, connection.peer)
    return environment.instances.find(instance_id, attributes, connection, now_ms)
