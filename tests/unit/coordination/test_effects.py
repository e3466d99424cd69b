"""What steps ask for adds up in their order."""

from __future__ import annotations

import pytest

from barnabas.coordination.effects import Effects, Producer, ProducerId, Record
from barnabas.protocol import messages as m


def a_record(group_id: str) -> Record:
    return Record(m.GroupMetadataKey(group=group_id), None)


def test_a_further_step_comes_after_the_first() -> None:
    first, second = Effects(), Effects()
    for number, effects in enumerate((first, second)):
        effects.write(a_record(f"g{number}"))
        effects.answer(number, m.HeartbeatResponse())
        effects.order(f"order {number}")
        effects.note(f"note {number}")
    first.extend(second)
    assert first.records == [a_record("g0"), a_record("g1")]
    assert [reply_to for reply_to, _ in first.answers] == [0, 1]
    assert first.orders == ["order 0", "order 1"]
    assert first.notes == ["note 0", "note 1"]


def test_what_is_written_in_a_transaction_is_not_mixed_with_what_is_not() -> None:
    with pytest.raises(AssertionError, match="not written together"):
        Effects().extend(Effects(Producer(ProducerId(1), 0)))
