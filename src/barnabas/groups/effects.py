"""What a step of a group asks of whoever drives it: records to append, and answers to send once they are committed.

The state that a step leaves behind has its records applied already, so that the next request need not wait for the
log. Answers do wait, for the records of their own step and of all earlier ones: nobody outside sees a state that a
restart could take back. When an append fails, the driver answers with Kafka's error in place of these answers and
replays the state from the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from barnabas.protocol.structs import Message

ReplyTo: TypeAlias = object
"""Whoever asked. The driver knows which waiting request it stands for; a group only keeps it and hands it back."""


class Record(NamedTuple):
    """One record of `__consumer_offsets`, before it is bytes."""

    key: Message
    value: Message | None
    """None: a tombstone, which takes back what the key stood for."""


class Effects:
    __slots__ = ("answers", "records")

    def __init__(self) -> None:
        self.records: list[Record] = []
        """To be appended in this order, in one batch."""
        self.answers: list[tuple[ReplyTo, Message]] = []

    def write(self, record: Record) -> None:
        self.records.append(record)

    def answer(self, reply_to: ReplyTo, response: Message) -> None:
        self.answers.append((reply_to, response))

    def extend(self, other: Effects) -> None:
        """Adds what a further step asks for, after what is asked for here."""
        self.records.extend(other.records)
        self.answers.extend(other.answers)

    def __repr__(self) -> str:
        return f"Effects(records={self.records!r}, answers={self.answers!r})"
