"""Subscriptions by regular expression, which the broker matches against all topics.

All expressions of a group are resolved together, so that new topics cause one rebalance and not one per expression. A
heartbeat asks for it: when an expression is new, when there are new topics, and once in a while, but never twice within
ten seconds. Ten thousand topics take a tenth of a second per expression, so this is not done in the step itself: it is
an action (`ResolveRegexes`) for another thread, and its result comes back in a step of its own.

Regular expressions are RE2's, which are never slow. The library is imported with the first of them.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.groups.consumer import consumer_records
from barnabas.groups.consumer.consumer_records import ResolvedRegex
from barnabas.groups.consumer.fencing import bump_epoch, current_hash, forget_unused_regex
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.coordination.effects import Effects
    from barnabas.groups.consumer.consumer_group import ConsumerGroup
    from barnabas.groups.consumer.consumer_member import ConsumerMember
    from barnabas.groups.consumer.step_context import StepContext
    from barnabas.metadata.image import TopicsImage

REFRESH_INTERVAL_MS_MIN: Final = 10_000

_NEVER_RESOLVED: Final = ResolvedRegex(frozenset(), version=0, timestamp_ms=-(1 << 63))


class ResolveRegexes(NamedTuple):
    """The action that finds the topics of a group's expressions."""

    group_id: str
    regexes: tuple[str, ...]
    topics: TopicsImage
    version: int
    """The offset of the metadata log that these topics are from."""

    def find(self) -> dict[str, frozenset[str]]:
        """The topics that match each expression. Safe in any thread."""
        return {regex: resolve_regex(regex, self.topics.names) for regex in self.regexes}


class RegexChange(Enum):
    NONE = auto()
    UNRESOLVED = auto()
    """The new expression is not resolved yet: the group stays as it is until it is."""
    RESOLVED = auto()


def refusal_of(group: ConsumerGroup, regex: str | None) -> KafkaError | None:
    """Why a member cannot subscribe to an expression. One that has subscribers is known to be valid."""
    if not regex or regex in group.subscribed_regexes:
        return None
    try:
        check_regex(regex)
    except KafkaError as refused:
        return refused
    return None


def note_change(group: ConsumerGroup, before: ConsumerMember, after: ConsumerMember, effects: Effects) -> RegexChange:
    """Whether a member's expression has changed, and whether the new one is resolved."""
    if before.subscribed_regex == after.subscribed_regex:
        return RegexChange.NONE
    if before.regex is not None:
        forget_unused_regex(group, before.regex, effects)
    if after.regex is None:
        return RegexChange.NONE if before.regex is None else RegexChange.RESOLVED
    return RegexChange.RESOLVED if after.regex in group.resolved_regexes else RegexChange.UNRESOLVED


def refresh(group: ConsumerGroup, now: StepContext, effects: Effects) -> None:
    """Asks for the group's expressions to be resolved, if it is time to."""
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
        effects.schedule(ResolveRegexes(group.group_id, regexes, now.image.topics, now.image.offset))
        group.is_resolving_regexes = True


def resolved(
    group: ConsumerGroup,
    action: ResolveRegexes,
    found: Mapping[str, frozenset[str]],
    now: StepContext,
    effects: Effects,
) -> None:
    """Takes the result of the action. Subscriptions may have changed meanwhile."""
    group.is_resolving_regexes = False
    finds_others = False
    for regex, topics in found.items():
        if regex not in group.subscribed_regexes:
            continue
        before = group.resolved_regexes.get(regex)
        # A new expression that matches nothing is a change all the same: its member may have had partitions.
        finds_others = finds_others or before is None or topics != before.topics
        resolution = ResolvedRegex(topics, action.version, now.now_ms)
        group.write(consumer_records.resolved_regex(group.group_id, regex, resolution), effects)
    if finds_others or current_hash(group, now) != group.metadata_hash:
        bump_epoch(group, now, effects)


def check_regex(regex: str) -> None:
    """Raises INVALID_REGULAR_EXPRESSION if RE2 cannot compile the expression."""
    import re2

    try:
        _compile(regex)
    except re2.error as mistake:
        reason = mistake.args[0].decode(errors="replace")
        message = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {reason}."
        raise KafkaError(Error.INVALID_REGULAR_EXPRESSION, message) from mistake


def resolve_regex(regex: str, topic_names: Iterable[str]) -> frozenset[str]:
    """The topics whose whole name matches an expression: internal ones too, as in Kafka. An invalid one, which the log
    may have from a Kafka with another RE2, matches none."""
    import re2

    try:
        matches = _compile(regex).fullmatch
    except re2.error:
        return frozenset()
    return frozenset(name for name in topic_names if matches(name) is not None)


def _compile(regex: str) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    return re2.compile(regex, options)
