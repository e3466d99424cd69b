"""How a classic group gets from one generation to the next, and what time does to it.

A rebalance begins when a member comes, goes or changes. It ends its join phase when all members have joined and no
member id is out that nobody has joined with; or, at the latest, when the slowest member's rebalance timeout is over.
The first rebalance of an empty group waits instead: members of one application start together, and each that came
late would cost another rebalance. So it is put off by the initial delay, again and again while members keep coming,
but for no longer than the rebalance timeout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.groups import classic_answers as answers
from barnabas.groups.classic_member import NEVER_MS, NO_ASSIGNMENT, NO_MEMBER_ID, longest_rebalance_timeout_ms
from barnabas.groups.classic_state import GroupState
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from barnabas.coordination.effects import Effects
    from barnabas.groups.classic import ClassicGroup
    from barnabas.groups.classic_member import ClassicMember
    from barnabas.protocol import messages as m


def begin_or_complete(group: ClassicGroup, now_ms: int, effects: Effects) -> None:
    """A member came or changed: that begins a rebalance, or is what the one under way was waiting for."""
    if group.state is GroupState.PREPARING_REBALANCE:
        _complete_if_all_joined(group, now_ms, effects)
    else:
        prepare(group, now_ms, effects)


def go_on_with_fewer(group: ClassicGroup, count_before: int, now_ms: int, effects: Effects) -> None:
    """Members may be gone, or just ids that were given out, which only a rebalance under way has waited for."""
    if group.state is GroupState.PREPARING_REBALANCE:
        _complete_if_all_joined(group, now_ms, effects)
    elif len(group.members) < count_before:
        prepare(group, now_ms, effects)


def prepare(group: ClassicGroup, now_ms: int, effects: Effects) -> None:
    if group.state is GroupState.COMPLETING_REBALANCE:
        _withdraw_assignment(group, now_ms, effects)
    group.unsynced.clear()
    group.sync_deadline_ms = NEVER_MS
    is_initial = group.is_empty
    group.move_to(GroupState.PREPARING_REBALANCE, now_ms)
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
    """Whoever waits for an assignment of a generation that will not be has to join again."""
    for member in group.members:
        member.assignment = NO_ASSIGNMENT
        if answer_sync(member, answers.sync_refused(Error.REBALANCE_IN_PROGRESS), effects):
            group.prolong_session(member, now_ms)


def _set_join_deadline(group: ClassicGroup, deadline_ms: int) -> None:
    group.join_deadline_ms = deadline_ms
    group.wake_by(deadline_ms)


def _complete_if_all_joined(group: ClassicGroup, now_ms: int, effects: Effects) -> None:
    is_initial = group.previous_state is GroupState.EMPTY
    all_joined = group.members.joined_count == len(group.members) and not group.pending_deadlines_ms
    if all_joined and not is_initial:
        _complete_join(group, now_ms, effects)


def _complete_join(group: ClassicGroup, now_ms: int, effects: Effects) -> None:
    """Opens the next generation with whoever has joined.

    Dynamic members that have not are out; static ones stay, for they may be restarting. With static members alone,
    none of whom has joined, there is nobody to lead: the rebalance goes on until one comes or their sessions end."""
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
    group.move_to(GroupState.EMPTY, now_ms)
    effects.write(group.record())


def _open_generation(group: ClassicGroup, now_ms: int, effects: Effects) -> None:
    group.protocol_name = group.members.select_protocol()
    group.note_subscribed_topics()
    group.move_to(GroupState.COMPLETING_REBALANCE, now_ms)
    for member in group.members:
        answer_join(group, member, answers.joined(group, member), effects)
        group.prolong_session(member, now_ms)
        member.is_new = False
        group.unsynced.add(member.member_id)
    group.sync_deadline_ms = now_ms + longest_rebalance_timeout_ms(group.members)
    group.wake_by(group.sync_deadline_ms)


def remove(group: ClassicGroup, member: ClassicMember, effects: Effects) -> None:
    """Takes a member out. Where it still waits it is told to join as a new one."""
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
        _put_off_or_complete(group, now_ms, effects)
    if group.sync_deadline_ms <= now_ms:
        _remove_unsynced(group, now_ms, effects)
    _remove_silent(group, now_ms, effects)


def _put_off_or_complete(group: ClassicGroup, now_ms: int, effects: Effects) -> None:
    if group.has_new_members and group.delay_left_ms > 0:
        group.has_new_members = False
        delay_ms = min(group.settings.group_initial_rebalance_delay_ms, group.delay_left_ms)
        group.delay_left_ms -= delay_ms
        _set_join_deadline(group, now_ms + delay_ms)
    else:
        _complete_join(group, now_ms, effects)


def _remove_unsynced(group: ClassicGroup, now_ms: int, effects: Effects) -> None:
    """Members that joined but never asked for their assignment would hold their partitions for nothing."""
    for member_id in sorted(group.unsynced):
        effects.note(
            f"group {group.group_id}: {member_id} is out, it joined and did not ask for its assignment in time"
        )
        remove(group, group.members[member_id], effects)
    prepare(group, now_ms, effects)


def _remove_silent(group: ClassicGroup, now_ms: int, effects: Effects) -> None:
    """Sessions and member ids that have run out. A member that waits for an answer is not silent: its session begins
    again when it is answered."""
    unused = [member_id for member_id, deadline_ms in group.pending_deadlines_ms.items() if deadline_ms <= now_ms]
    for member_id in unused:
        del group.pending_deadlines_ms[member_id]
    count_before = len(group.members)
    for member in [member for member in group.members if member.session_deadline_ms <= now_ms]:
        if member.is_alive_by_waiting:
            member.session_deadline_ms = NEVER_MS
        else:
            silence = f"nothing was heard of it for {member.session_timeout_ms} ms"
            effects.note(f"group {group.group_id}: {member.member_id} is out, {silence}")
            remove(group, member, effects)
    go_on_with_fewer(group, count_before, now_ms, effects)
