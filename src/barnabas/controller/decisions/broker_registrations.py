"""Brokers and controllers: registration, heartbeats, fencing, controlled shutdown, and blocks of producer IDs.

A broker registers (fenced, with an epoch that no other registration ever has), replays the log up to its own
registration, and is unfenced by the first heartbeat that reports this. From then on it is fenced if it stays silent
for longer than its session. To stop, it asks for a controlled shutdown, and is fenced once it leads no partitions.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from barnabas.controller.decisions import broker_transitions
from barnabas.controller.decisions.context import Contact, Decision
from barnabas.controller.decisions.controller_state import PartitionKey
from barnabas.controller.decisions.sessions import NO_OFFSET, Session
from barnabas.metadata import versions
from barnabas.metadata.conversions import addresses_as, features_as, supported_levels
from barnabas.metadata.image import is_reserved_directory
from barnabas.metadata.versions import VersionedRecord
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error, KafkaError
from barnabas.protocol.uuids import to_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence, Sized

    from barnabas.controller.decisions.context import Context, Settings
    from barnabas.controller.decisions.controller_state import ControllerState
    from barnabas.metadata.image import BrokerImage
    from barnabas.protocol.uuids import Uuid

PRODUCER_ID_BLOCK_SIZE = 1000
LISTED_MAX = 1000
"""Listeners, features or directories that a node may register with: everybody goes through these lists from then on,
again and again."""
_LAST_PRODUCER_ID = (1 << 63) - 1


def register_broker(state: ControllerState, request: m.BrokerRegistrationRequest, context: Context) -> Decision:
    _check_registration(state, request, context)
    existing = state.brokers.get(request.broker_id)
    records: list[VersionedRecord] = []
    record = _registration(request)
    if existing is not None and existing.incarnation_id == request.incarnation_id:
        record.fenced = existing.fenced
        record.in_controlled_shutdown = existing.in_controlled_shutdown
        record.broker_epoch = existing.epoch
    else:
        record.broker_epoch = context.next_offset
        if existing is not None:
            records += _end_previous_incarnation(state, request, existing, context)
    if not versions.supports_directories(state.features.metadata_version):
        record.log_dirs = []
    version = versions.register_broker_version(state.features.metadata_version)
    records.append(VersionedRecord(record, version))
    return Decision(m.BrokerRegistrationResponse(broker_epoch=record.broker_epoch), records)


def heartbeat(state: ControllerState, request: m.BrokerHeartbeatRequest, context: Context) -> Decision:
    broker = check_broker_epoch(state, request.broker_id, request.broker_epoch)
    session = state.sessions.get(broker.id, Session(context.now_ms))
    registered_at = state.registered_at[broker.id]
    is_caught_up = request.current_metadata_offset >= registered_at
    response = m.BrokerHeartbeatResponse(is_caught_up=is_caught_up, is_fenced=broker.fenced)
    changes: Iterator[Sequence[VersionedRecord]] = iter(())
    settings = context.settings
    if broker.fenced:
        if request.want_shut_down:
            response.should_shut_down = True
        elif not request.want_fence and is_caught_up and not broker.in_controlled_shutdown:
            # A broker in controlled shutdown is unfenced only by a new registration.
            changes = broker_transitions.unfence(state, settings, broker)
            response.is_fenced = False
    elif request.want_fence or (request.want_shut_down and _may_go(state, broker, session)):
        changes = broker_transitions.fence(state, settings, broker)
        response.is_fenced = True
        response.should_shut_down = request.want_shut_down
    elif request.want_shut_down and session.controlled_shutdown_offset == NO_OFFSET:
        changes = broker_transitions.begin_controlled_shutdown(state, settings, broker)
    folders = _offline_directories(state, request, broker, context)
    folders += _cordoned_directories(state, request, broker)
    contact = Contact(broker.id, context.now_ms, request.current_metadata_offset)
    return Decision(response, contact=contact, parts=chain(changes, (folders,)))


def unregister_broker(state: ControllerState, request: m.UnregisterBrokerRequest, context: Context) -> Decision:
    broker = state.brokers.get(request.broker_id)
    if broker is None:
        raise KafkaError(Error.BROKER_ID_NOT_REGISTERED, f"Broker ID {request.broker_id} is not currently registered")
    records = broker_transitions.leave_in_sync_sets(state, context.settings, broker.id)
    records += broker_transitions.leave_eligible_sets(state, context.settings, broker.id)
    record = m.UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch)
    return Decision(m.UnregisterBrokerResponse(), [*records, VersionedRecord(record, 0)])


def register_controller(
    state: ControllerState, request: m.ControllerRegistrationRequest, _context: Context
) -> Decision:
    if not versions.supports_controller_registration(state.features.metadata_version):
        raise KafkaError(
            Error.UNSUPPORTED_VERSION,
            "The current MetadataVersion is too old to support controller registrations.",
        )
    _check_length("listeners", request.listeners)
    _check_length("features", request.features)
    record = m.RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        end_points=addresses_as(m.RegisterControllerRecord.ControllerEndpoint, request.listeners),
        features=features_as(m.RegisterControllerRecord.ControllerFeature, supported_levels(request.features)),
    )
    return Decision(m.ControllerRegistrationResponse(), [VersionedRecord(record, 0)])


def allocate_producer_ids(state: ControllerState, request: m.AllocateProducerIdsRequest, _context: Context) -> Decision:
    """Each broker hands out producer IDs from a block that no other broker ever gets."""
    check_broker_epoch(state, request.broker_id, request.broker_epoch)
    first = max(state.metadata.next_producer_id, 0)
    if first > _LAST_PRODUCER_ID - PRODUCER_ID_BLOCK_SIZE:
        raise KafkaError(
            Error.UNKNOWN_SERVER_ERROR,
            "Exhausted all producerIds as the next block's end producerId has exceeded the int64 type limit",
        )
    record = m.ProducerIdsRecord(
        broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=first + PRODUCER_ID_BLOCK_SIZE
    )
    response = m.AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=PRODUCER_ID_BLOCK_SIZE)
    return Decision(response, [VersionedRecord(record, 0)])


def check_broker_epoch(state: ControllerState, broker_id: int, epoch: int) -> BrokerImage:
    """The broker, if it is registered with this epoch. Any other epoch is that of another incarnation."""
    broker = state.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(Error.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
    if broker.epoch != epoch:
        raise KafkaError(
            Error.STALE_BROKER_EPOCH, f"Expected broker epoch {broker.epoch}, but got broker epoch {epoch}"
        )
    return broker


def _check_registration(state: ControllerState, request: m.BrokerRegistrationRequest, context: Context) -> None:
    settings = context.settings
    if request.cluster_id != settings.cluster_id:
        raise KafkaError(
            Error.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {settings.cluster_id}, but got cluster ID {request.cluster_id}",
        )
    existing = state.brokers.get(request.broker_id)
    if (
        existing is not None
        and existing.incarnation_id != request.incarnation_id
        and not _is_known_to_be_gone(state, existing, settings)
        and state.has_valid_session(request.broker_id, context.now_ms, settings)
    ):
        raise KafkaError(
            Error.DUPLICATE_BROKER_REGISTRATION,
            "Another broker is registered with that broker id. If the broker was recently restarted this should "
            "self-resolve once the heartbeat manager expires the broker's session.",
        )
    _check_length("listeners", request.listeners)
    _check_length("features", request.features)
    _check_length("directories", request.log_dirs)
    if request.is_migrating_zk_broker:
        raise KafkaError(Error.BROKER_ID_NOT_REGISTERED, "Controller does not support registering ZK brokers.")
    if versions.supports_directories(state.features.metadata_version):
        _check_directories(state, request)
    _check_features(state, request)


def _check_length(what: str, listed: Sized) -> None:
    if len(listed) > LISTED_MAX:
        raise KafkaError(Error.INVALID_REGISTRATION, f"{len(listed)} {what} in request, {LISTED_MAX} are allowed")


def _is_known_to_be_gone(state: ControllerState, existing: BrokerImage, settings: Settings) -> bool:
    """Whether the existing incarnation ended before this process locked the folder, so its session does not count."""
    return existing.id == settings.sole_broker_id and existing.epoch < state.first_offset


def _check_directories(state: ControllerState, request: m.BrokerRegistrationRequest) -> None:
    if not request.log_dirs:
        raise KafkaError(Error.INVALID_REGISTRATION, "No directories specified in request")
    if any(is_reserved_directory(directory) for directory in request.log_dirs):
        raise KafkaError(Error.INVALID_REGISTRATION, "Reserved directory ID in request")
    wanted = set(request.log_dirs)
    if len(wanted) != len(request.log_dirs):
        raise KafkaError(Error.INVALID_REGISTRATION, "Duplicate directory ID in request")
    for broker in state.brokers.values():
        shared = next((d for d in broker.directories if d in wanted), None)
        if shared is not None and broker.id != request.broker_id:
            raise KafkaError(
                Error.INVALID_REGISTRATION,
                f"Broker {broker.id} is already registered with directory {to_text(shared)}",
            )


def _check_features(state: ControllerState, request: m.BrokerRegistrationRequest) -> None:
    """A broker must support every finalized level. Features that it does not list it supports at level 0."""
    features = state.features
    supported = supported_levels(request.features)
    if versions.FEATURE_NAME not in supported:
        raise KafkaError(Error.INVALID_REGISTRATION, "Request features do not contain 'metadata.version'")
    finalized = {**features.finalized, versions.FEATURE_NAME: features.metadata_version}
    for name in {**supported, **finalized}:
        level = finalized.get(name, 0)
        lowest, highest = supported.get(name, versions.VersionRange(0, 0))
        if not lowest <= level <= highest:
            raise KafkaError(
                Error.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support finalized version {level} of {name}. "
                f"The broker wants a version between {lowest} and {highest}, inclusive.",
            )


def _registration(request: m.BrokerRegistrationRequest) -> m.RegisterBrokerRecord:
    return m.RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        end_points=addresses_as(m.RegisterBrokerRecord.BrokerEndpoint, request.listeners),
        features=features_as(m.RegisterBrokerRecord.BrokerFeature, supported_levels(request.features)),
        rack=request.rack,
        log_dirs=list(request.log_dirs),
    )


def _end_previous_incarnation(
    state: ControllerState, request: m.BrokerRegistrationRequest, existing: BrokerImage, context: Context
) -> list[VersionedRecord]:
    """A broker that knows its previous epoch has stopped cleanly; any other may have lost records."""
    is_clean = request.previous_broker_epoch == existing.epoch
    if is_clean or not versions.supports_elr(state.features.metadata_version):
        return broker_transitions.leave_in_sync_sets(state, context.settings, existing.id)
    return broker_transitions.forget_lost_broker(state, context.settings, existing.id)


def _may_go(state: ControllerState, broker: BrokerImage, session: Session) -> bool:
    """Whether a broker may shut down now: it leads no partitions, and all active brokers have replayed that."""
    if state.leads_any(broker.id):
        return False
    if session.controlled_shutdown_offset == NO_OFFSET:
        return True
    others = (state.sessions[other.id].metadata_offset for other in state.brokers.values() if other.is_active)
    return all(offset >= session.controlled_shutdown_offset for offset in others)


def _offline_directories(
    state: ControllerState, request: m.BrokerHeartbeatRequest, broker: BrokerImage, context: Context
) -> list[VersionedRecord]:
    reported = set(request.offline_log_dirs)
    offline = [directory for directory in broker.directories if directory in reported]
    if not offline or not versions.supports_directories(state.features.metadata_version):
        return []
    partitions = _partitions_in(state, broker.id, set(offline))
    change = m.BrokerRegistrationChangeRecord(
        broker_id=broker.id,
        broker_epoch=broker.epoch,
        log_dirs=[directory for directory in broker.directories if directory not in offline],
    )
    records = broker_transitions.lose_directories(state, context.settings, broker.id, partitions)
    return [*records, broker_transitions.registration_change(change)]


def _partitions_in(state: ControllerState, broker_id: int, directories: set[Uuid]) -> list[PartitionKey]:
    """Scans all partitions: directories rarely fail, and an index would always cost memory."""
    return [
        PartitionKey(topic.topic_id, partition_id)
        for topic in state.metadata.topics_by_id.values()
        for partition_id, partition in enumerate(topic.partitions)
        if partition.directory_of(broker_id) in directories
    ]


def _cordoned_directories(
    state: ControllerState, request: m.BrokerHeartbeatRequest, broker: BrokerImage
) -> list[VersionedRecord]:
    cordoned = request.cordoned_log_dirs
    is_supported = versions.supports_cordoned_directories(state.features.metadata_version)
    if cordoned is None or not is_supported or broker.cordoned_directories == tuple(cordoned):
        return []
    change = m.BrokerRegistrationChangeRecord(
        broker_id=broker.id, broker_epoch=broker.epoch, cordoned_log_dirs=list(cordoned)
    )
    return [broker_transitions.registration_change(change)]
