from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.uuids import METADATA_TOPIC_ID, ZERO_UUID, Uuid, from_text, to_text


def test_ids_are_shown_as_kafka_shows_them() -> None:
    assert to_text(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert to_text(METADATA_TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert to_text(Uuid(b"\xfb\xff" * 8)) == "-__7__v_-__7__v_-__7_w"


@given(st.binary(min_size=16, max_size=16))
def test_an_id_is_read_as_it_was_shown(uuid: bytes) -> None:
    assert from_text(to_text(Uuid(uuid))) == uuid


@pytest.mark.parametrize(
    "text",
    ["", "A" * 21, "A" * 23, "A" * 24, "A" * 20 + "==", "+" + "A" * 21, "/" + "A" * 21, "*" + "A" * 21, "é" + "A" * 21],
)
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an id of 22 characters"):
        from_text(text)


def test_an_id_of_another_length_is_not_shown() -> None:
    with pytest.raises(ValueError, match="an id has 16 bytes, not 3"):
        to_text(Uuid(b"abc"))
