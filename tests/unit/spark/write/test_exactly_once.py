"""What a task does that finds a marker, none, or that of somebody else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.spark.write.exactly_once import (
    FRESH_MS,
    KEPT_SURELY_MS,
    BatchMarker,
    Decision,
    MarkerError,
    Run,
    TaskMarker,
    batch_metadata,
    begin,
    begin_write,
    check_age,
    check_current,
    check_retention,
    check_surplus,
    compare_rows,
    decide,
    ended,
    identity_of,
    identity_of_checkpoint,
    is_superseded,
    needs_retention,
    read_batch_marker,
    read_task_marker,
    task_metadata,
)
from barnabas.spark.write.sink_options import SinkOptions, parse_sink

if TYPE_CHECKING:
    from pathlib import Path

NOW_MS = 1_700_000_000_000
WEEK_MS = 7 * 24 * 3_600_000


def options(**more: str) -> SinkOptions:
    given = {"kafka.bootstrap.servers": "localhost:9092", "topic": "t", **more}
    return parse_sink({name.replace("_", "."): value for name, value in given.items()})


def begun(batch_id: int, query_id: str = "q", at_ms: int = NOW_MS - 1, task_count: int = 2) -> BatchMarker:
    return BatchMarker(Run(query_id, batch_id), "start", at_ms, task_count)


def written(batch_id: int, query_id: str = "q") -> TaskMarker:
    return TaskMarker(Run(query_id, batch_id), 10, 99)


def start(found: BatchMarker | None, run: Run, **more: str) -> BatchMarker:
    return begin(found, run, "again", "id", options(**more), NOW_MS)


def test_the_first_batch_of_a_query_needs_no_marker() -> None:
    assert start(None, Run("q", 0)) == BatchMarker(Run("q", 0), "again", NOW_MS, 0)


def test_a_later_batch_without_any_marker_is_refused() -> None:
    with pytest.raises(MarkerError, match=r"batch 3 of query q is not its first.*onMissingMarker=write"):
        start(None, Run("q", 3))
    assert start(None, Run("q", 3), onMissingMarker="write").run == Run("q", 3)


def test_the_next_batch_begins_now_and_knows_how_many_tasks_there_were() -> None:
    assert start(begun(4), Run("q", 5)) == BatchMarker(Run("q", 5), "again", NOW_MS, 2)


def test_a_batch_that_is_run_again_was_begun_when_and_by_whom_it_was_first() -> None:
    assert start(begun(5), Run("q", 5)) == begun(5)


def test_another_query_with_the_same_identity_has_lost_its_checkpoint() -> None:
    with pytest.raises(MarkerError, match=r"query q has written up to batch 5.*batch 0 of query new.*onLostCheckpoint"):
        start(begun(5), Run("new", 0))
    restarted = start(begun(5), Run("new", 0), onLostCheckpoint="restart")
    assert restarted == BatchMarker(Run("new", 0), "again", NOW_MS, 2)


def test_a_batch_before_the_one_that_was_begun_last_is_refused() -> None:
    with pytest.raises(MarkerError, match="batch 4 of query q is to be written, but batch 5 has already begun"):
        start(begun(5), Run("q", 4))


def test_a_task_that_finds_its_marker_writes_nothing() -> None:
    assert decide(written(5), Run("q", 5)) is Decision.SKIP


def test_a_task_that_finds_an_older_marker_writes() -> None:
    assert decide(written(4), Run("q", 5)) is Decision.WRITE


def test_a_task_without_a_marker_of_its_query_has_to_look_again() -> None:
    assert decide(None, Run("q", 5)) is Decision.UNSURE
    assert decide(written(9, "before"), Run("q", 5)) is Decision.UNSURE


def test_what_was_known_of_a_batch_may_only_have_changed_into_the_batch_itself() -> None:
    for known, found in [
        (None, None),
        (None, begun(5)),
        (begun(4), begun(4)),
        (begun(4), begun(5)),
        (begun(5), begun(5)),
        (begun(9, "before"), begun(5)),
    ]:
        check_current(known, found, Run("q", 5), "id")
    for known, found in [(None, begun(6)), (begun(4), begun(6)), (begun(5), begun(6)), (begun(5), begun(0, "new"))]:
        with pytest.raises(MarkerError, match="batch 5 of query q is too late and has written nothing"):
            check_current(known, found, Run("q", 5), "id")
    with pytest.raises(MarkerError, match=r"its batch marker is gone \(group id-batch\)"):
        check_current(begun(5), None, Run("q", 5), "id")


def test_a_batch_write_is_a_query_of_its_own_that_ends() -> None:
    first = begin_write(None, "write-1", "id", NOW_MS)
    assert first == BatchMarker(Run("write-1", 0), "write-1", NOW_MS, 0)
    assert begin_write(first, "write-2", "id", NOW_MS).run == Run("write-2", 0)
    with pytest.raises(MarkerError, match="is too late"):
        check_current(first, ended(first), first.run, "id")


def test_a_batch_write_does_not_take_over_what_a_streaming_query_writes() -> None:
    with pytest.raises(MarkerError, match=r"streaming query q has written up to batch 5 .*kafka\.transactional\.id"):
        begin_write(begun(5), "write-1", "id", NOW_MS)


def test_a_batch_is_superseded_by_a_later_one_and_by_another_query() -> None:
    assert not is_superseded(Run("q", 5), begun(4))
    assert not is_superseded(Run("q", 5), begun(5))
    assert is_superseded(Run("q", 5), begun(6))
    assert is_superseded(Run("q", 5), begun(0, "new"))


def test_a_task_that_has_written_a_later_batch_is_refused() -> None:
    with pytest.raises(MarkerError, match="but this task has already written batch 6"):
        decide(written(6), Run("q", 5))


def test_how_long_markers_are_kept_matters_to_batches_that_were_not_begun_just_now() -> None:
    assert not needs_retention(begun(5, at_ms=NOW_MS - FRESH_MS), options(), NOW_MS)
    assert needs_retention(begun(5, at_ms=NOW_MS - FRESH_MS - 1), options(), NOW_MS)
    assert not needs_retention(begun(5, at_ms=NOW_MS - WEEK_MS), options(onMissingMarker="write"), NOW_MS)


def test_a_marker_that_may_have_expired_is_an_error() -> None:
    check_retention(begun(5, at_ms=NOW_MS - WEEK_MS // 2), WEEK_MS, NOW_MS)
    with pytest.raises(MarkerError, match=r"begun 10080 minutes ago.*may have expired.*offsets\.retention\.minutes"):
        check_retention(begun(5, at_ms=NOW_MS - WEEK_MS), WEEK_MS, NOW_MS)


def test_where_nobody_says_how_long_markers_are_kept_an_hour_is_believed() -> None:
    check_age(begun(5, at_ms=NOW_MS - KEPT_SURELY_MS), NOW_MS, "not for you to know")
    with pytest.raises(MarkerError, match=r"begun 60 minutes ago.*cannot be read: not for you to know.*describe"):
        check_age(begun(5, at_ms=NOW_MS - KEPT_SURELY_MS - 1), NOW_MS, "not for you to know")


def test_other_rows_than_the_first_time_are_an_error() -> None:
    compare_rows(written(5), 10, 99, task=1)
    with pytest.raises(MarkerError, match=r"task 1 of batch 5 of query q .* 11 rows instead of 10 the first time"):
        compare_rows(written(5), 11, 99, task=1)
    with pytest.raises(MarkerError, match="10 rows whose content differs from the first time"):
        compare_rows(written(5), 10, 98, task=1)


def test_fewer_tasks_than_the_first_time_are_an_error() -> None:
    check_surplus(None, Run("q", 5), 3, 3)
    check_surplus(written(4), Run("q", 5), 3, 3)
    with pytest.raises(MarkerError, match=r"task 3 of batch 5 .* has only 3 tasks"):
        check_surplus(written(5), Run("q", 5), 3, 3)


def test_markers_are_read_as_they_were_written() -> None:
    assert read_batch_marker("g", 5, batch_metadata(begun(5))) == begun(5)
    assert read_task_marker("g", 5, task_metadata(written(5))) == written(5)


@pytest.mark.parametrize("metadata", ["", "{", "[]", "{}", '{"query": 1, "rows": 2, "sum": "3"}'])
def test_an_offset_of_somebody_else_is_not_taken_for_a_marker(metadata: str) -> None:
    with pytest.raises(MarkerError, match=r"group g holds an offset that is not a marker.*kafka\.transactional\.id"):
        read_task_marker("g", 5, metadata)


def test_an_output_is_named_by_its_option_else_its_checkpoint_else_its_query() -> None:
    named = options(kafka_transactional_id="orders", checkpointLocation="/c")
    assert identity_of(named, "q") == "orders"
    assert identity_of(options(checkpointLocation="/c"), "q") == identity_of_checkpoint("/c")
    assert identity_of(options(), "q") == "barnabas-sink-q"


def test_a_local_checkpoint_has_one_identity_however_it_is_spelt() -> None:
    spellings = ["/a/b", "/a/b/", "//a//b", "/a/./c/../b", "file:/a/b", "file:///a/b/", "file:/a/c/../b"]
    assert len({identity_of_checkpoint(each) for each in spellings}) == 1
    assert identity_of_checkpoint("/a/b") != identity_of_checkpoint("/a/c")
    assert identity_of_checkpoint("s3a://a/b") != identity_of_checkpoint("hdfs://a/b")
    assert identity_of_checkpoint("s3a://a/b/") == identity_of_checkpoint("s3a://a/b")


def test_a_relative_checkpoint_is_that_of_the_folder_where_the_driver_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "one")
    on_the_driver = options(checkpointLocation="ck")
    monkeypatch.chdir(tmp_path / "other")
    assert identity_of(on_the_driver, "q") == identity_of_checkpoint(str(tmp_path / "one" / "ck"))
    assert identity_of(options(checkpointLocation="ck"), "q") != identity_of(on_the_driver, "q")
