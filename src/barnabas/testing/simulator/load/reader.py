"""A consumer without a group: it reads partitions from their start to their end, and notes what it was shown.

It asks leaders or, where it is told to, any replica of its choice (KIP-392). A follower may be behind, so what it does
not have is asked of the leader next time; a leader must have everything that any reader was ever shown.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from barnabas.net.frames import WireError
from barnabas.protocol import messages as m
from barnabas.protocol.batch import iter_headers
from barnabas.protocol.errors import Error
from barnabas.testing.simulator.load.client import NEW_LEADER
from barnabas.testing.simulator.load.history import Complaint, Read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.testing.simulator.load.client import ClusterClient
    from barnabas.testing.simulator.load.history import History, TopicPartition

VERSION: Final = 17
MAX_WAIT_MS: Final = 200
MAX_BYTES: Final = 64 * 1024
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
CONSUMER: Final = -1
NO_SESSION: Final = -1

BEHIND: Final = frozenset({Error.OFFSET_OUT_OF_RANGE, Error.OFFSET_NOT_AVAILABLE})


class Reader:
    def __init__(
        self,
        client: ClusterClient,
        partitions: Sequence[TopicPartition],
        history: History,
        *,
        is_committed_only: bool = False,
        reads_followers: bool = False,
        pause_s: float = 3.0,
    ) -> None:
        self.client = client
        self.is_stopped = False
        self.positions: dict[TopicPartition, int] = dict.fromkeys(partitions, 0)
        self.errors: list[str] = []
        self._history = history
        self._is_committed_only = is_committed_only
        self._reads_followers = reads_followers
        self._pause_s = pause_s
        self._at_end: set[TopicPartition] = set()
        """Where the last answer of a leader, after `stop`, had nothing more and held nothing back."""
        self._leaders_only: set[TopicPartition] = set()

    async def run(self) -> None:
        """Until it is stopped, and then to the end of all partitions."""
        rounds = 0
        while len(self._at_end) < len(self.positions):
            is_quiet = not await self._round()
            if not self.is_stopped:
                await self.client.pause(self._pause_s)
            elif is_quiet:
                await self.client.back_off(rounds)
                rounds += 1

    async def _round(self) -> bool:
        """Reads something from every partition; whether there was anything."""
        before = sum(self.positions.values())
        targets: dict[int, list[TopicPartition]] = {}
        for partition in self.positions:
            if partition in self._at_end:
                continue
            target = await self._target(partition)
            if target is not None:
                targets.setdefault(target, []).append(partition)
        await asyncio.gather(*(self._fetch(target, partitions) for target, partitions in targets.items()))
        return sum(self.positions.values()) > before

    async def _target(self, partition: TopicPartition) -> int | None:
        leader = await self.client.known_leader(partition)
        if leader is None:
            return None
        is_leader_due = not self._reads_followers or self.is_stopped or partition in self._leaders_only
        self._leaders_only.discard(partition)
        if is_leader_due or self.client.chance.random() < 0.3:
            return leader.broker
        return self.client.chance.choice(self.client.brokers)

    async def _fetch(self, target: int, partitions: list[TopicPartition]) -> None:
        client = self.client
        epochs = {}
        topics: dict[str, list[Any]] = {}
        for partition in partitions:
            leader = client.leader_of(partition)
            epochs[partition] = leader
            if leader is not None:
                topics.setdefault(partition.topic, []).append(
                    m.FetchRequest.FetchPartition(
                        partition=partition.partition,
                        current_leader_epoch=leader.epoch,
                        fetch_offset=self.positions[partition],
                        partition_max_bytes=MAX_BYTES,
                    )
                )
        request = m.FetchRequest(
            replica_id=CONSUMER,
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=MAX_BYTES * len(partitions),
            isolation_level=READ_COMMITTED if self._is_committed_only else READ_UNCOMMITTED,
            session_id=0,
            session_epoch=NO_SESSION,
            rack_id=client.rack,
            topics=[
                m.FetchRequest.FetchTopic(topic=name, topic_id=client.topic_ids[name], partitions=each)
                for name, each in topics.items()
            ],
        )
        was_stopped = self.is_stopped
        try:
            response = await client.ask(target, request, VERSION, purpose=" fetches")
        except WireError:
            await client.refresh()
            return
        client.take_hints(response.node_endpoints)
        is_refresh_due = False
        for topic in response.responses:
            name = client.topic_name(topic.topic_id)
            for each in topic.partitions:
                partition = type(partitions[0])(name, each.partition_index)
                leader = epochs[partition]
                assert leader is not None
                is_leader = leader.broker == target
                is_refresh_due |= self._take(partition, leader.epoch, target, each, is_leader=is_leader)
                if was_stopped and is_leader and self._is_everything_read(partition, each):
                    self._at_end.add(partition)
        if is_refresh_due:
            await client.refresh()

    def _take(self, partition: TopicPartition, epoch: int, node: int, answer: Any, *, is_leader: bool) -> bool:
        """What came of one partition. Whether the metadata is to be asked for."""
        error = Error(answer.error_code)
        if error is not Error.NONE:
            self._leaders_only.add(partition)
            if error is Error.OFFSET_OUT_OF_RANGE and is_leader:
                self._complain(partition, epoch, node, answer)
            if error in NEW_LEADER:
                hint = answer.current_leader
                self.client.heard_of(partition, hint.leader_id, hint.leader_epoch)
                return is_leader
            return error not in BEHIND
        offset = self.positions[partition]
        records = bytes(answer.records or b"")
        self._history.reads.append(
            Read(
                self.client.name,
                partition,
                node,
                epoch,
                self._is_committed_only,
                is_leader,
                offset,
                records,
                [(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()],
                answer.high_watermark,
                answer.last_stable_offset,
                self.client.now_s,
            )
        )
        for _, header in iter_headers(records):
            offset = header.next_offset
        self.positions[partition] = max(offset, self.positions[partition])
        return False

    def _is_everything_read(self, partition: TopicPartition, answer: Any) -> bool:
        position = self.positions[partition]
        if answer.error_code or position < answer.high_watermark:
            return False
        return not self._is_committed_only or answer.last_stable_offset == answer.high_watermark

    def _complain(self, partition: TopicPartition, epoch: int, node: int, answer: Any) -> None:
        self._history.complaints.append(
            Complaint(
                "what was shown stays readable",
                f"{partition}, leader epoch {epoch}: node {node} refused {self.client.name}, who has read up to offset"
                f" {self.positions[partition]}, as out of range; its high watermark is {answer.high_watermark}",
                self.client.now_s,
            )
        )
