"""A cluster of real nodes, each a process of its own on this machine, for tests of what happens when some of them fail.

    with Cluster(tmp_path, nodes=3) as cluster:
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
        cluster.kill(2)
        cluster.start_node(2)

Every node has a properties file of its own (`node-2.properties`), its folder is formatted once by `barnabas format`,
and each is started by `barnabas start`, as on three machines: there is no supervisor that would start again what a test
has killed. Ports are free ones, which stay reserved for the nodes for as long as the cluster exists.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.config.cluster_layout import (
    CONTROLLER_LISTENER,
    make_layout,
    node_properties,
    quorum_servers,
    voter_count,
)
from barnabas.config.initial_controllers import format_initial_controllers
from barnabas.config.properties import format_properties
from barnabas.ports import SystemRandom
from barnabas.protocol import uuids
from barnabas.testing.node_process import START_DEADLINE_S, STOP_DEADLINE_S, Node, NodeError
from barnabas.testing.several_nodes import HOST, SeveralNodes, reserved_port

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from typing import Self

    from barnabas.config.cluster_layout import Layout

    SettingsOf = Mapping[int, Mapping[str, str]]

FORMAT_DEADLINE_S: Final = 30.0


class Cluster(SeveralNodes[Node]):
    """Nodes with the ids 1 … `nodes`; the first of them are voters as well as brokers, as by `barnabas start --nodes`.

    There are as many voters as that command would choose, or `voters`. Those in `controllers` are voters only, so that
    any number of brokers can be killed, and the quorum lives on. `settings` are those of all nodes; `settings_of` those
    of single ones, by id, which win over all others: with them a node may also have other roles than by default. Where
    they depend on the ports of the cluster, as addresses that are advertised for what stands in front of a node do,
    `settings_of` is a function of the layout.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        nodes: int = 3,
        voters: int | None = None,
        controllers: Collection[int] = (),
        settings: Mapping[str, str] | None = None,
        settings_of: SettingsOf | Callable[[Layout], SettingsOf] | None = None,
    ) -> None:
        super().__init__()
        self.folder = Path(folder)
        random = SystemRandom()
        self._reservations = [reserved_port() for _ in range(nodes + voter_count(nodes))]
        ports = [each.getsockname()[1] for each in self._reservations]
        directory_ids = [random.uuid() for _ in range(voter_count(nodes))]
        layout = make_layout(uuids.to_text(random.uuid()), HOST, nodes, ports, directory_ids)
        self.layout = layout._replace(voters=layout.voters[:voters])
        self._static: set[int] = set()
        """Nodes whose settings name the voters, which then are not in the log."""
        if callable(settings_of):
            settings_of = settings_of(self.layout)
        for node_id in self.layout.node_ids:
            data_dir = self.folder / f"node-{node_id}"
            own = (settings_of or {}).get(node_id, {})
            properties = node_properties(
                self.layout, node_id, str(data_dir), {**(settings or {}), **own}, machine="this-machine"
            )
            if node_id in controllers:
                properties |= self._of_controller(node_id)
            properties.update(own)
            if "controller.quorum.voters" in properties:
                self._static.add(node_id)
            self.nodes[node_id] = self._make_node(
                data_dir, self.layout.client_ports[node_id - 1], self._write_config(node_id, properties)
            )

    @property
    def bootstrap(self) -> str:
        """What a client takes as `bootstrap.servers`: all nodes, whether they run or not."""
        return self.layout.bootstrap

    @property
    def bootstrap_controllers(self) -> str:
        """What an admin client takes as `bootstrap.controllers`: all voters, whether they run or not."""
        return quorum_servers(self.layout.voters)

    def start(self, *, deadline_s: float = START_DEADLINE_S) -> Self:
        """Formats the folders that are new, starts all nodes that do not run, and returns when they are ready."""
        self.format()
        launched = [node for node in self.nodes.values() if not node.is_running]
        for node in launched:
            node.kill()  # one that has ended by itself has not been waited for
            node.launch()
        deadline = time.monotonic() + deadline_s
        for node in launched:
            node.wait_until_ready(deadline_s=max(deadline - time.monotonic(), 0.1))
        return self

    def format(self) -> None:
        """Formats the folders of nodes that have not been formatted yet."""
        voters = format_initial_controllers(self.layout.voters)
        for node_id, node in self.nodes.items():
            if (node.data_dir / "meta.properties").exists():
                continue
            # With an equals sign, because an id may begin with a dash.
            words = [f"--cluster-id={self.layout.cluster_id}", "--config", str(self.config_file(node_id))]
            if node_id not in self._static:
                words += ["--initial-controllers", voters]
            code, output = self._run_command(["format", *words])
            if code != 0:
                raise NodeError(f"node {node_id} could not be formatted: {output}")

    def start_node(self, node_id: int, settings: Mapping[str, str] | None = None) -> Node:
        return self.nodes[node_id].start(settings)

    def restart_node(self, node_id: int, settings: Mapping[str, str] | None = None) -> Node:
        return self.nodes[node_id].restart(settings)

    def pause(self, node_id: int) -> None:
        self.nodes[node_id].pause()

    def resume(self, node_id: int) -> None:
        self.nodes[node_id].resume()

    def stop(self, *, deadline_s: float = STOP_DEADLINE_S) -> None:
        """A clean stop of all nodes that run: all brokers first, then the quorum, without which they could not hand
        over their partitions."""
        voters = {voter.node_id for voter in self.layout.voters}
        brokers = [node_id for node_id in self.running if node_id not in voters]
        self._stop_together(brokers, deadline_s)
        for node_id in self.running:
            self.nodes[node_id].send(signal.SIGUSR1)
        for node_id in self.running:
            self.nodes[node_id].wait_until_broker_stopped(deadline_s=deadline_s)
        self._stop_together(self.running, deadline_s)

    def log_text(self, node_id: int) -> str:
        """The log of all runs of a node so far."""
        return self.nodes[node_id].log_text()

    def config_file(self, node_id: int) -> Path:
        return self.folder / f"node-{node_id}.properties"

    def close(self) -> None:
        """Ends what still runs, and gives the ports back."""
        self.kill()
        for reservation in self._reservations:
            reservation.close()

    def _make_node(self, data_dir: Path, port: int, config_file: Path) -> Node:
        return Node(data_dir, port=port, config_file=config_file)

    def _run_command(self, words: Sequence[str]) -> tuple[int, str]:
        """Runs a `barnabas` command; returns its exit code and what it printed."""
        done = subprocess.run(  # noqa: S603 - our own interpreter, arguments of the test
            [sys.executable, "-m", "barnabas", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=FORMAT_DEADLINE_S,
        )
        return done.returncode, done.stdout

    def _stop_together(self, node_ids: Iterable[int], deadline_s: float) -> None:
        stopping = [self.nodes[node_id] for node_id in node_ids]
        for node in stopping:
            node.send(signal.SIGTERM)
        deadline = time.monotonic() + deadline_s
        for node in stopping:
            node.wait_until_stopped(deadline_s=max(deadline - time.monotonic(), 0.1))

    def _of_controller(self, node_id: int) -> dict[str, str]:
        (port,) = (voter.port for voter in self.layout.voters if voter.node_id == node_id)
        return {"process.roles": "controller", "listeners": f"{CONTROLLER_LISTENER}://{HOST}:{port}"}

    def _write_config(self, node_id: int, properties: Mapping[str, str]) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.config_file(node_id)
        file.write_text(format_properties(properties))
        return file
