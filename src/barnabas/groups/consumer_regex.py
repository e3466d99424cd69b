"""Subscriptions by regular expression: the broker looks through all topics for its groups.

All expressions of a group are resolved together, so that new topics make one rebalance and not one per expression. That
is ordered with a heartbeat: when an expression is new, when there are new topics, and once in a while, but never twice
within ten seconds. Ten thousand topics take a tenth of a second for each expression, so it is not done in the step: the
order is carried out elsewhere, and what it found is told to the group in a step of its own.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.groups import consumer_record
from barnabas.groups.consumer_fencing import bump_epoch, current_hash, forget_unused_regex
from barnabas.groups.consumer_record import ResolvedRegex
from barnabas.groups.subscriptions import check_regex, resolve_regex
from barnabas.protocol.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.coordination.effects import Effects
    from barnabas.groups.consumer_circumstances import Circumstances
    from barnabas.groups.consumer_group import ConsumerGroup
    from barnabas.groups.consumer_member import ConsumerMember
    from barnabas.metadata.image import TopicsImage

REFRESH_INTERVAL_MS_MIN: Final = 10_000

_NEVER_RESOLVED: Final = ResolvedRegex(frozenset(), version=0, timestamp_ms=-(1 << 63))


class ResolveRegexes(NamedTuple):
    """The order to find the topics of a group's expressions."""

    group_id: str
    regexes: tuple[str, ...]
    topics: TopicsImage
    version: int
    """The offset of the metadata log at which the topics are these."""

    def find(self) -> dict[str, frozenset[str]]:
        """The topics that match each expression. Needs nothing but the order, so that it may run in any thread."""
        return {regex: resolve_regex(regex, self.topics.names) for regex in self.regexes}


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
    """Orders that the group's expressions are resolved if it is time to."""
    if not group.subscribed_regexes or group.is_resolving_regexes:
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
        regexes = tuple(sorted(group.subscribed_regexes))
        effects.order(ResolveRegexes(group.group_id, regexes, now.image.topics, now.image.offset))
        group.is_resolving_regexes = True


def resolved(
    group: ConsumerGroup,
    order: ResolveRegexes,
    found: Mapping[str, frozenset[str]],
    now: Circumstances,
    effects: Effects,
) -> None:
    """Notes what an order has found. Meanwhile members may have changed their minds."""
    group.is_resolving_regexes = False
    finds_others = False
    for regex, topics in found.items():
        if regex not in group.subscribed_regexes:
            continue
        before = group.resolved_regexes.get(regex)
        # An expression that is new and matches nothing is a change all the same: its member may have had partitions.
        finds_others = finds_others or before is None or topics != before.topics
        resolution = ResolvedRegex(topics, order.version, now.now_ms)
        group.write(consumer_record.resolved_regex(group.group_id, regex, resolution), effects)
    if finds_others or current_hash(group, now) != group.metadata_hash:
        bump_epoch(group, now, effects)
