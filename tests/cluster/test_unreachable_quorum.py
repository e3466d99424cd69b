"""A node that finds no quorum says whom it tries and why that fails, goes on trying, and joins when there is one."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from barnabas.config.properties import format_properties
from barnabas.protocol import uuids
from tests.cluster.clusters import QUICK, create_replicated, format_folder, status, wait_until
from tests.nodes import Cluster, Node

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.testing import node_process

COMPLAINT = re.compile(r"no answer from the metadata quorum for (\d+) s, still trying: (.*)")
PATIENCE_S = 40.0


def complaints(node: node_process.Node) -> list[tuple[int, str]]:
    """For how long nothing has been heard, and from whom, of each line."""
    return [(int(seconds), reasons) for seconds, reasons in COMPLAINT.findall(node.log_text())]


def test_one_of_three_voters_names_the_others_every_few_seconds_and_joins_them(tmp_path: Path, topic: str) -> None:
    cluster = Cluster(tmp_path, settings=QUICK)
    try:
        cluster.format()
        alone = cluster[2]
        alone.launch()
        wait_until(lambda: len(complaints(alone)) >= 2, "it says twice that nobody answers", PATIENCE_S)
        (first, reasons), (second, _) = complaints(alone)[:2]
        assert 3 <= second - first <= 10
        for voter in cluster.layout.voters:
            if voter.node_id != 2:
                assert re.search(rf"127\.0\.0\.1:{voter.port}\b[^;]*refused", reasons, re.IGNORECASE), reasons
        assert alone.is_running
        for node_id in (1, 3):
            cluster[node_id].launch()
        for node_id in cluster.nodes:
            cluster[node_id].wait_until_ready()
        create_replicated(cluster, topic)
        assert [node["fenced"] for node in status(cluster)["nodes"]] == [False] * 3
    finally:
        cluster.close()


def test_voters_that_do_not_exist_are_named_and_tried_again(tmp_path: Path) -> None:
    """A machine whose name nobody knows, and a port at which nobody listens."""
    config = tmp_path / "broker.properties"
    config.write_text(
        format_properties(
            {
                "process.roles": "broker",
                "node.id": "7",
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.bootstrap.servers": "no-such-machine.invalid:9093,127.0.0.1:1",
                "log.dirs": str(tmp_path / "data"),
            }
        )
    )
    format_folder(config, uuids.to_text(uuids.Uuid(bytes(15) + b"\x07")), "--no-initial-controllers")
    node = Node(tmp_path / "data", config_file=config)
    try:
        node.launch()
        wait_until(lambda: len(complaints(node)) >= 1, "it says that nobody answers", PATIENCE_S)
        _, reasons = complaints(node)[0]
        assert "no-such-machine.invalid:9093" in reasons
        assert "127.0.0.1:1" in reasons
        assert node.is_running
        node.stop()
    finally:
        node.kill()


def test_the_status_of_a_cluster_without_a_majority_is_a_failure(tmp_path: Path, topic: str) -> None:
    """The one broker that is left takes all for alive that were so when it last heard from a controller."""
    with Cluster(tmp_path, settings=QUICK) as cluster:
        create_replicated(cluster, topic)
        cluster.kill(2)
        cluster.kill(3)
        left = cluster[1].bootstrap

        def status() -> subprocess.CompletedProcess[str]:
            words = [sys.executable, "-m", "barnabas", "cluster", "status", "--bootstrap-server", left]
            return subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE_S)

        # If it led the quorum, it does so until it has missed the others for long enough.
        deadline = time.monotonic() + PATIENCE_S
        while (done := status()).returncode == 0:
            assert time.monotonic() < deadline, "it still takes itself for the active controller"
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "there is no active controller, as when no majority of the voters is up" in done.stderr
    assert f"nodes and partitions are shown as {left} last knew them" in done.stderr
    assert "no active controller  partitions" in done.stdout
