"""A member of a consumer group (KIP-848): everything is said and learnt by heartbeats.

An answer with an assignment says what the member may own from now on. What is not in it is given up, after a while as
real members take it, and what is new is taken; the next heartbeat then says what is owned. By chance a member leaves,
dies without a word, or stalls for longer than its session.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from barnabas.protocol import messages as m
from barnabas.protocol import uuids
from barnabas.protocol.errors import Error
from barnabas.protocol.uuids import Uuid
from barnabas.testing.simulator.load.client import COORDINATOR_RETRIABLE, MOVED, GaveUpError, Kind
from barnabas.testing.simulator.load.group_member import GIVE_UP_S, GroupMember, MembershipOverError
from barnabas.testing.simulator.load.history import Assignment, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.testing.simulator.load.client import ClusterClient
    from barnabas.testing.simulator.load.history import History

REBALANCE_MS: Final = 8_000
STALL_S: Final = 8.0
VERSION: Final = 1
JOINS, LEAVES = 0, -1
"""Instead of an epoch."""
STARTS_LEAVING, DIES, STALLS = 0.02, 0.02, 0.03
"""How often, of 1, before a heartbeat."""


class ConsumerMember(GroupMember):
    """`heartbeat_s` and the session's length are settings of the coordinator."""

    def __init__(
        self, client: ClusterClient, group: str, partitions: Sequence[TopicPartition], history: History
    ) -> None:
        super().__init__(client, group, partitions, history)
        self._topics = sorted({each.topic for each in partitions})
        self._epoch = JOINS
        self._is_owned_to_be_told = True
        self._is_all_to_be_told = False
        self._heartbeat_s = 2.0

    async def run(self) -> None:
        while not self.is_stopped:
            try:
                await self._belong()
            except (MembershipOverError, GaveUpError):
                await self.client.pause(1.0)
        await self._committer.see_the_end()

    async def _belong(self) -> None:
        """One membership, from its join to its end."""
        client, chance = self.client, self.client.chance
        if not all(topic in client.topic_ids for topic in self._topics):
            await client.refresh()
            return
        self._member_id = uuids.to_text(Uuid(chance.randbytes(16)))
        self._epoch = JOINS
        self._owned = frozenset()
        self._is_owned_to_be_told = True
        await self._heartbeat()
        await self._committer.look()
        while not self.is_stopped:
            if not self._is_owned_to_be_told:
                await asyncio.sleep(self._heartbeat_s * chance.uniform(0.7, 1.3))
            luck = chance.random()
            if luck < STARTS_LEAVING:
                break
            if luck < STARTS_LEAVING + DIES:
                await client.pause(2 * STALL_S)
                raise MembershipOverError
            if luck < STARTS_LEAVING + DIES + STALLS:
                await asyncio.sleep(STALL_S * chance.uniform(0.9, 2.5))
                await self._commit()
            await self._heartbeat()
            if chance.random() < 0.4:
                await self._commit()
        self._epoch = LEAVES
        self._owned = frozenset()
        await self._heartbeat()
        raise MembershipOverError

    async def _heartbeat(self) -> None:
        """One heartbeat that is answered. Whatever fails may have been heard, so the next one says everything."""
        give_up_at_s = self.client.now_s + GIVE_UP_S
        attempts = 0
        while not await self._try_heartbeat():
            self._is_all_to_be_told = True
            if self.client.now_s >= give_up_at_s:
                raise MembershipOverError
            await self.client.back_off(attempts)
            attempts += 1

    async def _try_heartbeat(self) -> bool:
        request = self._request()
        claimed = self._owned
        sent_s = self.client.now_s
        try:
            node, response = await self.client.ask_coordinator_once(Kind.GROUP, self.group, request, VERSION)
        except GaveUpError:
            return False
        error = Error(response.error_code)
        if error in MOVED:
            self.client.forget_coordinator(Kind.GROUP, self.group)
        if error in COORDINATOR_RETRIABLE:
            return False
        if error is not Error.NONE:
            self._owned = frozenset()
            raise MembershipOverError
        if request.member_epoch != LEAVES:
            await self._take(response, claimed, node, sent_s)
        return True

    async def _take(
        self, response: m.ConsumerGroupHeartbeatResponse, claimed: frozenset[TopicPartition], node: int, sent_s: float
    ) -> None:
        coordinator_epoch = self.client.coordinator_epoch(node, self.group)

        def noted(partitions: frozenset[TopicPartition]) -> Assignment:
            return Assignment(
                self.group,
                self._member_id,
                response.member_epoch,
                partitions,
                node,
                coordinator_epoch,
                sent_s,
                self.client.now_s,
            )

        self._history.claims.append(noted(claimed))
        self._epoch = response.member_epoch
        self._heartbeat_s = response.heartbeat_interval_ms / 1000
        self._is_owned_to_be_told = self._is_all_to_be_told = False
        if response.assignment is None:
            return
        assigned = frozenset(
            TopicPartition(self.client.topic_name(topic.topic_id), number)
            for topic in response.assignment.topic_partitions
            for number in topic.partitions
        )
        if assigned - claimed:
            self._history.grants.append(noted(assigned - claimed))
        if claimed - assigned:
            await self._give_up(claimed - assigned)
        self._owned = assigned
        self._is_owned_to_be_told = assigned != claimed

    async def _give_up(self, partitions: frozenset[TopicPartition]) -> None:
        """As real members do: they finish what they have begun, and commit."""
        await self.client.pause(1.0)
        if self.client.chance.random() < 0.5:
            await self._committer.commit(partitions, self._member_id, self._epoch)

    def _request(self) -> m.ConsumerGroupHeartbeatRequest:
        request = m.ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self._member_id, member_epoch=self._epoch, topic_partitions=None
        )
        if self._epoch == JOINS or (self._is_all_to_be_told and self._epoch != LEAVES):
            request.rebalance_timeout_ms = REBALANCE_MS
            request.subscribed_topic_names = self._topics
        if (self._is_owned_to_be_told or self._is_all_to_be_told) and self._epoch != LEAVES:
            by_topic: dict[str, list[int]] = {}
            for each in sorted(self._owned):
                by_topic.setdefault(each.topic, []).append(each.partition)
            request.topic_partitions = [
                m.ConsumerGroupHeartbeatRequest.TopicPartitions(
                    topic_id=self.client.topic_ids[topic], partitions=numbers
                )
                for topic, numbers in by_topic.items()
            ]
        return request

    async def _commit(self) -> None:
        if self._owned:
            error = await self._committer.commit(self._owned, self._member_id, self._epoch)
            if error in (Error.UNKNOWN_MEMBER_ID, Error.GROUP_ID_NOT_FOUND):
                raise MembershipOverError
