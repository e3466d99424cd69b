"""Ids of topics and directories as Kafka's tools read them, and what Java says of those that are none."""

from __future__ import annotations

import base64
from typing import Final

from barnabas.protocol.uuids import UUID_SIZE, Uuid

LENGTH_MAX: Final = 24
"""With the equals signs that nobody writes."""


class IdError(ValueError):
    """No id; what it says is what Java says."""


def read_id(text: str) -> Uuid:
    """An id. Bits behind its last byte do not count, and nor do equals signs."""
    problem = _what_is_wrong_with(text)
    if problem:
        raise IdError(problem)
    return Uuid(base64.urlsafe_b64decode(text.rstrip("=") + "=="))


def _what_is_wrong_with(text: str) -> str:
    if len(text) > LENGTH_MAX:
        return f"Input string with prefix `{text[:LENGTH_MAX]}` is too long to be decoded as a base64 UUID"
    strange = next((each for each in text.rstrip("=") if not (each.isascii() and (each.isalnum() or each in "-_"))), "")
    if strange:
        return f"Illegal base64 character {ord(strange):x}"
    digits = len(text.rstrip("="))
    if digits == 1:
        return "Input byte[] should at least have 2 bytes for base64 bytes"
    if digits % 4 == 1:
        return "Last unit does not have enough valid bits"
    if digits * 3 // 4 == UUID_SIZE:
        return ""
    return (
        f"Input string `{text}` decoded as {digits * 3 // 4} bytes, "
        "which is not equal to the expected 16 bytes of a base64-encoded UUID"
    )
