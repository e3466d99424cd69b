"""The states of a classic group, how it gets from one generation to the next, and what happens at its deadlines.

A rebalance begins when a member joins, leaves or changes. Its join phase ends when all members have joined and no
issued member id is still unused, or at the latest after the longest rebalance timeout of any member. The first
rebalance of an empty group is delayed instead (`group.initial.rebalance.delay.ms`): the members of an application start
together, and each latecomer would cost another rebalance. The delay is repeated while members keep joining, up to the
rebalance timeout.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.coordination.effects import Effects
from barnabas.groups.classic import classic_answers as answers
from barnabas.groups.classic.classic_members import NEVER_MS, NO_ASSIGNMENT, NO_MEMBER_ID, longest_rebalance_timeout_ms
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from barnabas.groups.classic.classic_group import ClassicGroup
    from barnabas.groups.classic.classic_members import ClassicMember
    from barnabas.protocol import messages as m


class ClassicGroupState(Enum):
    """The names are those that clients see."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


VALID_PREVIOUS_STATES: Final = {
    ClassicGroupState.EMPTY: {ClassicGroupState.PREPARING_REBALANCE},
    ClassicGroupState.PREPARING_REBALANCE: {
        ClassicGroupState.EMPTY,
        ClassicGroupState.STABLE,
        ClassicGroupState.COMPLETING_REBALANCE,
    },
    ClassicGroupState.COMPLETING_REBALANCE: {ClassicGroupState.PREPARING_REBALANCE},
    ClassicGroupState.STABLE: {ClassicGroupState.COMPLETING_REBALANCE},
    ClassicGroupState.DEAD: set(ClassicGroupState),
}
"""By state."""


