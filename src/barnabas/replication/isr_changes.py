"""Which replicas are to be in sync, as the leaders on this node propose it to the controller: AlterPartition.

Proposals of all partitions that wait go together in one request, and one request is under way at a time. It is tried
until there is an answer: a leader whose proposal may have been carried out can do nothing else. Metadata that comes
meanwhile settles proposals, too, and then their answers count for nothing (`PartitionState.proposal_accepted`).

A follower that stopped to fetch has to be noticed. So every half of `replica.lag.time.max.ms` the leader looks at the
partitions that have records which some replica in sync lacked at the last look, or which are not committed yet. The
others need no look: no replica lags behind in a partition without new records.

Nor does a follower that has everything say so again. If it could not be proposed, because it was fenced or another
proposal was under way, its partition is kept among the candidates, and looked at when that may have changed.

A high watermark may wait for a follower outside the ISR, because it is proposed or may join soon. If that follower
never comes, the replicas in sync may have everything already and not fetch it again. So the high watermark is moved
when a proposal is refused, when brokers change, and at each look.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Protocol

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.replication.partition import BrokerId

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.compiler.structs import Message
    from barnabas.protocol.uuids import Uuid
    from barnabas.replication.hosted import HostedPartition
    from barnabas.replication.partition import ClusterView, IsrProposal

logger = logging.getLogger("barnabas.replicas")

RETRY_S = 0.05
INELIGIBLE_RETRY_S = 0.5
PARTITIONS_PER_REQUEST_MAX = 1000
"""More would take long to write, and their answer to read."""


class Controller(Protocol):
    """Whoever brings a request to the active controller and its answer back. It raises what keeps it from doing so."""

    async def send(self, request: Message) -> Any: ...


class IsrChanges:
    """Of all partitions that this node leads. To be used on the broker's event loop."""

    def __init__(
        self,
        node_id: int,
        controller: Controller,
        broker_epoch: Callable[[], int],
        view: ClusterView,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._node_id = node_id
        self._controller = controller
        self._broker_epoch = broker_epoch
        self._view = view
        self._loop = loop
        self._unsent: dict[HostedPartition, IsrProposal] = {}
        self._watched: dict[HostedPartition, None] = {}
        self._candidates: dict[HostedPartition, None] = {}
        """Partitions with followers that are ready to join but could not be proposed yet."""
        self._sending: asyncio.Task[None] | None = None
        self._next_look: asyncio.TimerHandle | None = None
        self._is_closed = False
        self.shrunk = 0
        self.expanded = 0
        """How often replicas left the in-sync ones, and joined them."""

    def watch(self, hosted: HostedPartition) -> None:
        """Something was written that others do not have yet: if they do not get it in time, they have to leave, or are
        waited for no longer."""
        self._watched[hosted] = None
        if self._next_look is None and not self._is_closed:
            self._next_look = self._loop.call_later(self._view.replica_lag_time_max_ms / 2000, self._look)

    def consider(self, hosted: HostedPartition) -> None:
        """Followers that are not in sync may have what it takes by now."""
        state = hosted.state
        is_candidate = False
        for follower in state.followers:
            if not state.is_ready_to_join(follower):
                continue
            is_candidate = True
            self._admit(hosted, follower)
        if is_candidate:
            self._candidates[hosted] = None
        else:
            self._candidates.pop(hosted, None)

    def _admit(self, hosted: HostedPartition, follower: BrokerId) -> None:
        proposal = hosted.state.propose_joining(follower)
        if proposal is not None:
            logger.info("%s: adding broker %d to the ISR: it has caught up", hosted, follower)
            self._submit(hosted, proposal)

    def brokers_changed(self) -> None:
        """Somebody who could not be in sync may be able to now, and the other way round."""
        for hosted in list(self._watched):
            if len(hosted.state.isr) <= len(hosted.state.followers):
                # Somebody is outside, and may have been waited for.
                hosted.move_high_watermark()
        for hosted in list(self._candidates):
            self.consider(hosted)

    def forget(self, hosted: HostedPartition) -> None:
        """This node does not lead the partition any more."""
        self._watched.pop(hosted, None)
        self._candidates.pop(hosted, None)
        self._unsent.pop(hosted, None)

    async def close(self) -> None:
        self._is_closed = True
        if self._next_look is not None:
            self._next_look.cancel()
            self._next_look = None
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)

    # ── those who lag ────────────────────────────────────────────────────────────────────────────────────────

    def _look(self) -> None:
        self._next_look = None
        watched, self._watched = self._watched, {}
        for hosted in watched:
            state = hosted.state
            if not state.is_leader or hosted.is_removed:
                continue
            hosted.move_high_watermark()
            if not state.is_anybody_waited_for():
                continue
            self.watch(hosted)
            now_ms = hosted.monotonic_ms()
            lagging = state.lagging(now_ms)
            proposal = state.propose_leaving(now_ms) if lagging else None
            if proposal is not None:
                logger.info(
                    "%s: removing brokers %s from the ISR: not caught up for more than %d ms",
                    hosted,
                    sorted(lagging),
                    self._view.replica_lag_time_max_ms,
                )
                self._submit(hosted, proposal)

    # ── proposals ────────────────────────────────────────────────────────────────────────────────────────────

    def _submit(self, hosted: HostedPartition, proposal: IsrProposal) -> None:
        self._unsent[hosted] = proposal
        if self._sending is None and not self._is_closed:
            self._sending = self._loop.create_task(self._send_all())
            self._sending.add_done_callback(self._sent)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sending = None
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("internal error while changing the ISR", exc_info=error)
        if self._unsent and not self._is_closed:
            self._sending = self._loop.create_task(self._send_all())
            self._sending.add_done_callback(self._sent)

    async def _send_all(self) -> None:
        failures = 0
        while self._unsent:
            batch = dict(list(self._unsent.items())[:PARTITIONS_PER_REQUEST_MAX])
            if await self._send(batch):
                failures = 0
            else:
                failures += 1
                await asyncio.sleep(min(RETRY_S * 2 ** min(failures - 1, 10), 1.0))

    async def _send(self, batch: dict[HostedPartition, IsrProposal]) -> bool:
        """Sends these proposals and takes in the answers. False if there were none, or some have to be sent again."""
        try:
            response: m.AlterPartitionResponse = await self._controller.send(self._request(batch))
        except Exception as error:
            logger.warning("could not send %d ISR changes to the controller: %s", len(batch), error)
            return False
        if response.error_code != Error.NONE:
            error_name = Error(response.error_code).name
            logger.warning("the controller refused %d changes of in-sync replicas: %s", len(batch), error_name)
            return False
        answers = {
            (topic.topic_id, each.partition_index): each for topic in response.topics for each in topic.partitions
        }
        is_settled = True
        for hosted, proposal in batch.items():
            answer = answers.get((hosted.topic_id, hosted.index))
            if answer is None or (
                answer.error_code != Error.NONE and self._is_to_be_repeated(hosted, proposal, answer)
            ):
                is_settled = False
                continue
            if self._unsent.get(hosted) is proposal:
                del self._unsent[hosted]
            if answer.error_code == Error.NONE:
                self._accepted(hosted, proposal, answer)
        return is_settled

    def _is_to_be_repeated(
        self, hosted: HostedPartition, proposal: IsrProposal, answer: m.AlterPartitionResponse.PartitionData
    ) -> bool:
        error = Error(answer.error_code)
        logger.info("%s: the controller refused a change of its in-sync replicas: %s", hosted, error.name)
        is_current = self._unsent.get(hosted) is proposal
        if error is Error.INELIGIBLE_REPLICA:
            # The controller knows more than this broker, which may hear of it or not.
            self._loop.call_later(INELIGIBLE_RETRY_S, self._consider_again, hosted)
        state = hosted.state
        if state.proposal_refused(proposal, error):
            return is_current
        hosted.isr_changed(has_moved=state.move_high_watermark(hosted.monotonic_ms()))
        return False

    def _accepted(
        self, hosted: HostedPartition, proposal: IsrProposal, answer: m.AlterPartitionResponse.PartitionData
    ) -> None:
        state, now_ms = hosted.state, hosted.monotonic_ms()
        isr_before = len(state.isr)
        has_moved = state.proposal_accepted(
            proposal, answer.leader_epoch, answer.partition_epoch, map(BrokerId, answer.isr), now_ms
        )
        hosted.isr_changed(has_moved=has_moved)
        self.expanded += len(state.isr) > isr_before
        self.shrunk += len(state.isr) < isr_before
        self._consider_again(hosted)
        if hosted.isr_changes is self and not self._is_closed:
            # Whoever caught up while it was expelled has nothing to fetch any more, and so does not ask again.
            for follower in state.caught_up_outside(now_ms):
                self._candidates[hosted] = None
                self._admit(hosted, follower)

    def _consider_again(self, hosted: HostedPartition) -> None:
        if hosted in self._candidates and not self._is_closed:
            self.consider(hosted)

    def _request(self, batch: dict[HostedPartition, IsrProposal]) -> m.AlterPartitionRequest:
        own_epoch = self._broker_epoch()
        topics: dict[Uuid, m.AlterPartitionRequest.TopicData] = {}
        for hosted, proposal in batch.items():
            topic = topics.get(hosted.topic_id)
            if topic is None:
                topic = topics[hosted.topic_id] = m.AlterPartitionRequest.TopicData(topic_id=hosted.topic_id)
            topic.partitions.append(
                m.AlterPartitionRequest.PartitionData(
                    partition_index=hosted.index,
                    leader_epoch=proposal.leader_epoch,
                    partition_epoch=proposal.partition_epoch,
                    new_isr_with_epochs=[
                        m.AlterPartitionRequest.BrokerState(
                            broker_id=replica, broker_epoch=own_epoch if replica == self._node_id else epoch
                        )
                        for replica, epoch in proposal.isr
                    ],
                )
            )
        return m.AlterPartitionRequest(broker_id=self._node_id, broker_epoch=own_epoch, topics=list(topics.values()))
