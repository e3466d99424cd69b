"""A cluster of brokers for tests of what an application does when some of them fail.

with Cluster(nodes=3) as cluster:
    topic = cluster.create_topic(partitions=3)
    cluster.kill(2)
    cluster[1].faults.delay(0.5)
"""

from __future__ import annotations

import asyncio
import tempfile
from typing import TYPE_CHECKING, Final

from barnabas.testing import cluster_processes
from barnabas.testing.kit.broker import FOLDER_PREFIX, TEST_SETTINGS, Broker
from barnabas.testing.kit.client_helpers import ClientHelpers
from barnabas.testing.kit.forks import fork_server, run_forked

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from barnabas.testing.kit.asynchronous import AsyncCluster

REPLICAS_MAX: Final = 3
QUICK: Final[Mapping[str, str]] = {
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "1500",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "num.recovery.threads.per.data.dir": "1",
}
"""Nodes that fail are missed early."""


class Cluster(cluster_processes.Cluster, ClientHelpers):
    """Nodes with the ids 1 … `nodes`, each a `Broker` with faults of its own, and a controller in the first of them.

    Their folders are temporary ones, unless there is a `folder`. `settings` are those of all nodes, on top of
    `TEST_SETTINGS` and `QUICK`; topics have three replicas where there are as many nodes, and writes with acks=all need
    two of them.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        nodes: int = 3,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        if folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX, ignore_cleanup_errors=True)
            folder = self._folder.name
        self._replicas = min(nodes, REPLICAS_MAX)
        replication = {
            "default.replication.factor": str(self._replicas),
            "min.insync.replicas": str(min(self._replicas, 2)),
            "offsets.topic.replication.factor": str(self._replicas),
            "transaction.state.log.replication.factor": str(self._replicas),
            "transaction.state.log.min.isr": str(min(self._replicas, 2)),
        }
        super().__init__(folder, nodes=nodes, settings={**TEST_SETTINGS, **QUICK, **replication, **(settings or {})})

    @property
    def bootstrap(self) -> str:
        return super().bootstrap

    @property
    def replication_factor(self) -> int:
        return self._replicas

    def __getitem__(self, node_id: int) -> Broker:
        node = super().__getitem__(node_id)
        assert isinstance(node, Broker)
        return node

    def close(self) -> None:
        super().close()
        if self._folder is not None:
            self._folder.cleanup()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._folder is None:
            super().__exit__(kind, error, trace)
        else:
            self.close()

    async def __aenter__(self) -> AsyncCluster:
        from barnabas.testing.kit.asynchronous import AsyncCluster

        await asyncio.to_thread(self.__enter__)
        return AsyncCluster(self)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    def _make_node(self, data_dir: Path, port: int, config_file: Path) -> Broker:
        return Broker(data_dir, port=port, config_file=config_file)

    def _run_command(self, words: Sequence[str]) -> tuple[int, str]:
        if self._folder is not None:
            fork_server().remove_at_the_end(self._folder.name)
        return run_forked(words, cluster_processes.FORMAT_DEADLINE_S)
