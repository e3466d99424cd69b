"""How keys and values are shown: as text or numbers, or as the records of the topics that Kafka keeps for itself."""

from __future__ import annotations

import re
import struct
import zlib
from typing import TYPE_CHECKING, Final, TypeAlias

from barnabas.cli.kafka.files.dump_log.page import text_of
from barnabas.cli.kafka.tool import ToolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.cli.kafka.files.dump_log.careful_records import RawRecord
    from barnabas.cli.kafka.flags import Given

Decoder: TypeAlias = "Callable[[RawRecord], tuple[str | None, str | None]]"
"""Key and value as they are shown; None for what is not there."""


class UnreadableRecordError(Exception):
    """What is wrong with a record, in Kafka's words; it is shown in its place."""


DECODER_FLAGS: Final = (
    "offsets-decoder",
    "transaction-log-decoder",
    "cluster-metadata-decoder",
    "remote-log-metadata-decoder",
    "value-decoder-class",
    "key-decoder-class",
    "share-group-state-decoder",
)
_PACKAGES: Final = re.compile(r"(?:org\.apache\.kafka\.tools\.api|kafka\.serializer)\.(\w+)")
"""That of today, and that which tutorials know."""


def decoder_of(given: Given) -> Decoder:
    """The one that a command line asks for."""
    if given.has("offsets-decoder"):
        from barnabas.cli.kafka.files.dump_log.coordinator_records import offsets_decoder

        return offsets_decoder
    if given.has("transaction-log-decoder"):
        from barnabas.cli.kafka.files.dump_log.coordinator_records import transaction_log_decoder

        return transaction_log_decoder
    if given.has("cluster-metadata-decoder"):
        from barnabas.cli.kafka.files.dump_log.metadata_records import metadata_decoder

        return metadata_decoder
    if given.has("remote-log-metadata-decoder"):
        from barnabas.cli.kafka.files.dump_log.remote_log_records import remote_log_metadata_decoder

        return remote_log_metadata_decoder
    if given.has("share-group-state-decoder"):
        from barnabas.cli.kafka.files.dump_log.coordinator_records import share_state_decoder

        return share_state_decoder
    value, key = (_text_form(given.required(f"{part}-decoder-class")) for part in ("value", "key"))
    if key is text_of and value is text_of:
        return as_text
    return lambda record: (_applied(key, record.key), _applied(value, record.value))


def as_text(record: RawRecord) -> tuple[str | None, str | None]:
    """Both as text, which is how they are shown if nobody asks for anything else."""
    return _applied(text_of, record.key), _applied(text_of, record.value)


def _applied(form: Callable[[bytes], str], data: bytes | None) -> str | None:
    return None if data is None else form(data)


def _text_form(class_name: str) -> Callable[[bytes], str]:
    """What one of Kafka's decoder classes makes of bytes."""
    found = _PACKAGES.fullmatch(class_name)
    form = _FORMS.get(found[1]) if found else None
    if form is None:
        raise ToolError("Failed to load decoder class", hint=f"no Java is run here; there are {', '.join(_FORMS)}")
    return form


def _number(layout: struct.Struct) -> Callable[[bytes], str]:
    def form(data: bytes) -> str:
        try:
            return str(layout.unpack_from(data)[0])
        except struct.error:
            raise ToolError("java.nio.BufferUnderflowException") from None

    return form


_FORMS: Final[dict[str, Callable[[bytes], str]]] = {
    "StringDecoder": text_of,
    "IntegerDecoder": _number(struct.Struct(">i")),
    "LongDecoder": _number(struct.Struct(">q")),
    # Java shows an array of bytes by a number of its own, and nothing of what is in it.
    "DefaultDecoder": lambda data: f"[B@{zlib.crc32(data):x}",
}
