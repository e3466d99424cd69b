"""Formatting a controller's folder, beside Kafka's own tool."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from tools import apache_kafka

from barnabas.config.initial_controllers import parse_initial_controllers
from barnabas.log.folder.meta_properties import read_meta_properties
from barnabas.node.format_folders import voter_nodes
from barnabas.ports import SystemDisk
from barnabas.protocol.uuids import Uuid, to_text
from barnabas.raft.consensus.voter_sets import VoterEndpoint, VoterNode
from barnabas.raft.folder.format import format_voters

if TYPE_CHECKING:
    from pathlib import Path

ONE, TWO = (Uuid(bytes([number]) * 16) for number in (1, 2))
CLUSTER = "AAAAAAAAAAAAAAAAAAAABQ"


CASES = {
    "standalone": ("controller.quorum.bootstrap.servers=127.0.0.1:19093", ["--standalone"]),
    "initial controllers": (
        "controller.quorum.bootstrap.servers=127.0.0.1:19093",
        ["--initial-controllers", f"1@127.0.0.1:19093:{to_text(ONE)},2@127.0.0.1:19094:{to_text(TWO)}"],
    ),
    "no initial controllers": ("controller.quorum.bootstrap.servers=127.0.0.1:19093", ["--no-initial-controllers"]),
    "static voters": ("controller.quorum.voters=1@127.0.0.1:19093,2@127.0.0.1:19094", []),
}


@pytest.mark.kafka
@pytest.mark.usefixtures("apache_kafka_runs")
@pytest.mark.parametrize("case", CASES)
def test_a_folder_is_formatted_as_kafkas_own_tool_formats_it(case: str, tmp_path: Path) -> None:
    """The same files with the same modes and sizes, and the same records but for the times."""
    setting, options = CASES[case]
    theirs, ours = tmp_path / "kafka", tmp_path / "barnabas"
    properties = tmp_path / "server.properties"
    properties.write_text(
        f"process.roles=controller\nnode.id=1\nlisteners=CONTROLLER://127.0.0.1:19093\n"
        f"controller.listener.names=CONTROLLER\nlog.dirs={theirs}\n{setting}\n"
    )
    done = apache_kafka.run_tool("kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(properties), *options)
    assert done.returncode == 0, done.stdout + done.stderr
    meta = read_meta_properties(SystemDisk(), str(theirs))
    assert meta is not None
    voters: tuple[VoterNode, ...] | None = None
    if "--standalone" in options:
        voters = (VoterNode(1, meta.directory_id, (VoterEndpoint("CONTROLLER", "127.0.0.1", 19093),)),)
    elif "--initial-controllers" in options:
        voters = tuple(voter_nodes(parse_initial_controllers(options[1]), "CONTROLLER"))
    ours.mkdir()
    format_voters(SystemDisk(), str(ours), voters, now_ms=1_700_000_000_000)
    assert files(ours) == files(theirs)


def files(folder: Path) -> dict[str, tuple[int, str]]:
    """Every file but the identity: its mode, and what Kafka prints of it without times and checksums."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != "meta.properties":
            dumped = apache_kafka.dump_log(path, cluster_metadata=True).partition("\n")[2]
            times = re.compile(r"(CreateTime: |crc: |ContainedLogTimestamp\":)(?!0})\d+")
            found[str(path.relative_to(folder))] = (path.stat().st_mode, times.sub(r"\1…", dumped))
    return found
