"""Topic ids, directory ids and incarnation ids: 16 bytes, written as 22 characters of URL-safe base64."""

from __future__ import annotations

from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from typing import NewType

Uuid = NewType("Uuid", bytes)

UUID_SIZE = 16
ZERO_UUID = Uuid(bytes(UUID_SIZE))
METADATA_TOPIC_ID = Uuid(bytes(15) + b"\x01")
"""The topic id of `__cluster_metadata`, fixed in Kafka."""

_TO_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_FROM_URL_SAFE = bytes.maketrans(b"-_", b"+/")
_TEXT_LENGTH = 22


def to_text(uuid: Uuid) -> str:
    if len(uuid) != UUID_SIZE:
        raise ValueError(f"an id has {UUID_SIZE} bytes, not {len(uuid)}: {bytes(uuid)!r}")
    return b2a_base64(uuid, newline=False).rstrip(b"=").translate(_TO_URL_SAFE).decode()


def from_text(text: str) -> Uuid:
    """The id that `to_text` writes as `text`. Raises ValueError for anything else."""
    try:
        if len(text) != _TEXT_LENGTH or "+" in text or "/" in text:
            raise ValueError
        uuid = Uuid(a2b_base64(text.encode("ascii").translate(_FROM_URL_SAFE) + b"==", strict_mode=True))
    except (Base64Error, ValueError):
        raise ValueError(f"{text!r} is not an id of {_TEXT_LENGTH} characters of URL-safe base64") from None
    if len(uuid) != UUID_SIZE:
        raise ValueError(f"{text!r} is not an id of {_TEXT_LENGTH} characters of URL-safe base64")
    return uuid
