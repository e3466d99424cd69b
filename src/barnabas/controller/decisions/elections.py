"""Leader elections, and the record that takes a partition to a new state: ISR, leader, ELR, assignment.

The leader is elected from the in-sync replicas (ISR); if there are none, from the eligible leader replicas (ELR), which
were in sync when the ISR fell below min.insync.replicas and so have every committed record. If both are empty, the last
known leader may return; its log may have lost records, so it starts in the state RECOVERING. Any other replica can be
elected only if the topic allows unclean elections.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from barnabas.metadata import versions
from barnabas.metadata.image import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    NO_LEADER,
    RECOVERING,
    UNASSIGNED_DIRECTORY,
    PartitionImage,
    is_reserved_directory,
)
from barnabas.metadata.versions import VersionedRecord
from barnabas.protocol import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.controller.decisions.context import Settings
    from barnabas.controller.decisions.controller_state import ControllerState, PartitionKey
    from barnabas.metadata.image import BrokerImage
    from barnabas.protocol.uuids import Uuid


MIN_ISR = "min.insync.replicas"
UNCLEAN_ELECTION = "unclean.leader.election.enable"


class Election(Enum):
    ONLINE = "online"
    """From the ISR or the ELR, keeping the current leader if possible."""
    PREFERRED = "preferred"
    """The same, but the first replica takes precedence over the current leader."""
    UNCLEAN = "unclean"
    """Any live replica if no other can be elected."""


class Target(NamedTuple):
    """The requested state of a partition. None leaves a field unchanged."""

    isr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    """With those that are being added or removed."""
    adding: tuple[int, ...] | None = None
    removing: tuple[int, ...] | None = None
    recovery_state: int | None = None
    directories: Mapping[int, Uuid] = {}
    """New directories by broker. A replica that is new needs one."""
    lost_broker_id: int | None = None
    """A broker that stopped without a clean shutdown and so may lack committed records."""
    emptied_broker_id: int | None = None
    """A broker whose replica begins anew, because the directory that it was in is gone."""


class Rules(NamedTuple):
    """What an election of one partition depends on: the cluster, the topic and the kind of election."""

    may_lead: Callable[[int], bool]
    election: Election
    min_isr: int
    is_elr_enabled: bool
    metadata_version: int


class Elections:
    """Makes the rules for any number of partitions, looking up the cluster's settings only once."""

    __slots__ = ("_min_isr", "_settings", "_state", "_unclean")

    def __init__(self, state: ControllerState, settings: Settings) -> None:
        self._state = state
        self._settings = settings
        self._min_isr = state.inherited_setting(MIN_ISR, settings) or str(settings.min_insync_replicas)
        self._unclean = state.inherited_setting(UNCLEAN_ELECTION, settings)
        if self._unclean is None:
            self._unclean = str(settings.is_unclean_election_enabled)

    def rules(
        self, key: PartitionKey, may_lead: Callable[[int], bool] | None = None, election: Election | None = None
    ) -> Rules:
        """The rules for one partition. By default, `may_lead` is whether a broker is active."""
        state = self._state
        topic, partition = state.topic_and_partition(key)
        overrides = state.metadata.configs_of_topic(topic.name)
        is_acceptable = may_lead or state.is_active
        if election is None:
            allows_unclean = overrides.get(UNCLEAN_ELECTION, self._unclean)
            election = Election.UNCLEAN if str(allows_unclean).lower() == "true" else Election.ONLINE
        return Rules(
            may_lead=lambda broker_id: is_acceptable(broker_id) and _has_online_directory(state, partition, broker_id),
            election=election,
            min_isr=min(int(overrides.get(MIN_ISR, self._min_isr)), len(topic.partitions[0].replicas)),
            is_elr_enabled=state.features.is_elr_enabled,
            metadata_version=state.features.metadata_version,
        )


