"""Which brokers get the replicas of new partitions.

Kafka's striped placement: rotate through the racks, and within a rack through its brokers, each from a random start
that advances by one with every partition. Thus leaders and followers are spread evenly, and the replicas of a partition
are on different racks if there are enough. A fenced broker gets a follower only if there are not enough others, and
never a leader.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable

Below = Callable[[int], int]
"""Returns a random number from 0 up to, but not including, the argument."""


class UsableBroker(NamedTuple):
    id: int
    rack: str | None
    fenced: bool


def place_replicas(
    brokers: Iterable[UsableBroker], partition_count: int, replication_factor: int, below: Below
) -> list[tuple[int, ...]]:
    """The replicas of each new partition, the preferred leader first."""
    cluster = _Racks(brokers, below)
    if replication_factor <= 0:
        raise KafkaError(
            Error.INVALID_REPLICATION_FACTOR,
            f"Invalid replication factor {replication_factor}: the replication factor must be positive.",
        )
    if cluster.unfenced_count == 0:
        raise KafkaError(
            Error.INVALID_REPLICATION_FACTOR,
            "All brokers are currently fenced, or have all their log directories cordoned.",
        )
    if replication_factor > cluster.broker_count:
        raise KafkaError(
            Error.INVALID_REPLICATION_FACTOR,
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{cluster.broker_count} broker(s) are registered or some brokers have all their log directories cordoned.",
        )
    if cluster.broker_count == 1:
        # Nothing to choose, however many partitions there are.
        return [cluster.place(replication_factor)] * partition_count
    return [cluster.place(replication_factor) for _ in range(partition_count)]


class _Ring:
    """Brokers in rotation; each round starts one further than the last."""

    __slots__ = ("_brokers", "_round", "_start", "_taken")

    def __init__(self, brokers: list[int], below: Below) -> None:
        self._brokers = sorted(brokers)
        self._start = below(len(brokers)) if brokers else 0
        self._round = 0
        self._taken = 0

    def next(self, round_number: int) -> int | None:
        count = len(self._brokers)
        if round_number != self._round and count:
            self._round = round_number
            self._taken = 0
            self._start = (self._start + 1) % count
        if self._taken >= count:
            return None
        broker = self._brokers[(self._start + self._taken) % count]
        self._taken += 1
        return broker

    def shuffle(self, below: Below) -> None:
        _shuffle(self._brokers, below)


class _Rack:
    __slots__ = ("fenced", "unfenced")

    def __init__(self, brokers: list[UsableBroker], below: Below) -> None:
        self.fenced = _Ring([broker.id for broker in brokers if broker.fenced], below)
        self.unfenced = _Ring([broker.id for broker in brokers if not broker.fenced], below)

    def next(self, round_number: int) -> int | None:
        broker = self.unfenced.next(round_number)
        return self.fenced.next(round_number) if broker is None else broker


class _Racks:
    __slots__ = ("_below", "_first", "_racks", "_round", "broker_count", "unfenced_count")

    def __init__(self, brokers: Iterable[UsableBroker], below: Below) -> None:
        by_rack: dict[str | None, list[UsableBroker]] = {}
        for broker in brokers:
            by_rack.setdefault(broker.rack, []).append(broker)
        names = sorted(by_rack, key=lambda name: (name is not None, name or ""))
        self._racks = [_Rack(by_rack[name], below) for name in names]
        self._below = below
        self._first = below(len(names)) if names else 0
        self._round = 0
        self.broker_count = sum(len(rack) for rack in by_rack.values())
        self.unfenced_count = sum(not broker.fenced for rack in by_rack.values() for broker in rack)

    def place(self, replication_factor: int) -> tuple[int, ...]:
        if self._round and self._round % self.unfenced_count == 0:
            # Every broker has led once: shuffle, so that the same neighbors do not repeat forever.
            _shuffle(self._racks, self._below)
            for rack in self._racks:
                rack.fenced.shuffle(self._below)
                rack.unfenced.shuffle(self._below)
        self._first %= len(self._racks)
        replicas = self._place(replication_factor)
        self._round += 1
        self._first += 1
        return replicas

    def _place(self, replication_factor: int) -> tuple[int, ...]:
        leader_rack, leader = self._find_leader()
        replicas = [leader]
        index = self._first
        # The leader's rack skips its first turn, because it already has a replica.
        skipped = False
        while len(replicas) < replication_factor:
            if index == leader_rack and not skipped:
                skipped = True
            else:
                broker = self._racks[index].next(self._round)
                if broker is not None:
                    replicas.append(broker)
            index = (index + 1) % len(self._racks)
        return tuple(replicas)

    def _find_leader(self) -> tuple[int, int]:
        for step in range(len(self._racks)):
            index = (self._first + step) % len(self._racks)
            broker = self._racks[index].unfenced.next(self._round)
            if broker is not None:
                return index, broker
        raise AssertionError("some broker is unfenced, yet no rack has one left")


def _shuffle(items: list[Any], below: Below) -> None:
    for last in range(len(items) - 1, 0, -1):
        other = below(last + 1)
        items[last], items[other] = items[other], items[last]
