"""`kafka-consumer-groups --reset-offsets`: where groups without members are to go on, shown, exported, or done."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from barnabas.cli.kafka.groups import reset_plans
from barnabas.cli.kafka.groups.failures import asking_cluster, bare, failed, nested, print_error
from barnabas.cli.kafka.groups.listing import NAME_WIDTH_MIN, STATES, group_names, known
from barnabas.cli.kafka.groups.partitions import check_there, partitions_meant
from barnabas.cli.kafka.java.java_order import in_hash_order, partition_hash, string_hash
from barnabas.cli.kafka.java.java_times import INSTANT_MS_MAX, TimeError, read_datetime_ms, read_duration_ms
from barnabas.cli.kafka.tool import ToolUsageError, warn
from barnabas.client.admin import group_resets
from barnabas.client.admin.groups import (
    OtherProtocolError,
    alter_offsets,
    describe_consumer_groups,
    fetch_offsets,
)
from barnabas.client.admin.topics import describe_topics
from barnabas.client.offset_queries import EARLIEST, LATEST
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.cli.kafka.flags import Given
    from barnabas.client.cluster import Cluster, TopicPartition

Offsets = dict["TopicPartition", int]

SCENARIOS: Final = (
    "[to-offset], [shift-by], [to-datetime], [by-duration], [to-earliest], [to-latest], [to-current], [from-file]"
)


def reset(cluster: Cluster, given: Given) -> None:
    groups = group_names(cluster) if given.has("all-groups") else given.texts("group")
    result = {}
    for group in in_hash_order(groups, string_hash):
        state = _state_of(cluster, group)
        if state is None or state in group_resets.INACTIVE_STATES:
            result[group] = _reset_group(cluster, given, group)
        else:
            print_error(
                f"Assignments can only be reset if the group '{group}' is inactive, but the current state is {state}."
            )
            result[group] = {}
    if given.has("export"):
        print(reset_plans.written(result, group_count=len(given.texts("group"))))
    else:
        _print_offsets(result)


def _state_of(cluster: Cluster, group: str) -> str | None:
    """None for a group that is not there: it comes with its first offset."""
    with asking_cluster("describeConsumerGroups(api=FIND_COORDINATOR)", nested):
        found = describe_consumer_groups(cluster, [group])[group]
        if isinstance(found, OtherProtocolError):
            raise failed(f"java.util.concurrent.ExecutionException: java.lang.IllegalArgumentException: {found}")
        if not isinstance(found, KafkaError):
            return known(found.state, STATES)
        if found.error is not Error.GROUP_ID_NOT_FOUND:
            raise found
    return None


def _reset_group(cluster: Cluster, given: Given, group: str) -> Offsets:
    partitions = _scope(cluster, given, group)
    check_there(cluster, partitions)
    offsets = _prepared(cluster, given, group, partitions)
    if given.has("execute") and offsets:
        with asking_cluster("alterConsumerGroupOffsets(api=FIND_COORDINATOR)", bare):
            alter_offsets(cluster, group, offsets)
    return offsets


def _scope(cluster: Cluster, given: Given, group: str) -> list[TopicPartition]:
    if given.has("all-topics"):
        return _in_hash_order(_committed(cluster, group))
    if given.has("topic"):
        return partitions_meant(cluster, given.texts("topic"))
    if not given.has("from-file"):
        raise ToolUsageError("One of the reset scopes should be defined: --all-topics, --topic.")
    return []


def _prepared(cluster: Cluster, given: Given, group: str, partitions: Sequence[TopicPartition]) -> Offsets:
    if given.has("to-offset"):
        to_offset = given.long("to-offset")
        assert to_offset is not None, "its argument is required"
        return _within_logs(cluster, dict.fromkeys(partitions, to_offset))
    if given.has("to-earliest"):
        return _in_order(_at(cluster, partitions, EARLIEST))
    if given.has("to-latest"):
        return _in_order(_at(cluster, partitions, LATEST))
    if given.has("shift-by"):
        return _within_logs(cluster, _shifted(cluster, given, group, partitions))
    if given.has("to-datetime"):
        return _at_time(cluster, partitions, _moment_ms(given))
    if given.has("by-duration"):
        return _at_time(cluster, partitions, _moment_before_now_ms(given))
    if given.has("from-file"):
        return _from_file(cluster, given, group)
    if given.has("to-current"):
        return _at_current(cluster, group, partitions)
    raise ToolUsageError(f"Option '[reset-offsets]' requires one of the following scenarios: [{SCENARIOS}]")


def _shifted(cluster: Cluster, given: Given, group: str, partitions: Sequence[TopicPartition]) -> Offsets:
    committed = _committed(cluster, group)
    shift = given.long("shift-by")
    assert shift is not None, "its argument is required"
    try:
        return group_resets.stepped(committed, partitions, shift)
    except group_resets.NoOffsetError as failure:
        topic, partition = failure.place
        raise ToolUsageError(
            f"Cannot shift offset for partition {topic}-{partition} since there is no current committed offset"
        ) from None


def _at_current(cluster: Cluster, group: str, partitions: Sequence[TopicPartition]) -> Offsets:
    committed = _committed(cluster, group)
    with asking_cluster("listOffsets(api=METADATA)", nested):
        targets = group_resets.where_it_is(cluster, committed, partitions)
    offsets = _in_order(_offsets(targets))
    if any(place in committed for place in partitions):
        return offsets
    # A table that is filled from another one at once is made just large enough for it.
    return {place: offsets[place] for place in in_hash_order(offsets, partition_hash, int(len(offsets) / 0.75) + 1)}


def _from_file(cluster: Cluster, given: Given, group: str) -> Offsets:
    plan = reset_plans.read(given.texts("from-file")[0], given.texts("group"))
    if group not in plan:
        print_error(f"No reset plan for group {group} found")
        return {}
    return _within_logs(cluster, plan[group])


def _moment_ms(given: Given) -> int:
    try:
        return read_datetime_ms(given.texts("to-datetime")[0])
    except TimeError as error:
        raise failed(
            f"java.text.ParseException: {error}", "it has to look like 2026-01-31T12:00:00.000, or …Z, or …+01:00"
        ) from None


def _moment_before_now_ms(given: Given) -> int:
    try:
        moment_ms = int(time.time() * 1000) - read_duration_ms(given.required("by-duration"))
    except TimeError as error:
        raise failed(str(error), "it has to look like PT15M or P1DT12H") from None
    if abs(moment_ms) > INSTANT_MS_MAX:
        raise failed("Instant exceeds minimum or maximum instant")
    return moment_ms


def _committed(cluster: Cluster, group: str) -> Offsets:
    with asking_cluster("listConsumerGroupOffsets(api=FIND_COORDINATOR)", nested):
        return {place: committed.offset for place, committed in fetch_offsets(cluster, group).items()}


def _at(cluster: Cluster, partitions: Sequence[TopicPartition], which: int) -> Offsets:
    with asking_cluster("listOffsets(api=METADATA)", nested):
        return _offsets(group_resets.at_ends(cluster, partitions, which))


def _at_time(cluster: Cluster, partitions: Sequence[TopicPartition], timestamp_ms: int) -> Offsets:
    """The first record of a time or later; the end, where there is none."""
    with asking_cluster("listOffsets(api=METADATA)", nested):
        targets = group_resets.at_time(cluster, partitions, timestamp_ms)
    for topic, partition in _in_hash_order(partitions):
        if targets[topic, partition].has_no_record_so_late:
            print(f"\nWarn: Partition {partition} from topic {topic} is empty. Falling back to latest known offset.")
    return _in_order(_offsets(targets))


def _within_logs(cluster: Cluster, requested: Mapping[TopicPartition, int]) -> Offsets:
    """Offsets moved to the nearest that there is, with a word about each that had to be."""
    _check_topics(cluster, requested)
    with asking_cluster("listOffsets(api=METADATA)", nested):
        targets = group_resets.within_logs(cluster, requested)
    for place in _in_hash_order(requested):
        within, outside, _ = targets[place]
        if outside is not None:
            which = "higher than latest" if outside > within else "lower than earliest"
            warn(
                f"WARN New offset ({outside}) is {which} offset for topic partition {place[0]}-{place[1]}. "
                f"Value will be set to {within}"
            )
    return _in_order(_offsets(targets))


def _check_topics(cluster: Cluster, partitions: Mapping[TopicPartition, int]) -> None:
    """ToolError for partitions out of a file that are not there."""
    with asking_cluster("listOffsets(api=METADATA)", nested):
        states = describe_topics(cluster, {topic for topic, _ in partitions})
        for topic, partition in partitions:
            state = states[topic]
            if isinstance(state, KafkaError):
                raise KafkaError(
                    state.error,
                    f"Failed to fetch metadata for partition {topic}-{partition} because metadata for topic "
                    f"`{topic}` could not be found",
                )
    check_there(cluster, list(partitions))


def _offsets(targets: Mapping[TopicPartition, group_resets.Target]) -> Offsets:
    return {place: target.offset for place, target in targets.items()}


def _in_order(offsets: Offsets) -> Offsets:
    return {place: offsets[place] for place in _in_hash_order(offsets)}


def _in_hash_order(partitions: Sequence[TopicPartition] | Mapping[TopicPartition, int]) -> list[TopicPartition]:
    return in_hash_order(partitions, partition_hash)


def _print_offsets(result: Mapping[str, Offsets]) -> None:
    group_width = max([NAME_WIDTH_MIN, *map(len, result)])
    topic_width = max([NAME_WIDTH_MIN, *(len(topic) for offsets in result.values() for topic, _ in offsets)])
    rows: list[tuple[object, ...]] = [("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")] if result else []
    rows += [(group, *place, offset) for group, offsets in result.items() for place, offset in offsets.items()]
    for group, topic, partition, offset in rows:
        print(f"\n{group:<{group_width}} {topic:<{topic_width}} {partition:<10} {offset}", end="")
    print()