def change_partition(
    key: PartitionKey, partition: PartitionImage, target: Target, rules: Rules
) -> VersionedRecord | None:
    """The record that takes the partition to `target` and elects a leader by the rules; None if nothing changes."""
    wanted = _complete_reassignment(_wanted(partition, target))
    wanted = _with_eligible(wanted, partition, target, rules)
    wanted = _without_emptied(wanted, target)
    elected = _elect(wanted, partition, rules)
    after = _with_leader(wanted, elected, partition, rules)
    if after == partition:
        return None
    record = _difference(key, partition, after)
    if _begins_epoch_without_election(partition, after, rules):
        record.leader = partition.leader
    return VersionedRecord(record, versions.partition_version(rules.metadata_version))


def default_directory(broker: BrokerImage) -> Uuid:
    """The directory of a new replica: the broker's only one, or UNASSIGNED if the broker is to choose."""
    if len(broker.directories) == 1:
        return broker.directories[0]
    return UNASSIGNED_DIRECTORY if broker.directories else MIGRATING_DIRECTORY


class _Elected(NamedTuple):
    leader: int
    is_unclean: bool = False


def _wanted(partition: PartitionImage, target: Target) -> PartitionImage:
    replicas = partition.replicas if target.replicas is None else target.replicas
    directories = {**dict(zip(partition.replicas, partition.directories, strict=True)), **target.directories}
    return partition._replace(
        isr=partition.isr if target.isr is None else target.isr,
        replicas=replicas,
        adding_replicas=partition.adding_replicas if target.adding is None else target.adding,
        removing_replicas=partition.removing_replicas if target.removing is None else target.removing,
        directories=tuple(directories[broker_id] for broker_id in replicas),
        leader_recovery_state=(
            partition.leader_recovery_state if target.recovery_state is None else target.recovery_state
        ),
    )


def _complete_reassignment(wanted: PartitionImage) -> PartitionImage:
    """Completes a reassignment if all added replicas are in sync and the ISR would not become empty."""
    if not wanted.adding_replicas and not wanted.removing_replicas:
        return wanted
    removing = wanted.removing_replicas
    isr = tuple(replica for replica in wanted.isr if replica not in removing)
    if not isr or not set(wanted.adding_replicas) <= set(isr):
        return wanted
    kept = [
        (replica, directory)
        for replica, directory in zip(wanted.replicas, wanted.directories, strict=True)
        if replica not in removing
    ]
    return wanted._replace(
        isr=isr,
        replicas=tuple(replica for replica, _ in kept),
        directories=tuple(directory for _, directory in kept),
        adding_replicas=(),
        removing_replicas=(),
    )


def _with_eligible(wanted: PartitionImage, before: PartitionImage, target: Target, rules: Rules) -> PartitionImage:
    """A replica that leaves an ISR below min.insync.replicas stays eligible, unless it may have lost records."""
    if not rules.is_elr_enabled:
        return wanted
    if len(wanted.isr) >= rules.min_isr:
        return wanted._replace(elr=())
    candidates = sorted({*before.elr, *before.isr} & {*wanted.replicas} - {*wanted.isr})
    return wanted._replace(elr=tuple(replica for replica in candidates if replica != target.lost_broker_id))


def _without_emptied(wanted: PartitionImage, target: Target) -> PartitionImage:
    """The last leader does not return with an empty log, to which the others would cut theirs; unless nobody else has
    any."""
    if target.emptied_broker_id in wanted.last_known_elr and len(wanted.replicas) > 1:
        return wanted._replace(last_known_elr=())
    return wanted


