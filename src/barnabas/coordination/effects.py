"""What a coordinator shard asks of its driver: records, answers and actions of a step now, and alarms for later.

A step leaves a state in which its records are applied already, so that the next request need not wait for the log.
Answers do wait, for the records of their own step and of all earlier ones: no client sees a state that a restart could
undo. When an append fails, the driver answers with an error instead, and has the step undone; what cannot be undone
makes it load the shard again from the log.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple, NewType, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.compiler.structs import Message
    from barnabas.protocol.errors import Error

    Undo = Callable[[Error, int], "Effects"]
    """Called if the record cannot be written, with what clients are told and the time in ms. The driver refuses the
    answers of the step itself; what is returned are further answers, and it writes nothing."""

ReplyTo: TypeAlias = object
"""The request to be answered. The driver knows which one it stands for; a shard only keeps it and hands it back."""

Action: TypeAlias = object
"""Work outside of a shard: a value that the shard's coordinator knows how to carry out, such as `WriteMarkers`."""

ProducerId = NewType("ProducerId", int)

NO_PRODUCER_ID: Final = ProducerId(-1)


class Record(NamedTuple):
    """One record of a coordinator's topic, before it is encoded."""

    key: Message
    value: Message | None
    """None: a tombstone, which deletes what the key stands for."""


class Producer(NamedTuple):
    """The producer in whose transaction records are written."""

    producer_id: ProducerId
    epoch: int


class Effects:
    __slots__ = ("actions", "answers", "notes", "producer", "records", "undos")

    def __init__(self, producer: Producer | None = None) -> None:
        self.producer = producer
        """If the records are part of a producer's transaction: they count when it commits."""
        self.records: list[Record] = []
        """To be appended in this order, in one batch."""
        self.undos: list[Undo] = []
        """What makes the state do without the records, one for each of them if all can be undone."""
        self.answers: list[tuple[ReplyTo, Message]] = []
        self.actions: list[Action] = []
        """To be started when the records are committed."""
        self.notes: list[str] = []
        """For the node's log: what happened to a client that did not ask for it and is not told why."""

    def write(self, record: Record, undo: Undo | None = None) -> None:
        self.records.append(record)
        if undo is not None:
            self.undos.append(undo)

    @property
    def can_be_undone(self) -> bool:
        return len(self.undos) == len(self.records) and not self.actions

    def answer(self, reply_to: ReplyTo, response: Message) -> None:
        self.answers.append((reply_to, response))

    def schedule(self, action: Action) -> None:
        self.actions.append(action)

    def note(self, message: str) -> None:
        self.notes.append(message)

    def extend(self, other: Effects) -> None:
        """Adds the effects of a later step."""
        assert self.producer == other.producer, "records inside and outside of a transaction cannot share a batch"
        self.records.extend(other.records)
        self.undos.extend(other.undos)
        self.answers.extend(other.answers)
        self.actions.extend(other.actions)
        self.notes.extend(other.notes)

    def __repr__(self) -> str:
        return f"Effects(records={self.records!r}, answers={self.answers!r}, actions={self.actions!r})"


DUE_AT_ONCE: Final = 500
"""Alarms that go off in one step; the others follow in the next, at once."""


class Alarms:
    """Which groups, or transactions, may have something due, without asking all of them.

    A group's deadline moves with every heartbeat, nearly always to later. An alarm stays where it was set unless an
    earlier one replaces it, so a heartbeat costs nothing here. A group whose alarm goes off too early is asked, has
    nothing due, and gets a new alarm.

    Invariant: each name with an alarm has it in `_queue`, which also holds alarms that an earlier one has replaced.
    """

    __slots__ = ("_at_ms", "_queue")

    def __init__(self) -> None:
        self._at_ms: dict[str, int] = {}
        self._queue: list[tuple[int, str]] = []

    @property
    def next_ms(self) -> int | None:
        return self._queue[0][0] if self._queue else None

    def set(self, name: str, at_ms: int) -> None:
        """Makes sure that the alarm of this name goes off at this time or earlier."""
        current_ms = self._at_ms.get(name)
        if current_ms is None or at_ms < current_ms:
            self._at_ms[name] = at_ms
            heappush(self._queue, (at_ms, name))

    def take_due(self, now_ms: int) -> list[str]:
        """The names whose alarm goes off, by time, or the first of very many. They have none until one is set again."""
        due: list[str] = []
        while self._queue and self._queue[0][0] <= now_ms and len(due) < DUE_AT_ONCE:
            at_ms, name = heappop(self._queue)
            if self._at_ms.get(name) == at_ms:
                del self._at_ms[name]
                due.append(name)
        return due
