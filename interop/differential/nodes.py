"""A node of each kind with the same settings, ready for sequences."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tests.peers import running
from tests.wire.connection import Connection
from tests.wire.groups import await_coordinator
from tests.wire.transactions import await_transactions, init, init_request

from interop.differential.running import Pair
from interop.differential.sides import Side

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.peers import PeerKind

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.heartbeat.interval.ms": "5000",
    "group.consumer.session.timeout.ms": "60000",
    "group.consumer.max.session.timeout.ms": "120000",
    "group.max.session.timeout.ms": "120000",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "metadata.max.idle.interval.ms": "25",
    "controller.quorum.append.linger.ms": "1",
    "log.initial.task.delay.ms": "3600000",
    "log.retention.check.interval.ms": "3600000",
    "log.retention.ms": "-1",
    "log.cleaner.backoff.ms": "3600000",
}
"""Nobody is missed, nothing is cleaned while a sequence runs, and changes of the cluster are quick."""


@contextlib.contextmanager
def pair_of_nodes(folder: Path) -> Iterator[Pair]:
    """A node of ours and one of Apache Kafka."""
    for kind in ("barnabas", "kafka"):
        (folder / kind).mkdir()
    # Kafka answers questions about the metrics of clients in any case.
    telemetry = {"barnabas.client.telemetry.dir": str(folder / "barnabas" / "metrics")}
    with (
        ready("Barnabas", "barnabas", folder / "barnabas", telemetry) as ours,
        ready("Kafka", "kafka", folder / "kafka", {}) as kafkas,
    ):
        yield Pair(ours, kafkas)


@contextlib.contextmanager
def ready(name: str, kind: PeerKind, folder: Path, settings: dict[str, str]) -> Iterator[Side]:
    """A node whose internal topics are there."""
    with running(kind, folder, SETTINGS | settings) as peer:
        with Connection(peer.port) as connection:
            names = [f"warm-up-{number}" for number in range(12)]
            await_coordinator(connection, *names)
            await_transactions(connection, *names)
            init(connection, init_request(None))
        with contextlib.closing(Side(name, peer)) as side:
            yield side
