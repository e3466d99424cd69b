"""Drives a shard by requests of any kind, and sees to it that all that it asks for can be written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from barnabas.coordination.effects import NO_PRODUCER_ID, ProducerId
from barnabas.groups import group_records
from barnabas.groups.classic.classic_group import ClassicGroupSettings
from barnabas.groups.consumer.consumer_group import ConsumerGroup
from barnabas.groups.consumer.regex_subscriptions import ResolveRegexes
from barnabas.groups.consumer.step_context import ConsumerGroupSettings
from barnabas.groups.group_shard import GroupShard, ShardSettings
from barnabas.protocol import messages as m
from barnabas.protocol.codec import encode
from barnabas.protocol.errors import Error
from tests.unit.groups.consumer_requests import cluster, topic, topic_id
from tests.unit.groups.strange_values import INT32, mostly

if TYPE_CHECKING:
    from barnabas.coordination.effects import Effects, Record

SETTINGS = ShardSettings(
    group=ClassicGroupSettings(group_max_size=3, group_initial_rebalance_delay_ms=0),
    consumer=ConsumerGroupSettings(assignment_interval_ms=0, max_size=3),
    offsets_retention_ms=120_000,
    offsets_retention_check_interval_ms=30_000,
    offset_metadata_max_bytes=100,
)


class Driver(RuleBasedStateMachine):
    """A shard and its log. What is asked of it is the matter of those who derive from this."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000_000
        self.topics = {"foo": 3, "bar": 2}
        self.lives = {"foo": 0, "bar": 0, "gone": 0}
        """How often a topic was deleted; each time it comes back under another id."""
        self.publish(1)
        self.log: list[tuple[Record | bool, ProducerId]] = []
        """Records and, as booleans, the ends of transactions."""
        self.calls = 0
        self.waiting: set[int] = set()
        self.epochs: dict[str, int] = {}
        """What each member was last told."""
        self.actions: list[ResolveRegexes] = []
        self.shard = self.replayed()

    def publish(self, offset: int) -> None:
        topics = [topic(name, n, topic_id(f"{name} {self.lives[name]}")) for name, n in self.topics.items()]
        self.image = cluster(*topics, offset=offset)

    def replayed(self) -> GroupShard:
        shard = GroupShard(SETTINGS, lambda: self.image)
        for said, producer_id in self.log:
            if isinstance(said, bool):
                (shard.commit_transaction if said else shard.abort_transaction)(producer_id)
            else:
                shard.replay(said, producer_id)
        assert shard.loaded(self.now_ms).records == []
        return shard

    def ask(self) -> int:
        self.calls += 1
        self.waiting.add(self.calls)
        return self.calls

    def take(self, effects: Effects) -> list[Any]:
        producer_id = NO_PRODUCER_ID if effects.producer is None else effects.producer.producer_id
        for record in effects.records:
            assert group_records.decode(*group_records.encode(record)) == record
            self.log.append((record, producer_id))
        for reply_to, answer in effects.answers:
            assert isinstance(reply_to, int)
            self.waiting.remove(reply_to)
            encode(answer, type(answer).versions[1])
            if isinstance(answer, m.ConsumerGroupHeartbeatResponse) and answer.error_code == Error.NONE:
                self.epochs[answer.member_id or ""] = answer.member_epoch
            elif isinstance(answer, m.JoinGroupResponse) and answer.error_code == Error.NONE:
                self.epochs[answer.member_id] = answer.generation_id
        self.actions += [action for action in effects.actions if isinstance(action, ResolveRegexes)]
        return [answer for _, answer in effects.answers]

    def epoch(self, data: st.DataObject, member_id: str) -> int:
        """Mostly one that makes sense: what the member was told, or what it joins with."""
        known = st.sampled_from([self.epochs.get(member_id, 0), 0])
        return data.draw(mostly(known, INT32))  # type: ignore[no-any-return]


DEADLINES = (
    "session_deadlines_ms",
    "rebalance_deadlines",
    "rejoin_deadlines_ms",
    "sync_deadlines_ms",
    "_earliest_deadline_ms",
    "hashed_at_change",
    "is_resolving_regexes",
    "first_change_ms",
    "last_change_ms",
    "waiting_joins",
    "has_lost_members",
)
"""Of a group, and its last look at topics: after a restart they begin anew."""


def told(group: ConsumerGroup) -> dict[str, Any]:
    return {name: getattr(group, name) for name in ConsumerGroup.__slots__ if name not in DEADLINES}
