"""Each library compresses as it was told: the codec is read from the batch on disk, not from what the library says.

A library that misreads the broker's versions falls back to uncompressed batches without a word.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from tests.clients.adapter import CODECS, Client, Codec, Message, ProducerOptions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.peers import Peer

_LENGTH_POSITION, _ATTRIBUTES_POSITION, _PREFIX_BYTES = 8, 21, 12


def stored_codecs(segment: Path) -> Iterator[Codec]:
    """The codec of each batch of a segment file."""
    data = segment.read_bytes()
    position = 0
    while position < len(data):
        (length,) = struct.unpack_from(">i", data, position + _LENGTH_POSITION)
        (attributes,) = struct.unpack_from(">h", data, position + _ATTRIBUTES_POSITION)
        yield CODECS[attributes & 7]
        position += _PREFIX_BYTES + length


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
def test_the_stored_batch_has_the_codec_that_the_client_was_told(
    client: Client, node: Peer, topic: str, codec: Codec, idempotent: bool
) -> None:
    client.create_topic(topic)
    sent = [Message(b"compressible " * 50)] * 50
    client.produce(topic, sent, options=ProducerOptions(codec=codec, idempotent=idempotent, linger_ms=50))
    stored = list(stored_codecs(node.data_dir / f"{topic}-0" / "00000000000000000000.log"))
    assert set(stored) == {codec}
