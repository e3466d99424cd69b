"""Record values that look like data: words from a small vocabulary, so that a codec finds what it usually finds."""

from __future__ import annotations

import random
import string

SEED = 20_240_607
VOCABULARY_WORDS = 2_000
WORD_LETTERS = range(3, 12)


def values(count: int, size_bytes: int) -> list[bytes]:
    """The same distinct values in every run and on every machine."""
    source = random.Random(SEED)
    vocabulary = [
        "".join(source.choices(string.ascii_lowercase, k=source.choice(WORD_LETTERS))) for _ in range(VOCABULARY_WORDS)
    ]
    return [_text(source, vocabulary, size_bytes) for _ in range(count)]


def _text(source: random.Random, vocabulary: list[str], size_bytes: int) -> bytes:
    shortest = WORD_LETTERS.start + 1
    words = source.choices(vocabulary, k=size_bytes // shortest + 1)
    return f"{source.getrandbits(32):08x} {' '.join(words)}".encode()[:size_bytes]
