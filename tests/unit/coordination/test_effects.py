"""What steps ask for adds up in their order. An alarm gives way only to an earlier one."""

from __future__ import annotations

import pytest

from barnabas.coordination.effects import DUE_AT_ONCE, Alarms, Effects, Producer, ProducerId, Record
from barnabas.protocol import messages as m


def a_record(group_id: str) -> Record:
    return Record(m.GroupMetadataKey(group=group_id), None)


def test_a_further_step_comes_after_the_first() -> None:
    first, second = Effects(), Effects()
    for number, effects in enumerate((first, second)):
        effects.write(a_record(f"g{number}"))
        effects.answer(number, m.HeartbeatResponse())
        effects.schedule(f"action {number}")
        effects.note(f"note {number}")
    first.extend(second)
    assert first.records == [a_record("g0"), a_record("g1")]
    assert [reply_to for reply_to, _ in first.answers] == [0, 1]
    assert first.actions == ["action 0", "action 1"]
    assert first.notes == ["note 0", "note 1"]


def test_what_is_written_in_a_transaction_is_not_mixed_with_what_is_not() -> None:
    with pytest.raises(AssertionError, match="cannot share a batch"):
        Effects().extend(Effects(Producer(ProducerId(1), 0)))


def test_an_alarm_is_only_replaced_by_an_earlier_one() -> None:
    alarms = Alarms()
    alarms.set("a", 100)
    alarms.set("b", 90)
    alarms.set("a", 200)
    alarms.set("a", 50)
    assert alarms.next_ms == 50
    assert alarms.take_due(49) == []
    assert alarms.take_due(50) == ["a"]
    alarms.set("a", 100)
    assert alarms.take_due(99) == ["b"]
    assert alarms.take_due(100) == ["a"]
    assert alarms.take_due(1_000) == []
    assert alarms.next_ms is None


def test_of_very_many_alarms_some_go_off_and_the_others_are_still_due() -> None:
    alarms = Alarms()
    for number in range(DUE_AT_ONCE + 1):
        alarms.set(f"g{number}", number)
    now_ms = 2 * DUE_AT_ONCE
    assert len(alarms.take_due(now_ms)) == DUE_AT_ONCE
    assert alarms.next_ms == DUE_AT_ONCE
    assert alarms.take_due(now_ms) == [f"g{DUE_AT_ONCE}"]
