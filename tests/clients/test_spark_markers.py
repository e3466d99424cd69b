"""Markers of tasks and batches over their lives: what comes too late, has expired, is removed, or cannot be."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from barnabas.client.cluster import Cluster
from barnabas.client.pool import borrowed
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error, KafkaError
from barnabas.spark import forget_output
from barnabas.spark.raw_options import OptionError
from barnabas.spark.write import marker_store, sink, write_plan
from barnabas.spark.write.delivery import find_batch, write_exactly_once
from barnabas.spark.write.exactly_once import MarkerError, Output, Run, batch_name, identity_of, task_name
from barnabas.spark.write.sink import StreamWriter, TaskDone
from barnabas.spark.write.write_plan import begin_write
from tests.clients.committed import read_committed
from tests.clients.with_confluent import ConfluentClient
from tests.clients.writes import PARTITIONS, QUERY, RUN, START, numbers, plan, rows, write_by, write_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from barnabas.spark.write.exactly_once import BatchMarker
    from barnabas.spark.write.write_plan import Batch, WritePlan
    from tests.peers import Peer

pytestmark = pytest.mark.usefixtures("no_connections_from_before")

HOUR_MS = 3_600_000
WEEK_MS = 7 * 24 * HOUR_MS


def streaming(node: Peer, topic: str, **options: str) -> WritePlan:
    """A query that writes under the name of its topic."""
    return plan(node.bootstrap, topic=topic, kafka_transactional_id=topic, **options)


def run_batch(
    written: WritePlan, batch_id: int, tasks: dict[int, pa.RecordBatch | None], start_id: str = START
) -> list[TaskDone]:
    """Some tasks of a batch, each with its rows, and what they tell the driver."""
    done = []
    with borrowed(written.settings) as cluster:
        for task, batch_of_rows in tasks.items():
            batch = find_batch(cluster, written, written.output(QUERY), Run(QUERY, batch_id), start_id)
            batches = [] if batch_of_rows is None else [batch_of_rows]
            done.append(TaskDone(batch, *write_exactly_once(cluster, written, batch, task, batches)))
    return done


def commit(node: Peer, topic: str, done: list[TaskDone]) -> None:
    """As the driver does when all tasks of a batch are done."""
    options = {"kafka.bootstrap.servers": node.bootstrap, "topic": topic, "kafka.transactional.id": topic}
    writer = StreamWriter(options, StructType([StructField("value", StringType())]), overwrite=False)
    writer.commit(list(done), 0)


def one_row_each(first: int, task_count: int) -> dict[int, pa.RecordBatch | None]:
    return {task: rows(first + task, first + task + 1) for task in range(task_count)}


def known_batch(written: WritePlan) -> BatchMarker:
    with borrowed(written.settings) as cluster:
        found = marker_store.read_batch(cluster, written.output(QUERY))
    assert found is not None
    return found


def groups_of(node: Peer, identity: str) -> set[str]:
    names = ConfluentClient(node.bootstrap).group_names()
    return {group for group in names if group == identity or group.startswith(f"{identity}-")}


def written_values(node: Peer, topic: str) -> list[int]:
    return numbers(read_committed(node.bootstrap, topic, PARTITIONS))


def held_up(meanwhile: Callable[[], object], then: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Rows of an attempt that is held up before its first one while something else happens."""
    meanwhile()
    yield then


def refuse(*_: object, **__: object) -> bool:
    raise KafkaError(Error.GROUP_AUTHORIZATION_FAILED, "not for you to do")


@pytest.mark.parametrize("is_first", [True, False], ids=["before the batch is noted", "after the batch is noted"])
def test_an_attempt_whose_marker_has_been_removed_comes_too_late(node: Peer, output: str, is_first: bool) -> None:
    written = streaming(node, output)
    if not is_first:
        run_batch(written, 0, {0: rows(0, 1)})

    def two_batches() -> None:
        commit(node, output, run_batch(written, 0, one_row_each(0, 4)))
        commit(node, output, run_batch(written, 1, one_row_each(4, 2)))
        assert groups_of(node, output) == {batch_name(output), task_name(output, 0), task_name(output, 1)}

    with pytest.raises(MarkerError, match=rf"batch 0 of query {QUERY} is too late.*batch 1 of query {QUERY} has"):
        write_by(written, Run(QUERY, 0), held_up(two_batches, rows(3, 4)), task=3)
    assert written_values(node, output) == list(range(6))
    assert known_batch(written).run == Run(QUERY, 1), "it is not set back"


