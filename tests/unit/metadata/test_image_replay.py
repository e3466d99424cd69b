"""When a new image may be seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.metadata.image import MetadataImage
from barnabas.metadata.replay import ImageReplay, ReplayError
from barnabas.protocol import messages as m
from barnabas.protocol.uuids import Uuid

if TYPE_CHECKING:
    from barnabas.protocol.compiler.structs import Message


class Log:
    """Feeds batches to a loader, one offset a record."""

    def __init__(self) -> None:
        self.loader = ImageReplay(MetadataImage("cluster"))
        self.end = 0

    def batch(self, *records: Message) -> list[str] | None:
        """Applies a batch; the names of the topics in the image that it makes visible."""
        self.end += len(records)
        self.loader.apply_batch(records, last_offset=self.end - 1, epoch=1, timestamp_ms=self.end)
        publication = self.loader.publish()
        return None if publication is None else [topic.name for topic in publication.image.topics]


def topic(name: str) -> m.TopicRecord:
    return m.TopicRecord(name=name, topic_id=Uuid(name.encode().ljust(16, b"-")))


def test_each_batch_makes_an_image_at_its_last_offset() -> None:
    log = Log()
    assert log.batch(topic("a"), topic("b")) == ["a", "b"]
    image = log.loader.image
    assert (image.offset, image.epoch, image.timestamp_ms) == (1, 1, 2)


def test_nothing_new_publishes_nothing() -> None:
    log = Log()
    log.batch(topic("a"))
    assert log.loader.publish() is None


def test_nothing_inside_a_transaction_is_seen_before_it_ends() -> None:
    log = Log()
    log.batch(topic("a"))
    assert log.batch(m.BeginTransactionRecord(), topic("b")) in (None, ["a"])
    assert log.batch(topic("c")) is None
    assert log.loader.is_in_transaction
    assert log.batch(m.EndTransactionRecord()) == ["a", "b", "c"]
    assert not log.loader.is_in_transaction


def test_an_aborted_transaction_leaves_no_trace() -> None:
    log = Log()
    log.batch(topic("a"))
    log.batch(m.BeginTransactionRecord(), topic("b"))
    log.batch(m.RemoveTopicRecord(topic_id=topic("a").topic_id))
    assert log.batch(m.AbortTransactionRecord(), topic("d")) == ["a", "d"]


def test_what_comes_before_a_transaction_in_the_same_batches_is_seen_at_once() -> None:
    log = Log()
    loader = log.loader
    loader.apply_batch([topic("a")], last_offset=0, epoch=1, timestamp_ms=0)
    loader.apply_batch([m.BeginTransactionRecord(), topic("b")], last_offset=2, epoch=1, timestamp_ms=0)
    publication = loader.publish()
    assert publication is not None
    assert [created.name for created in publication.delta.created_topics] == ["a"]
    assert publication.image.offset == 0
    loader.apply_batch([m.EndTransactionRecord()], last_offset=3, epoch=1, timestamp_ms=0)
    publication = loader.publish()
    assert publication is not None
    assert [created.name for created in publication.delta.created_topics] == ["b"]


def test_an_aborted_transaction_hides_neither_what_was_touched_before_it_nor_a_new_controller() -> None:
    loader = Log().loader
    loader.apply_batch([topic("a")], last_offset=0, epoch=1, timestamp_ms=0)
    loader.apply_batch([m.BeginTransactionRecord(), topic("b")], last_offset=2, epoch=1, timestamp_ms=0)
    loader.set_controller(4)
    loader.apply_batch([m.AbortTransactionRecord()], last_offset=3, epoch=2, timestamp_ms=0)
    publication = loader.publish()
    assert publication is not None
    assert [created.name for created in publication.delta.created_topics] == ["a"]
    assert publication.image.controller_id == 4


@pytest.mark.parametrize(
    "records",
    [
        [m.EndTransactionRecord()],
        [m.AbortTransactionRecord()],
        [m.BeginTransactionRecord(), m.BeginTransactionRecord()],
    ],
    ids=["end", "abort", "begin twice"],
)
def test_unbalanced_transactions_are_errors(records: list[Message]) -> None:
    with pytest.raises(ReplayError):
        Log().batch(*records)
