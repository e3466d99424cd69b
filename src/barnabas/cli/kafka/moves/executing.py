"""`kafka-reassign-partitions --execute`, `--cancel` and `--list`: moves are begun, taken back and shown."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.cli.kafka.java.java_order import in_hash_order, int_hash
from barnabas.cli.kafka.moves.current_places import folders_of, places_of
from barnabas.cli.kafka.moves.failures import asking_cluster, failed, terse
from barnabas.cli.kafka.moves.plans import name_of, plan_json, read_plan, read_plan_to_execute
from barnabas.cli.kafka.moves.throttles import clear_limits, limit_folders, limit_moves, moves
from barnabas.cli.kafka.moves.verifying import folder_moves
from barnabas.client.admin.reassignments import alter_reassignments, list_reassignments
from barnabas.client.admin.replica_folders import move_replicas
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Sized

    from barnabas.client.admin.replica_folders import Replica
    from barnabas.client.cluster import Cluster, TopicPartition

OTHERS_ARE_UNDER_WAY: Final = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to override this and create "
    "a new partition assignment in addition to the existing one. The --additional flag can also be used to change the "
    "throttle by resubmitting the current reassignment."
)
VERIFY_LATER: Final = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is removed."
)
TRY_AGAIN_S: Final = 0.1
"""After so long a replica that has to be made first is asked to move into its folder again."""


class Conditions(NamedTuple):
    """On which a plan is carried out."""

    broker_limit: int
    """Bytes per second from broker to broker; none for a negative number."""
    folder_limit: int
    timeout_ms: int
    """For how long replicas that are to go to a folder are waited for."""
    is_additional: bool
    """Whether it may be that others are under way."""
    keeps_replication_factor: bool


def execute(cluster: Cluster, text: str, conditions: Conditions) -> None:
    plan = read_plan_to_execute(text)
    with asking_cluster("listPartitionReassignments"):
        under_way = list_reassignments(cluster)
    if under_way and not conditions.is_additional:
        raise terse(OTHERS_ARE_UNDER_WAY)
    _check_brokers(cluster, [broker for _, replicas in plan.replicas for broker in replicas])
    current = places_of(cluster, plan.partitions)
    print(f"Current partition replica assignment\n\n{plan_json(current, folders_of(cluster, current))}\n")
    print("Save this to use as the --reassignment-json-file option during rollback")
    if conditions.broker_limit >= 0 or conditions.folder_limit >= 0:
        print(VERIFY_LATER)
    if conditions.broker_limit >= 0:
        limit_moves(cluster, moves(under_way, plan.replicas, current), conditions.broker_limit)
    if conditions.folder_limit >= 0:
        limit_folders(cluster, [each.broker_id for each in plan.folders], conditions.folder_limit)
    _begin(cluster, dict(plan.replicas), keeps_replication_factor=conditions.keeps_replication_factor)
    if plan.folders:
        move_into_folders(cluster, plan.folders, conditions.timeout_ms)


def cancel(cluster: Cluster, text: str, *, timeout_ms: int, keeps_limits: bool) -> None:
    plan = read_plan(text)
    with asking_cluster("listPartitionReassignments"):
        under_way = list_reassignments(cluster, dict.fromkeys(plan.partitions))
    moving = sorted(place for place, each in under_way.items() if each.adding or each.removing)
    if moving:
        with asking_cluster("alterPartitionReassignments"):
            outcomes = alter_reassignments(cluster, dict.fromkeys(moving))
        faults = {place: failure.message for place, failure in sorted(outcomes.items()) if failure is not None}
        if faults:
            raise terse(f"Error cancelling partition reassignment{_plural(faults)} for:\n{_listed(faults)}")
        print(f"Successfully cancelled partition reassignment{_plural(moving)} for: {','.join(map(name_of, moving))}")
    else:
        print("None of the specified partition reassignments are active.")
    # Those on their way to another folder are sent back to the one that they are in.
    back = {
        replica: folders.current
        for replica, folders in folder_moves(cluster, plan.folders).items()
        if folders.current is not None and folders.future is not None
    }
    if back:
        move_into_folders(cluster, back, timeout_ms)
    else:
        print("None of the specified partition moves are active.", end="")
    if not keeps_limits:
        clear_limits(cluster, plan)


def print_list(cluster: Cluster) -> None:
    with asking_cluster("listPartitionReassignments"):
        under_way = list_reassignments(cluster)
    if not under_way:
        print("No partition reassignments found.")
        return
    print("Current partition reassignments:")
    for place in sorted(under_way):
        each = under_way[place]
        parts = [f"replicas: {_ids(each.replicas)}."]
        parts += [f"adding: {_ids(each.adding)}."] if each.adding else []
        parts += [f"removing: {_ids(each.removing)}."] if each.removing else []
        print(f"{name_of(place)}: {' '.join(parts)}")


def move_into_folders(cluster: Cluster, targets: Mapping[Replica, str], timeout_ms: int) -> None:
    """Send replicas on their way to folders of their brokers, as soon as each is there."""
    deadline = time.monotonic() + timeout_ms / 1000
    waiting = dict(sorted(targets.items(), key=lambda each: (each[0].broker_id, each[0].topic, each[0].partition)))
    while True:
        with asking_cluster("alterReplicaLogDirs"):
            outcomes = move_replicas(cluster, waiting)
        for replica, failure in outcomes.items():
            if failure is not None and failure.error is not Error.REPLICA_NOT_AVAILABLE:
                raise failed(f"Failed to alter dir for {replica}", hint=failure.message)
        for replica, folder in list(waiting.items()):
            if outcomes.get(replica) is None:
                print(
                    f"Successfully started moving log directory to {folder} for replica "
                    f"{replica.topic}-{replica.partition} with broker {replica.broker_id} "
                )
                del waiting[replica]
        if not waiting:
            return
        if time.monotonic() >= deadline:
            raise terse(
                f"Timed out before log directory move{_plural(waiting)} could be started for: "
                f"{','.join(map(str, waiting))}"
            )
        time.sleep(TRY_AGAIN_S)


def _begin(
    cluster: Cluster, targets: Mapping[TopicPartition, Sequence[int]], *, keeps_replication_factor: bool
) -> None:
    with asking_cluster("alterPartitionReassignments"):
        outcomes = alter_reassignments(cluster, targets, allow_replication_factor_change=not keeps_replication_factor)
    faults = {place: failure.message for place, failure in sorted(outcomes.items()) if failure is not None}
    if faults:
        raise terse(f"Error reassigning partition(s):\n{_listed(faults)}")
    places = ",".join(map(name_of, sorted(targets)))
    print(f"Successfully started partition reassignment{_plural(targets)} for {places}")


def _check_brokers(cluster: Cluster, brokers: Sequence[int]) -> None:
    with asking_cluster("listNodes"):
        alive = cluster.nodes()
    unknown = next((each for each in in_hash_order(brokers, int_hash) if each not in alive), None)
    if unknown is not None:
        raise failed(f"Unknown broker id {unknown}")


def _listed(faults: Mapping[TopicPartition, str]) -> str:
    return "\n".join(f"{name_of(place)}: {reason}" for place, reason in faults.items())


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))


def _plural(things: Sized) -> str:
    return "" if len(things) == 1 else "s"
