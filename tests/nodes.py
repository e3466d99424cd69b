"""Nodes and clusters for the tests: `barnabas start` in processes of their own, forked from one that has the modules.

A node in a fresh interpreter spends five times as much processor time before it is ready, most of it on imports. What
the command does from its first line on is the same. Fresh interpreters are for tests of how a node is started, of the
limits that it inherits, and of the memory that it takes: `barnabas.testing.node_process` and `cluster_processes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.testing import cluster_processes, node_process
from barnabas.testing.kit.forks import fork_server, run_forked

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import BinaryIO

    from barnabas.testing.node_process import Process

NodeError = node_process.NodeError


class Node(node_process.Node):
    def _spawn(self, log: BinaryIO) -> Process:
        return fork_server().run(self._words(), log.fileno())


class Cluster(cluster_processes.Cluster):
    def _make_node(self, data_dir: Path, port: int, config_file: Path) -> Node:
        return Node(data_dir, port=port, config_file=config_file)

    def _run_command(self, words: Sequence[str]) -> tuple[int, str]:
        return run_forked(words, cluster_processes.FORMAT_DEADLINE_S)
