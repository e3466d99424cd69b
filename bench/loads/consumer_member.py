"""A member of a group of the new protocol (KIP-848): heartbeats say what it owns, answers say what it is to own."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.protocol.uuids import from_text
from bench.loads.channel import NOT_YET, RETRY_SECONDS, Channel
from bench.wire import WireError

if TYPE_CHECKING:
    from bench.loads.ownership import Ownership
    from bench.loads.rolling import RollingLoad

VERSION = 1
JOIN_EPOCH, LEAVE_EPOCH = 0, -1


class ConsumerMember:
    """Runs until it is told to leave."""

    def __init__(self, load: RollingLoad, ownership: Ownership, channel: Channel) -> None:
        self.epoch = -1
        """The epoch of the group that it is settled in; −1 while it has something to give up or to report."""
        self.owned: set[int] = set()
        self._load = load
        self._ownership = ownership
        self._channel = channel
        self._member_id = str(uuid.uuid4())
        self._leaving = asyncio.Event()

    def begin_to_leave(self) -> None:
        self._leaving.set()

    async def run(self) -> None:
        member_epoch = await self._join()
        while not self._leaving.is_set():
            answer = await self._heartbeat(self._request(member_epoch))
            has_changed = self._own(answer)
            # What was given up or taken on is reported without delay, and so is heard of again at once.
            self.epoch = -1 if has_changed else answer.member_epoch
            member_epoch = answer.member_epoch
            if not has_changed:
                await self._wait()
        self._ownership.release(self._member_id, self.owned)
        self.owned = set()
        self.epoch = -1
        await self._heartbeat(self._request(LEAVE_EPOCH))
        await self._channel.close()

    async def _join(self) -> int:
        request = self._request(JOIN_EPOCH)
        request.rebalance_timeout_ms = self._load.session_timeout_ms
        request.subscribed_topic_names = [self._load.topic]
        answer = await self._heartbeat(request)
        self._own(answer)
        return answer.member_epoch

    async def _heartbeat(self, request: m.ConsumerGroupHeartbeatRequest) -> m.ConsumerGroupHeartbeatResponse:
        while True:
            answer: m.ConsumerGroupHeartbeatResponse = await self._channel.send(request, VERSION)
            if answer.error_code == Error.NONE:
                return answer
            if answer.error_code not in NOT_YET:
                raise WireError(f"ConsumerGroupHeartbeat: {Error(answer.error_code).name}: {answer.error_message}")
            await asyncio.sleep(RETRY_SECONDS)

    def _own(self, answer: m.ConsumerGroupHeartbeatResponse) -> bool:
        """Whether the answer changed what this member owns; without an assignment it stays as it was."""
        if answer.assignment is None:
            return False
        assigned = {partition for topic in answer.assignment.topic_partitions for partition in topic.partitions}
        if assigned == self.owned:
            return False
        self._ownership.release(self._member_id, self.owned - assigned)
        self._ownership.acquire(self._member_id, assigned - self.owned)
        self.owned = assigned
        return True

    def _request(self, member_epoch: int) -> m.ConsumerGroupHeartbeatRequest:
        request = m.ConsumerGroupHeartbeatRequest
        topic_id = from_text(self._load.topic_id)
        owned = [request.TopicPartitions(topic_id=topic_id, partitions=sorted(self.owned))] if self.owned else []
        return request(
            group_id=self._load.group, member_id=self._member_id, member_epoch=member_epoch, topic_partitions=owned
        )

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(self._load.heartbeat_seconds):
                await self._leaving.wait()
        except TimeoutError:
            return