def _elect(wanted: PartitionImage, before: PartitionImage, rules: Rules) -> _Elected:
    def is_valid(replica: int) -> bool:
        pool = wanted.isr or wanted.elr
        return replica in pool and rules.may_lead(replica)

    if rules.election is Election.PREFERRED and is_valid(wanted.replicas[0]):
        return _Elected(wanted.replicas[0])
    for replica in (before.leader, *wanted.replicas):
        if is_valid(replica):
            return _Elected(replica)
    last_leader = _last_known_leader(wanted, rules)
    if last_leader is not None:
        return _Elected(last_leader, is_unclean=True)
    if rules.election is Election.UNCLEAN:
        for replica in wanted.replicas:
            if rules.may_lead(replica):
                return _Elected(replica, is_unclean=True)
    return _Elected(NO_LEADER)


def _last_known_leader(wanted: PartitionImage, rules: Rules) -> int | None:
    if not rules.is_elr_enabled or wanted.isr or wanted.elr or len(wanted.last_known_elr) != 1:
        return None
    return wanted.last_known_elr[0] if rules.may_lead(wanted.last_known_elr[0]) else None


def _with_leader(wanted: PartitionImage, elected: _Elected, before: PartitionImage, rules: Rules) -> PartitionImage:
    after = wanted._replace(leader=elected.leader)
    if elected.leader != before.leader:
        if elected.leader in wanted.elr:
            after = after._replace(
                isr=(elected.leader,), elr=tuple(replica for replica in wanted.elr if replica != elected.leader)
            )
        if elected.is_unclean:
            after = after._replace(isr=(elected.leader,), elr=(), leader_recovery_state=RECOVERING)
    if not rules.is_elr_enabled:
        # Without ELR, an empty ISR is never written: the last member stays in it.
        return after._replace(elr=(), isr=after.isr or before.isr)
    return after._replace(last_known_elr=_last_known(before, after))


def _last_known(before: PartitionImage, after: PartitionImage) -> tuple[int, ...]:
    """A partition that loses its leader remembers it until a new one is elected."""
    if after.leader != NO_LEADER:
        return ()
    if after.isr == before.isr or after.isr or before.last_known_elr == (before.leader,):
        return after.last_known_elr
    return (before.leader,)


def _begins_epoch_without_election(before: PartitionImage, after: PartitionImage, rules: Rules) -> bool:
    if after.leader != before.leader:
        return False
    loses_replica = not set(before.replicas) <= set(after.replicas)
    loses_in_sync = not set(before.isr) <= set(after.isr)
    return loses_replica or (loses_in_sync and versions.raises_leader_epoch_on_isr_shrink(rules.metadata_version))


def _difference(key: PartitionKey, before: PartitionImage, after: PartitionImage) -> m.PartitionChangeRecord:
    record = m.PartitionChangeRecord(topic_id=key.topic_id, partition_id=key.partition_id)
    if after.isr != before.isr:
        record.isr = list(after.isr)
    if after.leader != before.leader:
        record.leader = after.leader
    if after.replicas != before.replicas:
        record.replicas = list(after.replicas)
    if after.removing_replicas != before.removing_replicas:
        record.removing_replicas = list(after.removing_replicas)
    if after.adding_replicas != before.adding_replicas:
        record.adding_replicas = list(after.adding_replicas)
    if after.leader_recovery_state != before.leader_recovery_state:
        record.leader_recovery_state = after.leader_recovery_state
    if after.directories != before.directories:
        record.directories = list(after.directories)
    if after.elr != before.elr:
        record.eligible_leader_replicas = list(after.elr)
    if after.last_known_elr != before.last_known_elr:
        record.last_known_elr = list(after.last_known_elr)
    return record


def _has_online_directory(state: ControllerState, partition: PartitionImage, broker_id: int) -> bool:
    broker, directory = state.brokers.get(broker_id), partition.directory_of(broker_id)
    return broker is not None and directory != LOST_DIRECTORY and has_directory(broker, directory)


def has_directory(broker: BrokerImage, directory: Uuid | None) -> bool:
    """Whether a replica may be in this directory, as far as the broker has registered its own. Which one a reserved id
    stands for is not known."""
    return directory is not None and (is_reserved_directory(directory) or directory in broker.directories)
