"""Each library compresses as it was told, and the broker as the topic was: the codec is read from the batch on disk,
not from what the library says.

A library that misreads the broker's versions falls back to uncompressed batches without a word.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from tests.clients.adapter import CODECS, Client, Codec, Message, ProducerOptions, consume

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


@pytest.mark.parametrize(
    ("stored_with", "idempotent"),
    [("uncompressed", False), ("gzip", False), ("snappy", False), ("lz4", False), ("zstd", False), ("zstd", True)],
)
def test_a_topic_with_a_codec_of_its_own_is_stored_with_it_and_read_as_it_was_written(
    client: Client, node: Peer, topic: str, stored_with: str, idempotent: bool
) -> None:
    client.create_topic(topic, config={"compression.type": stored_with})
    sent: list[Message] = []
    for codec in ("none", "lz4", "gzip"):
        messages = [
            Message(b"%s %d " % (codec.encode(), n) * (n % 40 + 1), b"key" if n % 2 else None, (("h", b"v"),) * (n % 3))
            for n in range(100)
        ]
        client.produce(topic, messages, options=ProducerOptions(codec=codec, idempotent=idempotent, linger_ms=20))
        sent += messages
    received = consume(client, topic, len(sent))
    assert [each.offset for each in received] == list(range(len(sent)))
    assert [(each.value, each.key, each.headers) for each in received] == [(m.value, m.key, m.headers) for m in sent]
    stored = set(stored_codecs(node.data_dir / f"{topic}-0" / "00000000000000000000.log"))
    assert stored == {"none" if stored_with == "uncompressed" else stored_with}
