"""What a step of a coordinator asks of its driver: records to append, and answers to send once they are committed.

The state that a step leaves behind has its records applied already, so that the next request need not wait for the
log. Answers do wait, for the records of their own step and of all earlier ones: nobody outside sees a state that a
restart could take back. When an append fails, the driver answers with Kafka's error in place of these answers and
replays the state from the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, NewType, TypeAlias

if TYPE_CHECKING:
    from barnabas.protocol.structs import Message

ReplyTo: TypeAlias = object
"""Whoever asked. The driver knows which waiting request it stands for; others only keep it and hand it back."""


ProducerId = NewType("ProducerId", int)

NO_PRODUCER_ID: Final = ProducerId(-1)


class Record(NamedTuple):
    """One record of a coordinator's topic, before it is bytes."""

    key: Message
    value: Message | None
    """None: a tombstone, which takes back what the key stood for."""


class Producer(NamedTuple):
    """In whose transaction records are written."""

    producer_id: ProducerId
    epoch: int


class Effects:
    __slots__ = ("answers", "notes", "orders", "producer", "records")

    def __init__(self, producer: Producer | None = None) -> None:
        self.producer = producer
        """Records of a producer's transaction: they count when it commits."""
        self.records: list[Record] = []
        """To be appended in this order, in one batch."""
        self.answers: list[tuple[ReplyTo, Message]] = []
        self.orders: list[object] = []
        """What is to be done elsewhere, once the records are committed; the coordinator's driver knows how."""
        self.notes: list[str] = []
        """For the node's log: what happened to a client without its doing, and which it may only learn by guessing."""

    def write(self, record: Record) -> None:
        self.records.append(record)

    def answer(self, reply_to: ReplyTo, response: Message) -> None:
        self.answers.append((reply_to, response))

    def order(self, order: object) -> None:
        self.orders.append(order)

    def note(self, what: str) -> None:
        self.notes.append(what)

    def extend(self, other: Effects) -> None:
        """Adds what a further step asks for, after what is asked for here."""
        assert self.producer == other.producer, "records in a transaction and outside of it are not written together"
        self.records.extend(other.records)
        self.answers.extend(other.answers)
        self.orders.extend(other.orders)
        self.notes.extend(other.notes)

    def __repr__(self) -> str:
        return f"Effects(records={self.records!r}, answers={self.answers!r}, orders={self.orders!r})"