class ClassicGroupSettings(NamedTuple):
    """The broker's `group.*` settings of classic groups. Kafka's defaults."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 2_147_483_647
    group_initial_rebalance_delay_ms: int = 3_000

    def accepts_session_timeout(self, session_timeout_ms: int) -> bool:
        return self.group_min_session_timeout_ms <= session_timeout_ms <= self.group_max_session_timeout_ms


def begin_or_complete(group: ClassicGroup, now_ms: int, effects: Effects) -> None:
    """A member has joined or changed: that begins a rebalance, or may complete the one under way."""
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        _complete_if_all_joined(group, now_ms, effects)
    else:
        prepare(group, now_ms, effects)


def go_on_with_fewer(group: ClassicGroup, count_before: int, now_ms: int, effects: Effects) -> None:
    """Members may have left, or only issued member ids have expired, which concerns just a rebalance under way."""
    if group.state is ClassicGroupState.PREPARING_REBALANCE or len(group.members) < count_before:
        go_on_without_some(group, now_ms, effects)


def go_on_without_some(group: ClassicGroup, now_ms: int, effects: Effects) -> None:
    """Somebody has left: that begins a rebalance, or may complete the one under way."""
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        _complete_if_all_joined(group, now_ms, effects)
    elif not group.is_empty:
        prepare(group, now_ms, effects)


def prepare(group: ClassicGroup, now_ms: int, effects: Effects) -> None:
    if group.state is ClassicGroupState.COMPLETING_REBALANCE:
        _withdraw_assignment(group, now_ms, effects)
    group.unsynced.clear()
    group.sync_deadline_ms = NEVER_MS
    is_initial = group.is_empty
    group.move_to(ClassicGroupState.PREPARING_REBALANCE, now_ms)
    if is_initial:
        delay_ms = group.settings.group_initial_rebalance_delay_ms
        group.has_new_members = False
        group.delay_left_ms = max(longest_rebalance_timeout_ms(group.members) - delay_ms, 0)
        _set_join_deadline(group, now_ms + delay_ms)
    else:
        group.delay_left_ms = 0
        _set_join_deadline(group, now_ms + longest_rebalance_timeout_ms(group.members))
        _complete_if_all_joined(group, now_ms, effects)


def _withdraw_assignment(group: ClassicGroup, now_ms: int, effects: Effects) -> None:
    """Members that wait for the assignment of an abandoned generation have to rejoin."""
    for member in group.members:
        member.assignment = NO_ASSIGNMENT
        if answer_sync(member, answers.sync_refused(Error.REBALANCE_IN_PROGRESS), effects):
            group.prolong_session(member, now_ms)


def _set_join_deadline(group: ClassicGroup, deadline_ms: int) -> None:
    group.join_deadline_ms = deadline_ms
    group.wake_by(deadline_ms)


def _complete_if_all_joined(group: ClassicGroup, now_ms: int, effects: Effects) -> None:
    is_initial = group.previous_state is ClassicGroupState.EMPTY
    all_joined = group.members.joined_count == len(group.members) and not group.pending_deadlines_ms
    if all_joined and not is_initial:
        _complete_join(group, now_ms, effects)


def _complete_join(group: ClassicGroup, now_ms: int, effects: Effects) -> None:
    """Starts the next generation with the members that have joined.

    Dynamic members that have not are removed; static ones stay, as they may be restarting. If no member has joined, and
    so none can lead, the rebalance goes on until one joins or the sessions end."""
    for member in [member for member in group.members if member.waiting_for_join is None and not member.is_static]:
        group.members.remove(member)
    if len(group.members) and not group.members.elect_joined_leader():
        _set_join_deadline(group, now_ms + longest_rebalance_timeout_ms(group.members))
        return
    group.join_deadline_ms = NEVER_MS
    group.generation += 1
    if len(group.members):
        _open_generation(group, now_ms, effects)
    else:
        _become_empty(group, now_ms, effects)


def _become_empty(group: ClassicGroup, now_ms: int, effects: Effects) -> None:
    group.protocol_name = None
    group.note_subscribed_topics()
    group.move_to(ClassicGroupState.EMPTY, now_ms)
    effects.write(group.record(), _stay_empty)


def _stay_empty(_error: Error, _now_ms: int) -> Effects:
    """That nobody is left is true even if it is not written: whoever reads the log waits for the sessions to end."""
    return Effects()


def _open_generation(group: ClassicGroup, now_ms: int, effects: Effects) -> None:
    group.protocol_name = group.members.select_protocol()
    group.note_subscribed_topics()
    group.move_to(ClassicGroupState.COMPLETING_REBALANCE, now_ms)
    for member in group.members:
        answer_join(group, member, answers.joined(group, member), effects)
        group.prolong_session(member, now_ms)
        member.is_new = False
        group.unsynced.add(member.member_id)
    group.sync_deadline_ms = now_ms + longest_rebalance_timeout_ms(group.members)
    group.wake_by(group.sync_deadline_ms)


def remove(group: ClassicGroup, member: ClassicMember, effects: Effects) -> None:
    """Removes a member. If a request of it waits, the answer tells it to join as a new member."""
    answer_join(group, member, answers.join_refused(Error.UNKNOWN_MEMBER_ID, NO_MEMBER_ID), effects)
    answer_sync(member, answers.sync_refused(Error.UNKNOWN_MEMBER_ID), effects)
    group.members.remove(member)
    group.expect_no_sync(member.member_id)


def answer_join(group: ClassicGroup, member: ClassicMember, response: m.JoinGroupResponse, effects: Effects) -> None:
    reply_to = group.members.end_wait_for_join(member)
    if reply_to is not None:
        effects.answer(reply_to, response)


def answer_sync(member: ClassicMember, response: m.SyncGroupResponse, effects: Effects) -> bool:
    """True if the member was waiting."""
    reply_to = member.waiting_for_sync
    if reply_to is None:
        return False
    member.waiting_for_sync = None
    effects.answer(reply_to, response)
    return True


def expire(group: ClassicGroup, now_ms: int, effects: Effects) -> None:
    if group.join_deadline_ms <= now_ms:
        _delay_or_complete(group, now_ms, effects)
    if group.sync_deadline_ms <= now_ms:
        _remove_unsynced(group, now_ms, effects)
    _remove_expired(group, now_ms, effects)


def _delay_or_complete(group: ClassicGroup, now_ms: int, effects: Effects) -> None:
    if group.has_new_members and group.delay_left_ms > 0:
        group.has_new_members = False
        delay_ms = min(group.settings.group_initial_rebalance_delay_ms, group.delay_left_ms)
        group.delay_left_ms -= delay_ms
        _set_join_deadline(group, now_ms + delay_ms)
    else:
        _complete_join(group, now_ms, effects)


def _remove_unsynced(group: ClassicGroup, now_ms: int, effects: Effects) -> None:
    """Removes members that joined but did not send SyncGroup, as they would hold their partitions for nothing."""
    for member_id in sorted(group.unsynced):
        reason = "it did not send SyncGroup within its rebalance timeout"
        effects.note(f"group {group.group_id}: member {member_id} removed: {reason}")
        remove(group, group.members[member_id], effects)
    prepare(group, now_ms, effects)


def _remove_expired(group: ClassicGroup, now_ms: int, effects: Effects) -> None:
    """Removes expired members and issued member ids. A member with a request that waits does not expire: its session
    begins anew when it is answered."""
    unused = [member_id for member_id, deadline_ms in group.pending_deadlines_ms.items() if deadline_ms <= now_ms]
    for member_id in unused:
        del group.pending_deadlines_ms[member_id]
    count_before = len(group.members)
    for member in [member for member in group.members if member.session_deadline_ms <= now_ms]:
        if member.is_alive_by_waiting:
            member.session_deadline_ms = NEVER_MS
        else:
            reason = f"it sent no heartbeat for {member.session_timeout_ms} ms"
            effects.note(f"group {group.group_id}: member {member.member_id} removed: {reason}")
            remove(group, member, effects)
    go_on_with_fewer(group, count_before, now_ms, effects)
