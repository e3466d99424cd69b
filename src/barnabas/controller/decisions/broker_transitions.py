"""What happens to partitions when a broker is fenced, unfenced, shut down or lost.

A broker may hold very many of them: where that happens to a cluster at work, the records come in parts, so that the
caller can let others have their turns in between. The state must stay as it is until the last part is taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.decisions.elections import Elections, Target, change_partition
from barnabas.metadata import versions
from barnabas.metadata.versions import VersionedRecord
from barnabas.protocol import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from barnabas.controller.decisions.context import Settings
    from barnabas.controller.decisions.controller_state import ControllerState, PartitionKey
    from barnabas.metadata.image import BrokerImage

    Parts = Iterator[Sequence[VersionedRecord]]

FENCE = 1
UNFENCE = -1
ENTER_CONTROLLED_SHUTDOWN = 1
PARTITIONS_AT_ONCE = 200
"""What is looked at in one go where others are given their turns: a few milliseconds' work."""


def fence(state: ControllerState, settings: Settings, broker: BrokerImage) -> Parts:
    """The broker leaves every ISR, then it is fenced."""
    yield from _leave_in_parts(state, settings, broker.id)
    change = m.BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=FENCE)
    yield [registration_change(change)]


def unfence(state: ControllerState, settings: Settings, broker: BrokerImage) -> Parts:
    """The broker may lead again: it is elected for leaderless partitions where it is a candidate."""

    def may_lead(broker_id: int) -> bool:
        return broker_id == broker.id or state.is_active(broker_id)

    change = m.BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=UNFENCE)
    yield [registration_change(change)]
    for some in _some_at_a_time(state.leaderless.snapshot()):
        yield _changes(state, settings, some, may_lead, lambda isr: isr)


def begin_controlled_shutdown(state: ControllerState, settings: Settings, broker: BrokerImage) -> Parts:
    """The broker is shutting down: its partitions get other leaders where possible."""
    if not broker.in_controlled_shutdown:
        change = m.BrokerRegistrationChangeRecord(
            broker_id=broker.id, broker_epoch=broker.epoch, in_controlled_shutdown=ENTER_CONTROLLED_SHUTDOWN
        )
        yield [registration_change(change)]
    yield from _leave_in_parts(state, settings, broker.id)


def _leave_in_parts(state: ControllerState, settings: Settings, broker_id: int) -> Parts:
    for some in _some_at_a_time(state.in_sync_partitions(broker_id)):
        yield _leave(state, settings, broker_id, some, lost_broker_id=None)


def _some_at_a_time(partitions: Sequence[PartitionKey]) -> Iterator[Sequence[PartitionKey]]:
    for start in range(0, len(partitions), PARTITIONS_AT_ONCE):
        yield partitions[start : start + PARTITIONS_AT_ONCE]


def leave_in_sync_sets(state: ControllerState, settings: Settings, broker_id: int) -> list[VersionedRecord]:
    """A broker that stops cleanly leaves every ISR, and stays in the ELR where that is allowed."""
    return _leave(state, settings, broker_id, state.in_sync_partitions(broker_id), lost_broker_id=None)


def forget_lost_broker(state: ControllerState, settings: Settings, broker_id: int) -> list[VersionedRecord]:
    """A broker that did not stop cleanly may lack committed records: it leaves every ISR and every ELR."""
    partitions = (*state.in_sync_partitions(broker_id), *state.eligible_partitions(broker_id))
    return _leave(state, settings, broker_id, partitions, lost_broker_id=broker_id)


def leave_eligible_sets(state: ControllerState, settings: Settings, broker_id: int) -> list[VersionedRecord]:
    return _leave(state, settings, broker_id, state.eligible_partitions(broker_id), lost_broker_id=broker_id)


def lose_directories(
    state: ControllerState, settings: Settings, broker_id: int, partitions: Iterable[PartitionKey]
) -> list[VersionedRecord]:
    """The broker has lost its replicas of these partitions together with their directory."""
    return _leave(state, settings, broker_id, partitions, lost_broker_id=None)


def registration_change(change: m.BrokerRegistrationChangeRecord) -> VersionedRecord:
    return VersionedRecord(change, versions.registration_change_version(change))


def _leave(
    state: ControllerState,
    settings: Settings,
    broker_id: int,
    partitions: Iterable[PartitionKey],
    *,
    lost_broker_id: int | None,
) -> list[VersionedRecord]:
    def may_lead(other: int) -> bool:
        return other != broker_id and state.is_active(other)

    def without(isr: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(replica for replica in isr if replica != broker_id)

    return _changes(state, settings, partitions, may_lead, without, lost_broker_id=lost_broker_id)


def _changes(
    state: ControllerState,
    settings: Settings,
    partitions: Iterable[PartitionKey],
    may_lead: Callable[[int], bool],
    next_isr: Callable[[tuple[int, ...]], tuple[int, ...]],
    *,
    lost_broker_id: int | None = None,
) -> list[VersionedRecord]:
    records = []
    elections = Elections(state, settings)
    for key in partitions:
        _, partition = state.topic_and_partition(key)
        target = Target(isr=next_isr(partition.isr), lost_broker_id=lost_broker_id)
        record = change_partition(key, partition, target, elections.rules(key, may_lead))
        if record is not None:
            records.append(record)
    return records