def test_an_attempt_comes_too_late_for_a_batch_after_which_nothing_was_written(node: Peer, output: str) -> None:
    written = streaming(node, output)

    def two_batches() -> None:
        commit(node, output, run_batch(written, 0, one_row_each(0, 4)))
        commit(node, output, run_batch(written, 1, {0: None, 1: None}))

    with pytest.raises(MarkerError, match=f"batch 0 of query {QUERY} is too late"):
        write_by(written, Run(QUERY, 0), held_up(two_batches, rows(3, 4)), task=3)
    assert written_values(node, output) == list(range(4))


def test_an_attempt_without_rows_does_not_set_the_batch_back(node: Peer, output: str) -> None:
    written = streaming(node, output)

    def two_batches() -> Iterator[pa.RecordBatch]:
        commit(node, output, run_batch(written, 0, one_row_each(0, 2)))
        commit(node, output, run_batch(written, 1, one_row_each(2, 2)))
        yield from ()

    with pytest.raises(MarkerError, match="is too late"):
        write_by(written, Run(QUERY, 0), two_batches(), task=3)
    assert known_batch(written).run == Run(QUERY, 1)


def test_a_query_whose_first_batch_has_no_rows_goes_on(node: Peer, output: str) -> None:
    written = streaming(node, output)
    commit(node, output, run_batch(written, 0, {0: None}))
    commit(node, output, run_batch(written, 1, {0: None}))
    commit(node, output, run_batch(written, 2, {0: rows(0, 1)}))
    assert written_values(node, output) == [0]


@pytest.mark.parametrize("options", [{}, {"kafka_transactional_id": "nightly"}], ids=["unnamed", "named"])
def test_an_attempt_of_a_batch_write_that_has_ended_comes_too_late(
    node: Peer, output: str, options: dict[str, str]
) -> None:
    written = plan(node.bootstrap, topic=output, **{name: f"{output}-{value}" for name, value in options.items()})
    batch = begin_write(written, "write-1")

    def write(of: Batch, batches: Iterator[pa.RecordBatch]) -> None:
        with borrowed(written.settings) as cluster:
            write_exactly_once(cluster, written, of, 0, batches)

    def its_twin() -> None:
        write(batch, iter([rows(0, 10)]))
        write(batch, iter([rows(0, 10)]))
        marker_store.end_write(written.settings, batch.output, batch.begun, 1)

    def another_write() -> None:
        other = begin_write(written, "write-2")
        write(other, iter([rows(10, 20)]))
        marker_store.end_write(written.settings, other.output, other.begun, 1)

    with pytest.raises(MarkerError, match="batch 0 of query write-1 is too late"):
        write(batch, held_up(its_twin, rows(0, 10)))
    with pytest.raises(MarkerError, match="batch 0 of query write-1 is too late"):
        write(batch, held_up(another_write, rows(0, 10)))
    assert written_values(node, output) == list(range(20))
    assert groups_of(node, batch.output.identity) == {batch_name(batch.output.identity)}
    marker_store.forget(written.settings, batch.output.identity)


def test_a_batch_write_that_has_ended_is_remembered_for_a_day(node: Peer, output: str) -> None:
    written = streaming(node, output)
    batch = begin_write(written, "write-1")
    assert kept_ms(node, output) == 30 * 24 * HOUR_MS
    marker_store.end_write(written.settings, batch.output, batch.begun, 0)
    assert kept_ms(node, output) == 24 * HOUR_MS


