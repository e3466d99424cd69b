"""Encodes and decodes whole messages that may name very many things, with turns for others in between.

They travel inside another message (Envelope), so they are not read from a connection piece by piece.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from barnabas.net.large_requests import ELEMENTS_MAX, WHOLE_BYTES_MAX, Breather, encode_in_slices
from barnabas.protocol import codec
from barnabas.protocol.compiler.decoder import WEIGHT_OF_STRUCT
from barnabas.protocol.pieces import PieceReader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.protocol.compiler.structs import Message
    from barnabas.protocol.varint import Buffer

LONG_ARRAYS: Final[Mapping[str, str]] = {
    "CreateTopicsRequest": "topics",
    "CreateTopicsResponse": "topics",
    "DeleteTopicsResponse": "responses",
    "CreatePartitionsRequest": "topics",
    "CreatePartitionsResponse": "results",
    "AlterConfigsRequest": "resources",
    "AlterConfigsResponse": "responses",
    "IncrementalAlterConfigsRequest": "resources",
    "IncrementalAlterConfigsResponse": "responses",
    "AlterClientQuotasRequest": "entries",
    "AlterClientQuotasResponse": "entries",
    "AlterPartitionReassignmentsRequest": "topics",
    "AlterPartitionReassignmentsResponse": "responses",
    "ListPartitionReassignmentsResponse": "topics",
    "ElectLeadersResponse": "replica_election_results",
}
"""Where a message has the many things that it may name, and each of them is more than a name."""


async def encode_message(message: Message, version: int) -> bytes:
    array = LONG_ARRAYS.get(type(message).__name__)
    if array is None or not getattr(message, array):
        return codec.encode(message, version)
    return b"".join(await encode_in_slices(message, version, array))


async def decode_message(cls: type[Message], data: Buffer, version: int, offset: int) -> Any:
    """Raises DecodeError."""
    array = LONG_ARRAYS.get(cls.__name__)
    if array is None or len(data) - offset <= WHOLE_BYTES_MAX:
        return codec.decode_prefix(cls, data, version, offset)[0]
    reader: PieceReader[Any] = PieceReader(cls, version, (array,), data, offset)
    reader.piece_weight_max = ELEMENTS_MAX * WEIGHT_OF_STRUCT
    breather = Breather()
    elements: list[Any] = []
    message: Any = None
    for message in reader.pieces():
        elements += getattr(message, array)
        await breather.pause_if_due()
    setattr(message, array, elements)
    return message
