"""How the tasks of a read fetch records: the settings of Kafka's consumers that have an effect here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from barnabas.client.option_reader import Options

if TYPE_CHECKING:
    from collections.abc import Mapping

FETCH_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True)
class FetchSettings:
    max_bytes: int = FETCH_BYTES
    """The size of a response. A first batch that is larger is returned whole all the same."""
    max_wait_ms: int = 500
    timeout_ms: int = 120_000
    """How long to wait for records that should be there, whatever the delay."""

    @classmethod
    def from_options(cls, options: Mapping[str, str], timeout_ms: int = timeout_ms) -> FetchSettings:
        """From the settings of Kafka's consumers, without the prefix `kafka.`."""
        taken = Options(options)
        return cls(
            max_bytes=min(
                taken.positive("max.partition.fetch.bytes", "fetch.message.max.bytes", default=cls.max_bytes),
                taken.positive("fetch.max.bytes", default=cls.max_bytes),
            ),
            max_wait_ms=taken.positive("fetch.max.wait.ms", "fetch.wait.max.ms", default=cls.max_wait_ms),
            timeout_ms=timeout_ms,
        )
