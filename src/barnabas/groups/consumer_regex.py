"""Subscriptions by regular expression: the broker looks through all topics for its groups.

All expressions of a group are resolved together, so that new topics make one rebalance and not one per expression. That
happens after a heartbeat has been answered: when an expression is new, when there are new topics, and once in a while,
but never twice within ten seconds.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from barnabas.groups import consumer_record
from barnabas.groups.consumer_fencing import bump_epoch, current_hash, forget_unused_regex
from barnabas.groups.consumer_record import ResolvedRegex
from barnabas.groups.subscriptions import check_regex, resolve_regex
from barnabas.protocol.errors import KafkaError

if TYPE_CHECKING:
    from barnabas.coordination.effects import Effects
    from barnabas.groups.consumer_circumstances import Circumstances
    from barnabas.groups.consumer_group import ConsumerGroup
    from barnabas.groups.consumer_member import ConsumerMember

REFRESH_INTERVAL_MS_MIN: Final = 10_000

_NEVER_RESOLVED: Final = ResolvedRegex(frozenset(), version=0, timestamp_ms=-(1 << 63))


class RegexChange(Enum):
    NONE = auto()
    UNRESOLVED = auto()
    """To an expression whose topics are not known yet: the group goes on as it is until they are."""
    RESOLVED = auto()


def refusal_of(group: ConsumerGroup, regex: str | None) -> KafkaError | None:
    """Why a member cannot subscribe to an expression. One that others are subscribed to is known to be good."""
    if not regex or regex in group.subscribed_regexes:
        return None
    try:
        check_regex(regex)
    except KafkaError as refused:
        return refused
    return None


def note_change(group: ConsumerGroup, before: ConsumerMember, after: ConsumerMember, effects: Effects) -> RegexChange:
    """What a member's new subscription means for the group's expressions."""
    if before.subscribed_regex == after.subscribed_regex:
        return RegexChange.NONE
    if before.regex is not None:
        forget_unused_regex(group, before.regex, effects)
    if after.regex is None:
        return RegexChange.NONE if before.regex is None else RegexChange.RESOLVED
    return RegexChange.RESOLVED if after.regex in group.resolved_regexes else RegexChange.UNRESOLVED


def refresh(group: ConsumerGroup, now: Circumstances, effects: Effects) -> None:
    """Resolves the group's expressions if it is time to."""
    if not group.subscribed_regexes:
        return
    last = next(iter(group.resolved_regexes.values()), _NEVER_RESOLVED)
    if now.now_ms <= last.timestamp_ms + REFRESH_INTERVAL_MS_MIN:
        return
    is_stale = (
        group.subscribed_regexes.keys() != group.resolved_regexes.keys()
        or last.version < now.watch.grown_at(now.image)
        or now.now_ms > last.timestamp_ms + now.settings.regex_refresh_interval_ms
    )
    if is_stale:
        _resolve(group, now, effects)


def _resolve(group: ConsumerGroup, now: Circumstances, effects: Effects) -> None:
    finds_others = False
    for regex in sorted(group.subscribed_regexes):
        topics = resolve_regex(regex, now.image.topics.names)
        before = group.resolved_regexes.get(regex)
        # An expression that is new and matches nothing is a change all the same: its member may have had partitions.
        finds_others = finds_others or before is None or topics != before.topics
        resolved = ResolvedRegex(topics, now.image.offset, now.now_ms)
        group.write(consumer_record.resolved_regex(group.group_id, regex, resolved), effects)
    if finds_others or current_hash(group, now) != group.metadata_hash:
        bump_epoch(group, now, effects)
