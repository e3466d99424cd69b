"""Options that begin with `kafka.`: the settings of the client that a source or a sink uses.

One set of options often serves several programs, so a setting of Kafka's clients that has no effect here is only worth
a warning. A name that no client has and that is very close to one with an effect here is refused as a misspelling:
otherwise the setting that was meant would silently keep its default.
"""

from __future__ import annotations

from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from barnabas.client.client_settings import ClientSettings, SettingsError
from barnabas.client.option_reader import Options
from barnabas.spark.raw_options import CLIENT_PREFIX, OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from barnabas.client.cluster import Cluster

CONSUMER_SETTINGS: Final = frozenset(
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
"""Settings of a consumer that have an effect here, beyond those that say how to reach the cluster."""

PRODUCER_SETTINGS: Final = frozenset(
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
"""Settings of a producer that have an effect here."""

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
"""Settings of the Java client and of librdkafka that have no effect here, but look like a misspelling of one that
does."""


def client_settings(client: Mapping[str, str]) -> ClientSettings:
    """How to reach the cluster, from options without their prefix `kafka.`."""
    with naming_options():
        taken = Options(client)
        settings = ClientSettings.taken_from(taken)
    known = taken.known | CONSUMER_SETTINGS | PRODUCER_SETTINGS
    for name in settings.unused:
        if name not in known | _NEAR_AND_RIGHT and (near := get_close_matches(name, known, n=1, cutoff=_NEARNESS)):
            raise OptionError(
                CLIENT_PREFIX + name, f"is not a setting of Kafka's clients; did you mean {CLIENT_PREFIX}{near[0]}?"
            )
    return settings


def ignored_settings(settings: ClientSettings, own: frozenset[str], of: str) -> tuple[str, ...]:
    """Warnings about settings without an effect. `own` are those that have one although the client ignores them."""
    return tuple(f"option {CLIENT_PREFIX}{name} has no effect on {of}" for name in settings.unused if name not in own)


@contextmanager
def naming_options() -> Iterator[None]:
    """Turns errors about client settings into errors about options, which have `kafka.` before their names."""
    try:
        yield
    except SettingsError as error:
        raise OptionError(CLIENT_PREFIX + error.option, error.problem) from error


def similar_topics(cluster: Cluster, missing: Iterable[str]) -> str:
    """The end of an error message about missing topics: existing ones with similar names."""
    names = [each.name for each in cluster.metadata(None).values() if not each.is_internal]
    close = [match for name in missing for match in get_close_matches(name, names, n=1)]
    return f"; did you mean {', '.join(map(repr, close))}?" if close else ""
