"""How far consumer groups are behind, under the names that lag exporters have made common.

The lag of a partition is what lies between a group's committed offset and the high watermark. Each group is reported by
its coordinator, for the partitions of which that node hosts a replica. How far a group is behind in time is estimated
from where the partition ended when: `LagClock` looks at that now and then, and finds when the offset that a group has
committed was the end.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.metrics.exposition import GAUGE, Family

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from barnabas.replication.replica_manager import ReplicaManager

POINTS_MAX: Final = 60
"""How many ends of a partition are remembered; between two that are kept, time is taken to have passed evenly."""

Place = tuple[str, int]


class GroupPosition(NamedTuple):
    """How far a group has come in one partition."""

    group: str
    topic: str
    partition: int
    offset: int


class LagClock:
    """When partitions ended where."""

    def __init__(self) -> None:
        self._ends: dict[Place, deque[tuple[float, int]]] = {}

    def note(self, ends: dict[Place, int], now_s: float) -> None:
        """Remember where partitions end now; those that are not named are forgotten."""
        self._ends = {place: self._ends.get(place) or deque(maxlen=POINTS_MAX) for place in ends}
        for place, end in ends.items():
            points = self._ends[place]
            if len(points) >= 2 and points[-1][1] == points[-2][1] == end:
                points[-1] = (now_s, end)
            else:
                points.append((now_s, end))

    def behind_s(self, place: Place, offset: int, end: int, now_s: float) -> float:
        """For how long what comes at `offset` has been there; from the oldest point on that is remembered."""
        if offset >= end:
            return 0.0
        before: tuple[float, int] | None = None
        for at_s, its_end in self._ends.get(place, ()):
            if its_end > offset:
                if before is None:
                    return now_s - at_s
                share = (offset - before[1]) / (its_end - before[1])
                return now_s - (before[0] + share * (at_s - before[0]))
            before = (at_s, its_end)
        return 0.0 if before is None else now_s - before[0]


def group_labels(group: str) -> dict[str, str]:
    """Of the exporters that are in use, some call it `group`, others `consumergroup`."""
    return {"group": group, "consumergroup": group}


def group_families(
    positions: Iterable[GroupPosition], replicas: ReplicaManager, clock: LagClock, now_s: float
) -> Iterator[Family]:
    lag = Family("kafka_consumergroup_lag", GAUGE, "records between the committed offset of a group and the end")
    offset = Family("kafka_consumergroup_current_offset", GAUGE, "the offset that a group has committed")
    seconds = Family(
        "kafka_consumergroup_group_lag_seconds", GAUGE, "for how long the next record of a group has been there"
    )
    for each in positions:
        hosted = replicas.partitions_of(each.topic).get(each.partition)
        if hosted is None:
            continue
        end = hosted.state.high_watermark.offset
        labels = group_labels(each.group) | {"topic": each.topic, "partition": str(each.partition)}
        offset.add(each.offset, **labels)
        lag.add(max(end - each.offset, 0), **labels)
        behind_s = clock.behind_s((each.topic, each.partition), each.offset, end, now_s)
        seconds.add(round(behind_s, 3), **labels)
    yield lag
    yield offset
    yield seconds
