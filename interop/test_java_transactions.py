"""The Java client's transactional producer, and its consumers that read what was committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interop.clusters import ON_BOTH
from interop.test_java_groups import BOTH_PROTOCOLS

if TYPE_CHECKING:
    from interop.programs import Program
    from interop.test_java_groups import Settings

PARTITIONS = 3


@ON_BOTH
def test_only_what_is_committed_is_read_by_who_asks_for_that(java: Program, topic: str) -> None:
    """In each partition: a record and its marker, a record and its marker, and a record that is open."""
    assert java.run("commit-and-abort", topic=topic) == {
        "last_stable_offset": 4,
        "end_offset": 5,
        "committed_while_open": ["committed"] * PARTITIONS,
        "all": ["committed", "aborted", "open"] * PARTITIONS,
        "committed": ["committed", "open"] * PARTITIONS,
    }


@ON_BOTH
@BOTH_PROTOCOLS
def test_output_and_place_are_committed_together(java: Program, group: str, settings: Settings) -> None:
    """Every other transaction is aborted, and five records are taken at a time."""
    seen = java.run("offsets-in-transactions", group=group, settings=settings)
    assert sorted(seen["output"]) == sorted(f"value-{i}" for i in range(20))
    assert seen["places"] == [0, 5, 5, 10, 10, 15, 15, 20]


@BOTH_PROTOCOLS
def test_offsets_of_a_generation_that_is_over_are_refused(java: Program, group: str, settings: Settings) -> None:
    seen = java.run("stale-generation", group=group, settings=settings)
    assert seen == {"refusal": "CommitFailedException", "place": 0}


@ON_BOTH
def test_a_zombie_is_fenced_and_what_it_wrote_is_aborted(java: Program, topic: str) -> None:
    assert java.run("zombie", topic=topic) == {
        "sent": "InvalidProducerEpochException",
        "committed": "InvalidProducerEpochException",
        "read": ["successor"] * PARTITIONS,
    }


def test_a_producer_is_fenced_by_an_administrator(java: Program, topic: str) -> None:
    assert java.run("fenced-by-admin", topic=topic) == {"committed": "ProducerFencedException", "read": []}


def test_a_transaction_that_is_open_for_too_long_is_aborted(java: Program, topic: str) -> None:
    assert java.run("timed-out", topic=topic) == {"committed": "InvalidTxnStateException", "read": []}


def test_an_open_transaction_is_described_and_listed(java: Program, topic: str) -> None:
    assert java.run("described", topic=topic) == {
        "state_before": "Empty",
        "state": "Ongoing",
        "partitions": [f"{topic}-{partition}" for partition in range(PARTITIONS)],
        "timeout_ms": 60_000,
        "has_start": True,
        "listed": [topic],
        "listed_long_running": [],
        "is_same_producer": True,
        "open_from": 0,
    }
