"""A consumer group in a shard, with members that behave as clients do: they give up what they are told to, and own
what they were last given. What the shard writes is kept, so that it can be restarted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.groups import group_records
from barnabas.groups.consumer.consumer_group import ConsumerGroup
from barnabas.groups.consumer.regex_subscriptions import ResolveRegexes
from barnabas.groups.consumer.step_context import ConsumerGroupSettings
from barnabas.groups.group_shard import GroupShard, ShardSettings
from barnabas.protocol.errors import Error
from tests.unit.groups.consumer_requests import CLIENT, assigned, beat, cluster, join, leave

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.coordination.effects import Effects, Record, ReplyTo
    from barnabas.groups.consumer.consumer_member import ConsumerMember
    from barnabas.metadata.image import MetadataImage, TopicImage
    from barnabas.protocol import messages as m
    from barnabas.protocol.uuids import Uuid

GROUP = "g"


class Member:
    """What a client knows of itself."""

    def __init__(self, member_id: str, instance_id: str | None = None) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.epoch = 0
        self.owned: dict[Uuid, list[int]] = {}
        self.is_in = False

    def take(self, response: m.ConsumerGroupHeartbeatResponse) -> None:
        if response.error_code == Error.NONE:
            self.epoch = response.member_epoch
            self.is_in = True
            given = assigned(response)
            if given is not None:
                self.owned = given
        elif response.error_code in (Error.FENCED_MEMBER_EPOCH, Error.UNKNOWN_MEMBER_ID):
            self.drop()

    def drop(self) -> None:
        self.epoch, self.owned, self.is_in = 0, {}, False


class Driver:
    def __init__(self, *topics: TopicImage, settings: ConsumerGroupSettings | None = None) -> None:
        self.settings = ShardSettings(
            consumer=ConsumerGroupSettings(assignment_interval_ms=0) if settings is None else settings
        )
        self.image: MetadataImage = cluster(*topics)
        self.now_ms = 1_000_000
        self.log: list[Record] = []
        self._waiting: dict[ReplyTo, Callable[[Any], None]] = {}
        self.shard = self._new_shard()

    def _new_shard(self) -> GroupShard:
        shard = GroupShard(self.settings, lambda: self.image)
        for record in self.log:
            decoded = group_records.decode(*group_records.encode(record))
            assert decoded is not None
            shard.replay(decoded)
        self._note(shard.loaded(self.now_ms))
        return shard

    def _note(self, effects: Effects) -> None:
        self.log += effects.records
        for reply_to, answer in effects.answers:
            self._waiting.pop(reply_to)(answer)
        for action in effects.actions:
            assert isinstance(action, ResolveRegexes)
            self._note(self.shard.regexes_resolved(action, action.find(), self.now_ms))

    # What happens to the cluster.

    def set_topics(self, *topics: TopicImage) -> None:
        self.image = cluster(*topics, offset=self.image.offset + 1)

    def restart(self) -> None:
        """Whoever waits for an answer gets none."""
        self._waiting.clear()
        self.shard = self._new_shard()

    def pass_ms(self, duration_ms: int) -> None:
        """Time passes, with all that it brings on the way."""
        end_ms = self.now_ms + duration_ms
        while (deadline_ms := self.shard.next_deadline_ms) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self._note(self.shard.expire(self.now_ms))
        self.now_ms = end_ms

    # What members do.

    def ask(self, request: m.ConsumerGroupHeartbeatRequest) -> Any:
        """Time passes until there is an answer."""
        answers: list[Any] = []
        self.begin_to_ask(request, answers.append)
        while not answers:
            deadline_ms = self.shard.next_deadline_ms
            assert deadline_ms is not None, "nobody will answer"
            self.pass_ms(deadline_ms - self.now_ms)
        return answers[0]

    def begin_to_ask(self, request: m.ConsumerGroupHeartbeatRequest, then: Callable[[Any], None]) -> None:
        reply_to = object()
        self._waiting[reply_to] = then
        self._note(self.shard.consumer_heartbeat(request, CLIENT, reply_to, self.now_ms))

    def join(self, member: Member, *topics: str, **fields: Any) -> Any:
        """Before it joins, a member owns nothing."""
        member.drop()
        request = join(GROUP, member.member_id, *topics, instance_id=member.instance_id, **fields)
        return self._take(member, request)

    def begin_to_join(self, member: Member, *topics: str, **fields: Any) -> None:
        """Like `join`, but others may act before the answer comes, if there is one."""
        member.drop()
        member_id = member.member_id
        request = join(GROUP, member_id, *topics, instance_id=member.instance_id, **fields)
        self.begin_to_ask(request, lambda answer: member.take(answer) if member.member_id == member_id else None)

    def beat(self, member: Member, **fields: Any) -> Any:
        """A member lists what it owns with every heartbeat, as if it had changed since the last."""
        request = beat(GROUP, member.member_id, member.epoch, member.owned, instance_id=member.instance_id, **fields)
        return self._take(member, request)

    def leave(self, member: Member, *, epoch: int = -1) -> Any:
        response = self.ask(leave(GROUP, member.member_id, instance_id=member.instance_id, epoch=epoch))
        member.drop()
        return response

    def _take(self, member: Member, request: m.ConsumerGroupHeartbeatRequest) -> Any:
        response = self.ask(request)
        member.take(response)
        return response

    def settle(self, *members: Member) -> None:
        """Heartbeats go round until nothing changes any more."""
        for _ in range(10):
            before = len(self.log)
            for member in members:
                self.beat(member)
            if len(self.log) == before:
                return
        raise AssertionError(f"the group does not settle: {self.group.members}")

    # What is there to see.

    @property
    def group(self) -> ConsumerGroup:
        group = self.shard._groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    def member(self, member: Member) -> ConsumerMember:
        return self.group.members[member.member_id]

    @property
    def state(self) -> str:
        return self.group.state.value
