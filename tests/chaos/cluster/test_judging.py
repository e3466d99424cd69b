"""The judges and the measures themselves: they see what they are there to see, and nothing where nothing is."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from tests.chaos.cluster import measures
from tests.chaos.cluster.faults import Fault, Sign
from tests.chaos.cluster.judge import (
    CHECKPOINT,
    judge_acknowledged,
    judge_logs,
    judge_order,
    judge_outputs,
    judge_replicas,
    judge_signs,
)
from tests.chaos.cluster.measures import Gap, Happened
from tests.chaos.cluster.report import Report, facts, markdown, save
from tests.chaos.cluster.traffic import Acknowledgements, value_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

TWO_PRODUCERS = [value_of(0, 0), value_of(1, 0), value_of(0, 1), value_of(0, 2), value_of(1, 1)]


def acknowledged(values: Iterable[bytes]) -> Acknowledgements:
    found = Acknowledgements()
    for offset, value in enumerate(values):
        producer, _, number = value.partition(b"-")
        found.add(float(offset), int(producer), int(number), offset)
    return found


def test_a_complete_log_is_right() -> None:
    assert judge_acknowledged("p", TWO_PRODUCERS, acknowledged(TWO_PRODUCERS)) == []
    assert judge_order("p", TWO_PRODUCERS, [3, 2]) == []


@pytest.mark.parametrize(
    ("what", "values"),
    [
        ("the last one lost", TWO_PRODUCERS[:-1]),
        ("one in the middle lost", TWO_PRODUCERS[:2] + TWO_PRODUCERS[3:]),
        ("one doubled", [*TWO_PRODUCERS, TWO_PRODUCERS[-1]]),
        ("two in another order", [*TWO_PRODUCERS[:2], TWO_PRODUCERS[3], TWO_PRODUCERS[2], TWO_PRODUCERS[4]]),
    ],
)
def test_a_record_lost_doubled_or_out_of_order_is_seen(what: str, values: list[bytes]) -> None:
    wrong = judge_order("p", values, [3, 2])
    assert len(wrong) == 1, what
    if what != "one doubled":
        assert judge_acknowledged("p", values, acknowledged(TWO_PRODUCERS))


def test_outputs_must_be_the_expected_ones_to_the_last() -> None:
    expected = [b"0", b"2", b"4"]
    assert judge_outputs("sink", [b"0", b"2", b"4"], expected) == []
    for values in ([b"0", b"2"], [b"0", b"2", b"4", b"4"], [b"0", b"4", b"2"]):
        assert judge_outputs("sink", values, expected)


def write_replica(folder: Path, batches: list[tuple[int, bytes]], high_watermark: int) -> None:
    """As a node leaves it: batches of (base offset, what follows the length), and its checkpoint."""
    (folder / "t-0").mkdir(parents=True)
    content = b"".join(struct.pack(">qi", base, len(rest)) + rest for base, rest in batches)
    (folder / "t-0" / "00000000000000000000.log").write_bytes(content)
    (folder / CHECKPOINT).write_text(f"0\n1\nt 0 {high_watermark}\n")


def test_replicas_are_compared_below_the_high_watermark_only(tmp_path: Path) -> None:
    write_replica(tmp_path / "1", [(0, b"one"), (1, b"two")], 1)
    write_replica(tmp_path / "2", [(0, b"one"), (1, b"xyz")], 1)
    folders = {1: tmp_path / "1", 2: tmp_path / "2"}
    assert judge_replicas(folders) == []
    write_replica(tmp_path / "3", [(0, b"ONE"), (1, b"two")], 1)
    (wrong,) = judge_replicas({**folders, 3: tmp_path / "3"})
    assert "t-0 differ below offset 1" in wrong


def test_replicas_that_end_at_different_high_watermarks_are_seen(tmp_path: Path) -> None:
    write_replica(tmp_path / "1", [(0, b"one"), (1, b"two")], 2)
    write_replica(tmp_path / "2", [(0, b"one")], 1)
    (wrong,) = judge_replicas({1: tmp_path / "1", 2: tmp_path / "2"})
    assert "different high watermarks" in wrong


def test_exceptions_that_nobody_handled_are_seen_in_the_logs() -> None:
    assert judge_logs({1: "INFO all is well\nWARNING a peer is gone"}) == []
    (wrong,) = judge_logs({1: "ERROR x\nTraceback (most recent call last):\n  File y", 2: ""})
    assert "node 1" in wrong
    assert judge_logs({1: "Task exception was never retrieved"})


def test_a_fault_that_no_log_names_is_seen() -> None:
    fault = Fault("cut off", "node 2 is cut off", (2,), lambda: None, lambda: None, 1.0, (Sign("fencing", (1, 2)),))
    assert judge_signs(fault, {1: "fencing broker 2: no heartbeat", 2: ""}) == []
    assert judge_signs(fault, {1: "", 2: ""})


def test_gaps_are_those_between_acknowledgements_and_up_to_the_end() -> None:
    assert measures.gaps([0.1, 0.2, 2.0, 2.1], 3, 4.0) == [Gap(3, 0.2, 2.0), Gap(3, 2.1, 4.0)]


def test_the_effect_of_a_fault_is_the_longest_gap_that_it_touches() -> None:
    fault = Happened("kill", "node 1 is killed", 5.0, 6.0, 7.0, 7.5)
    one = [1.0, 4.0, 4.9, 5.9, 6.0, 9.0]
    other = [4.95, 5.05, 5.5, 6.5, 7.2]
    found = measures.effect(fault, [one, other], sorted(one + other))
    assert found.longest_s == pytest.approx(3.0)  # from 6.0, before all replicas were in sync, to 9.0
    assert found.partitions_hit == 1
    assert found.silent_s == pytest.approx(0.7)  # from 6.5 to 7.2
    (summary,) = measures.by_kind([found])
    assert (summary.kind, summary.count) == ("kill", 1)
    assert summary.held.worst == pytest.approx(1.0)


def test_a_report_has_its_page_its_data_and_its_picture(tmp_path: Path) -> None:
    report = Report(3, 7, began_at=100.0, ended_at=110.0, fed=5, processed={"classic": 5})
    report.acknowledged = [Acknowledgements(), Acknowledgements()]
    for step in range(100):
        report.acknowledged[0].add(100.0 + step / 10, 0, step, step)
        if not 30 <= step < 55:
            report.acknowledged[1].add(100.0 + step / 10, 0, step, step)
    report.happened.append(Happened("cut off", "node 2 is cut off", 3.0, 5.0, 6.0, 6.5))
    (gap,) = report.partition_gaps()
    assert gap.partition == 1
    assert gap.length_s == pytest.approx(2.6)
    assert "| cut off | 1 | 2.0 s | 2.6 s | 2.6 s |" in markdown(report)
    assert facts(report)["by_kind"][0]["longest"]["worst"] == pytest.approx(2.6)
    save(report, tmp_path)
    assert "cut off" in (tmp_path / "acknowledgements.svg").read_text()
    report.violations.append("something is lost")
    assert "something is lost" in markdown(report)
