"""What the options of a source or a sink say to the client.

One set of options often serves several programs, so settings of Kafka's clients that mean nothing here are only worth a
warning. A name that no client has and that is very near to one that means something here is a mistake: what it was to
change would silently stay as it is.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from barnabas.client.options import Options
from barnabas.client.settings import ClientSettings, SettingsError
from barnabas.spark.given import CLIENT_PREFIX, OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

OF_SOURCE: Final = frozenset(
    {
        "group.id",
        "isolation.level",
        "max.partition.fetch.bytes",
        "fetch.message.max.bytes",
        "fetch.max.bytes",
        "fetch.max.wait.ms",
        "fetch.wait.max.ms",
    }
)
"""Settings of a consumer that mean something here, beyond those that say how to reach the cluster."""

OF_SINK: Final = frozenset(
    {
        "acks",
        "batch.size",
        "compression.type",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "delivery.timeout.ms",
        "enable.idempotence",
        "max.in.flight.requests.per.connection",
        "max.request.size",
        "transaction.timeout.ms",
        "transactional.id",
    }
)
"""Settings of a producer that mean something here."""

FETCH_BYTES: Final = 4 * 1024 * 1024

_NEARNESS: Final = 0.85
_NEAR_AND_RIGHT: Final = frozenset(
    {
        "compression.level",
        "fetch.min.bytes",
        "message.max.bytes",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.scope",
        "socket.connection.setup.timeout.max.ms",
    }
)
"""Settings of the Java client and of librdkafka that mean nothing here, and are as near to one that does as a mistake
would be."""


@dataclass(frozen=True)
class FetchSettings:
    """How records are asked for."""

    max_bytes: int = FETCH_BYTES
    """The size of an answer. A batch that is larger comes whole all the same."""
    max_wait_ms: int = 500
    timeout_ms: int = 120_000
    """How long to wait for records that ought to be there, whatever keeps them."""

    @classmethod
    def from_options(cls, options: Mapping[str, str], timeout_ms: int = timeout_ms) -> FetchSettings:
        """From the options of Kafka's consumers, without a `kafka.` before their names."""
        taken = Options(options)
        return cls(
            max_bytes=min(
                taken.positive("max.partition.fetch.bytes", "fetch.message.max.bytes", default=cls.max_bytes),
                taken.positive("fetch.max.bytes", default=cls.max_bytes),
            ),
            max_wait_ms=taken.positive("fetch.max.wait.ms", "fetch.wait.max.ms", default=cls.max_wait_ms),
            timeout_ms=timeout_ms,
        )


def client_settings(client: Mapping[str, str]) -> ClientSettings:
    """How to reach the cluster, from options without `kafka.`."""
    with naming_the_option():
        taken = Options(client)
        settings = ClientSettings.taken_from(taken)
    known = taken.known | OF_SOURCE | OF_SINK
    for name in settings.unused:
        if name not in known | _NEAR_AND_RIGHT and (near := get_close_matches(name, known, n=1, cutoff=_NEARNESS)):
            raise OptionError(
                CLIENT_PREFIX + name, f"is no setting of Kafka's clients; did you mean {CLIENT_PREFIX}{near[0]}?"
            )
    return settings


def ignored(settings: ClientSettings, own: frozenset[str], of: str) -> tuple[str, ...]:
    """What was given and has no effect, as warnings; `own` is what means something beyond the client."""
    return tuple(f"option {CLIENT_PREFIX}{name} means nothing to {of}" for name in settings.unused if name not in own)


@contextmanager
def naming_the_option() -> Iterator[None]:
    """What is wrong with a setting of the client is said of the option as it was given, with `kafka.` before it."""
    try:
        yield
    except SettingsError as error:
        raise OptionError(CLIENT_PREFIX + error.option, error.problem) from error
