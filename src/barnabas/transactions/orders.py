"""What transactions ask of their driver besides records and answers, to be done once the records are committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from barnabas.coordination.effects import ProducerId
    from barnabas.transactions.state import TopicPartition


class WriteMarkers(NamedTuple):
    """A decision, for each partition of the transaction.

    Whoever carries it out does not give up: it tries each partition until its leader has the marker on all in-sync
    replicas, or until the partition needs none, because it is gone with its topic or has seen a newer epoch of the
    producer. Then it hands the order back to `markers_written`. Only when the shard resigns, or is read again from the
    log, the order is void: whoever leads the log then finds the decision there, and orders anew. A partition may
    therefore get the same marker twice.
    """

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    partitions: tuple[TopicPartition, ...]
    """At least one."""
    transaction_version: int
    """Of the transaction: from 2 on, the epoch is one above that of the records that the marker ends."""


class NeedProducerId(NamedTuple):
    """A transaction has timed out whose producer has used up its epochs: the abort has to come with a new producer id.

    Whoever carries it out takes an id and calls `abort_timed_out`. If there is none to be had, nothing is lost: the
    order comes again with the next search for such transactions.
    """

    transactional_id: str