def test_a_batch_write_does_not_take_the_name_of_a_streaming_query(node: Peer, output: str) -> None:
    write_once(node, output, RUN, [rows(0, 10)])
    with pytest.raises(MarkerError, match=f"streaming query {QUERY} has written up to batch 0"):
        begin_write(streaming(node, output), "write-1")


def test_markers_that_a_batch_write_may_not_remove_are_no_error(
    node: Peer, output: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    written = streaming(node, output)
    batch = begin_write(written, "write-1")
    with borrowed(written.settings) as cluster:
        for task in range(2):
            write_exactly_once(cluster, written, batch, task, [rows(task, task + 1)])
    monkeypatch.setattr(marker_store, "delete_group", refuse)
    marker_store.end_write(written.settings, batch.output, batch.begun, 3)
    (warning,) = caplog.messages
    assert warning.startswith(f"cannot remove group {task_name(output, 0)} and those after it, which will expire")


def test_a_cluster_that_is_gone_when_a_batch_write_has_ended_is_no_error(
    fresh_node: Peer, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    ConfluentClient(fresh_node.bootstrap).create_topic(topic, PARTITIONS)
    batch = begin_write(plan(fresh_node.bootstrap, topic=topic), "write-1")
    fresh_node.kill()
    impatient = plan(fresh_node.bootstrap, kafka_default_api_timeout_ms="1000").settings
    marker_store.end_write(impatient, batch.output, batch.begun, 1)
    assert "cannot remove markers of a write" in caplog.text


def test_markers_that_a_stream_may_not_remove_are_no_error(
    node: Peer, output: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    written = streaming(node, output)
    commit(node, output, run_batch(written, 0, one_row_each(0, 2)))
    monkeypatch.setattr(marker_store, "delete_group", refuse)
    commit(node, output, run_batch(written, 1, one_row_each(2, 1)))
    assert f"group {task_name(output, 1)} and those after it, which will expire" in caplog.text
    assert known_batch(written).task_count == 1


def test_a_marker_that_may_have_expired_is_an_error_and_no_second_write(
    node: Peer, confluent: ConfluentClient, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_once(node, output, RUN, [rows(0, 10)])
    confluent.delete_group(task_name(output, 0))
    let_time_pass(WEEK_MS, monkeypatch)
    with pytest.raises(MarkerError, match=r"may have expired .*10080 minutes"):
        write_once(node, output, RUN, [rows(0, 10)])
    assert written_values(node, output) == list(range(10))
    monkeypatch.undo()
    write_once(node, output, Run(QUERY, 1), [rows(10, 20)])
    assert written_values(node, output) == list(range(20))


def test_where_brokers_do_not_say_how_long_markers_are_kept_an_hour_is_believed(
    node: Peer, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marker_store, "RETENTION_SETTING", "offsets.retention.fortnights")
    write_once(node, output, RUN, [rows(0, 10)])
    let_time_pass(HOUR_MS // 2, monkeypatch)
    write_once(node, output, RUN, [rows(10, 20)], task=1)
    let_time_pass(HOUR_MS, monkeypatch)
    with pytest.raises(MarkerError, match=r"cannot be read: .*does not say what offsets\.retention\.fortnights is"):
        write_once(node, output, RUN, [rows(20, 30)], task=2)
    assert written_values(node, output) == list(range(20))


def test_a_coordinator_that_is_none_of_the_brokers_does_not_say_how_long_markers_are_kept(
    node: Peer, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cluster, "ask_any", lambda *_: m.MetadataResponse(brokers=[]))
    with (
        borrowed(plan(node.bootstrap).settings) as cluster,
        pytest.raises(KafkaError, match="is not among the brokers"),
    ):
        marker_store.retention_ms(cluster, output)


def test_a_batch_write_may_take_its_time(node: Peer, output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written = plan(node.bootstrap, topic=output)
    batch = begin_write(written, "write-1")
    monkeypatch.setattr(marker_store, "retention_ms", lambda *_: pytest.fail("nobody needs to know"))
    let_time_pass(HOUR_MS // 2, monkeypatch)
    with borrowed(written.settings) as cluster:
        write_exactly_once(cluster, written, batch, 0, [rows(0, 10)])
    assert written_values(node, output) == list(range(10))


def let_time_pass(duration_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = write_plan.now_ms()
    monkeypatch.setattr(write_plan, "now_ms", lambda: now_ms + duration_ms)


def test_the_marker_of_a_batch_stays_where_its_query_may_come_back(node: Peer, output: str) -> None:
    decades_ms = 50 * 365 * 24 * HOUR_MS
    write_once(node, output, RUN, [rows(0, 10)])
    assert kept_ms(node, output) > decades_ms


def test_the_marker_of_a_batch_expires_where_nobody_could_name_it(node: Peer, output: str) -> None:
    written = plan(node.bootstrap, topic=output)
    write_by(written, Run(output, 0), [rows(0, 10)])
    assert kept_ms(node, identity_of(written.options, output)) == 90 * 24 * HOUR_MS


def kept_ms(node: Peer, identity: str) -> int:
    """How long the newest marker of a batch is kept, as its coordinator has written it."""
    partitions = ConfluentClient(node.bootstrap).partition_count("__consumer_offsets")
    found = read_committed(node.bootstrap, "__consumer_offsets", partitions)
    pairs = [(each.key or b"", each.value or b"") for each in found]
    *_, newest = [value for key, value in pairs if identity.encode() in key and b"begun_ms" in value]
    version, *_ = struct.unpack_from(">h", newest)
    assert version == 1, "the version of the record that says how long it is kept"
    commit_ms, expire_ms = struct.unpack_from(">qq", newest, len(newest) - 16)
    return int(expire_ms - commit_ms)


def test_markers_of_tasks_that_are_no_more_are_removed_and_in_the_end_all(node: Peer, output: str) -> None:
    written = streaming(node, output)
    commit(node, output, run_batch(written, 0, one_row_each(0, 3)))
    commit(node, output, run_batch(written, 1, one_row_each(3, 2)))
    assert groups_of(node, output) == {batch_name(output), task_name(output, 0), task_name(output, 1)}
    options = {"kafka.bootstrap.servers": node.bootstrap, "kafka.transactional.id": output}
    assert forget_output(options) == 3
    assert groups_of(node, output) == set()


def test_groups_that_hold_more_than_markers_are_left_alone(
    node: Peer, confluent: ConfluentClient, output: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody's consumer group has a name that a write chooses for one of its tasks."""
    theirs = task_name(output, 0)
    confluent.alter_offsets(theirs, {(output, 1): 3})
    written = streaming(node, output)
    batch = begin_write(written, "write-1")
    with borrowed(written.settings) as cluster:
        write_exactly_once(cluster, written, batch, 0, [rows(0, 1)])
    marker_store.end_write(written.settings, batch.output, batch.begun, 1)
    assert f"group {theirs} is left alone" in caplog.text
    forget_output({"kafka.bootstrap.servers": node.bootstrap, "kafka.transactional.id": output})
    assert confluent.committed_offsets(theirs)[output, 1] == 3
    confluent.delete_group(theirs)


def test_a_group_may_have_the_name_of_an_output(node: Peer, confluent: ConfluentClient, output: str) -> None:
    confluent.alter_offsets(output, {(output, 0): 3})
    write_once(node, output, RUN, [rows(0, 10)])
    assert forget_output({"kafka.bootstrap.servers": node.bootstrap, "kafka.transactional.id": output}) == 2
    assert confluent.committed_offsets(output) == {(output, 0): 3}
    confluent.delete_group(output)


def test_outputs_whose_names_differ_by_a_number_do_not_meet(node: Peer, output: str) -> None:
    numbered = plan(node.bootstrap, topic=output, kafka_transactional_id=f"{output}-1")
    run_batch(numbered, 0, one_row_each(0, 2))
    run_batch(streaming(node, output), 0, one_row_each(2, 2))
    assert forget_output({"kafka.bootstrap.servers": node.bootstrap, "kafka.transactional.id": output}) == 3
    run_batch(numbered, 1, one_row_each(4, 2))
    assert written_values(node, output) == list(range(6))


def test_an_output_without_a_name_cannot_be_forgotten() -> None:
    with pytest.raises(OptionError, match=r"checkpointLocation is missing, and so is kafka\.transactional\.id"):
        forget_output({"kafka.bootstrap.servers": "localhost:9092"})


def test_fewer_tasks_than_the_first_time_are_an_error(node: Peer, output: str) -> None:
    written = streaming(node, output)
    commit(node, output, run_batch(written, 0, one_row_each(0, 3)))
    with pytest.raises(MarkerError, match="the batch has only 2 tasks"):
        commit(node, output, run_batch(written, 0, one_row_each(0, 2)))


def test_tasks_of_an_earlier_start_that_are_no_more_are_found_though_no_finished_batch_had_them(
    node: Peer, output: str
) -> None:
    written = streaming(node, output)
    commit(node, output, run_batch(written, 0, one_row_each(0, 4)))
    run_batch(written, 1, {task: rows(4 + task, 5 + task) for task in (5, 6, 7)}, "first start")
    done = run_batch(written, 1, one_row_each(4, 4), "second start")
    with pytest.raises(MarkerError, match=f"task 5 of batch 1 of query {QUERY} has written 1 rows, .* only 4 tasks"):
        commit(node, output, done)


def test_a_batch_of_an_earlier_start_with_the_same_tasks_is_finished(node: Peer, output: str) -> None:
    written = streaming(node, output)
    commit(node, output, run_batch(written, 0, one_row_each(0, 4)))
    run_batch(written, 1, {2: rows(6, 7)}, "first start")
    commit(node, output, run_batch(written, 1, one_row_each(4, 4), "second start"))
    assert written_values(node, output) == list(range(8))
    assert known_batch(written).task_count == 4


def test_how_many_tasks_there_were_is_known_to_every_process_that_commits(node: Peer, output: str) -> None:
    written = streaming(node, output)
    commit(node, output, run_batch(written, 0, one_row_each(0, 4)))
    (done, *_) = run_batch(written, 1, one_row_each(4, 2))
    assert done.batch is not None
    with borrowed(written.settings) as cluster:  # as another process does
        marker_store.settle(cluster, done.batch.output, done.batch.begun, 2)
    commit(node, output, run_batch(written, 2, one_row_each(6, 4)))
    assert known_batch(written).task_count == 4


def test_a_batch_with_as_many_tasks_as_the_one_before_is_committed_without_a_word(
    node: Peer, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = streaming(node, output)
    commit(node, output, run_batch(written, 0, one_row_each(0, 2)))
    done = run_batch(written, 1, one_row_each(2, 2))
    monkeypatch.setattr(marker_store, "read_batch", refuse)
    commit(node, output, done)


def test_a_task_that_has_written_before_reads_the_marker_of_its_batch_once(
    node: Peer, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, read, reads = streaming(node, output), marker_store.read_batch, []

    def counted(cluster: Cluster, of: Output) -> BatchMarker | None:
        reads.append(of)
        return read(cluster, of)

    run_batch(written, 0, {0: rows(0, 1)})
    monkeypatch.setattr(marker_store, "read_batch", counted)
    run_batch(written, 1, {0: rows(1, 2)})
    assert len(reads) == 1


def test_a_query_without_a_name_is_told_once_that_a_lost_checkpoint_goes_unnoticed(
    node: Peer, output: str, caplog: pytest.LogCaptureFixture
) -> None:
    sink._warn.cache_clear()
    columns = StructType([StructField("value", StringType())])
    for more in (
        {},
        {"checkpointLocation": "/ck"},
        {"kafka.transactional.id": output},
        {"delivery": "at_least_once"},
        {},
    ):
        StreamWriter({"kafka.bootstrap.servers": node.bootstrap, "topic": output, **more}, columns, overwrite=False)
    (warning,) = caplog.messages
    assert "neither option checkpointLocation nor kafka.transactional.id" in warning
