"""`barnabas format`: what it writes, and what it refuses, in the words of Kafka's storage tool."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tools import apache_kafka

from barnabas.cli.command_line import CommandError
from barnabas.cli.formatting import format_command, random_uuid_command
from barnabas.config.properties import format_properties, parse_properties
from barnabas.log.folder.meta_properties import read_meta_properties
from barnabas.metadata.snapshot_records import bootstrap_records
from barnabas.node.initial_features import DEFAULT_FEATURES, VERSION_NAMES, initial_features, release_level
from barnabas.ports import SystemDisk
from barnabas.protocol import uuids
from barnabas.raft.consensus.log_history import BOOTSTRAP
from barnabas.raft.consensus.voter_sets import VoterEndpoint, VoterNode
from barnabas.raft.folder.format import read_bootstrap
from barnabas.raft.folder.snapshots import read_snapshot
from tests.nodes import Node

if TYPE_CHECKING:
    from collections.abc import Mapping

ID = "MkU3OEVBNTcwNTJENDM2Qg"
DIRECTORY, OTHER_DIRECTORY = "JEXY6aqzQY-32P5TStzaFg", "MvDxzVmcRsaTz33bUuRU6A"
FIRST, SECOND = f"1@localhost:9093:{DIRECTORY}", f"2@[::1]:9094:{OTHER_DIRECTORY}"
CONTROLLER = {
    "process.roles": "controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listeners": "CONTROLLER://localhost:9093",
    "controller.quorum.bootstrap.servers": "localhost:9093",
}
BROKER = {
    **CONTROLLER,
    "process.roles": "broker",
    "node.id": "4",
    "listeners": "PLAINTEXT://localhost:9092",
}
STATIC = {**CONTROLLER, "controller.quorum.voters": "1@localhost:9093,2@localhost:9094"}
NEEDED = (
    "Because controller.quorum.voters is not set on this controller, you must specify one of the following: "
    "--standalone, --initial-controllers, or --no-initial-controllers."
)
STATIC_AND_DYNAMIC = (
    "You cannot specify controller.quorum.voters and format the node with --initial-controllers or --standalone."
)

# (the node, what is asked for, how the refusal begins)
REFUSALS: list[tuple[Mapping[str, str], list[str], str]] = [
    (CONTROLLER, [], NEEDED),
    (BROKER, ["--standalone"], "You can only use --standalone on a controller."),
    (STATIC, ["--standalone"], STATIC_AND_DYNAMIC),
    (STATIC, ["--initial-controllers", FIRST], STATIC_AND_DYNAMIC),
    (CONTROLLER, ["--initial-controllers", ","], "No voters given."),
    (CONTROLLER, ["--initial-controllers", "1"], "No @ found in dynamic voter string."),
    (
        CONTROLLER,
        ["--initial-controllers", f"x@h:1:{DIRECTORY}"],
        "Failed to parse node id in dynamic voter string.",
    ),
    (CONTROLLER, ["--initial-controllers", "1@"], "No hostname found after node id."),
    (
        CONTROLLER,
        ["--initial-controllers", f"1@[::1:1:{DIRECTORY}"],
        "Hostname began with left bracket, but no right bracket was found.",
    ),
    (CONTROLLER, ["--initial-controllers", "1@h"], "No colon following hostname could be found."),
    (CONTROLLER, ["--initial-controllers", f"1@[::1]9:{DIRECTORY}"], "Port section must start with a colon."),
    (CONTROLLER, ["--initial-controllers", "1@h:1"], "No colon following port could be found."),
    (CONTROLLER, ["--initial-controllers", f"1@h:x:{DIRECTORY}"], "Failed to parse port in dynamic voter string."),
    (CONTROLLER, ["--initial-controllers", f"1@h:70000:{DIRECTORY}"], "Invalid port 70000 in dynamic voter string."),
    (CONTROLLER, ["--initial-controllers", "1@h:1:zzz"], "Failed to parse directory ID in dynamic voter string."),
    (CONTROLLER, ["--initial-controllers", f"{FIRST},{FIRST}"], "Node id 1 was specified more than once."),
    (
        CONTROLLER,
        ["-s", "--feature", "foo=1"],
        (
            "Unsupported feature: foo. Supported features are: eligible.leader.replicas.version, group.version, "
            "kraft.version, share.version, streams.version, transaction.version"
        ),
    ),
    (
        CONTROLLER,
        ["-s", "--feature", "kraft.version"],
        "Can't parse feature=level string kraft.version: equals sign not found.",
    ),
    (
        CONTROLLER,
        ["-s", "--feature", "kraft.version=x"],
        "Can't parse feature=level string kraft.version=x: unable to parse x as a short.",
    ),
    (
        CONTROLLER,
        ["-s", "--feature", "kraft.version=0"],
        (
            "Cannot set kraft.version to 0 if controller.quorum.voters is empty and one of the flags --standalone, "
            "--initial-controllers, or --no-initial-controllers is used. For dynamic controllers support, try removing "
            "the --feature flag for kraft.version."
        ),
    ),
    (
        STATIC,
        ["--feature", "kraft.version=1"],
        (
            "Cannot set kraft.version to 1 unless controller.quorum.voters is empty and one of the flags --standalone, "
            "--initial-controllers, or --no-initial-controllers is used. For dynamic controllers support, try using "
            "one of --standalone, --initial-controllers, or --no-initial-controllers and removing "
            "controller.quorum.voters."
        ),
    ),
    (CONTROLLER, ["-s", "--feature", "kraft.version=9"], "No feature:kraft.version with feature level 9"),
    (CONTROLLER, ["-s", "--feature", "transaction.version=9"], "No feature:transaction.version with feature level 9"),
    (
        CONTROLLER,
        ["-s", "--feature", "metadata.version=17", "--release-version", "4.0"],
        "Use --release-version instead of --feature metadata.version=X to avoid ambiguity.",
    ),
    (
        CONTROLLER,
        ["-s", "--feature", "metadata.version=99"],
        "No MetadataVersion with feature level 99. Valid feature levels are from 7 to 3",
    ),
    (
        CONTROLLER,
        ["-s", "--release-version", "2.8"],
        f"Unknown metadata.version '2.8'. Supported metadata.version are: {', '.join(VERSION_NAMES.values())}",
    ),
    (
        CONTROLLER,
        ["-s", "--release-version", "3.9", "--feature", "eligible.leader.replicas.version=1"],
        "eligible.leader.replicas.version could not be set to 1 because it depends on metadata.version level 23",
    ),
]


def write_config(folder: Path, node: Mapping[str, str], *, log_dirs: str | None = None) -> Path:
    file = folder / "node.properties"
    file.write_text(format_properties({**node, "log.dirs": log_dirs or str(folder / "data")}))
    return file


def format_node(config: Path, *words: str, cluster_id: str = ID) -> None:
    assert format_command.run(["--cluster-id", cluster_id, "--config", str(config), *words]) == 0


def refusal(config: Path, *words: str, cluster_id: str = ID) -> str:
    with pytest.raises(CommandError) as refused:
        format_command.run(["--cluster-id", cluster_id, "--config", str(config), *words])
    return str(refused.value)


@pytest.mark.parametrize(("node", "words", "complaint"), REFUSALS, ids=[" ".join(each[1]) for each in REFUSALS])
def test_what_makes_no_sense_is_refused_before_anything_is_written(
    tmp_path: Path, node: Mapping[str, str], words: list[str], complaint: str
) -> None:
    assert refusal(write_config(tmp_path, node), *words).startswith(complaint)
    assert not (tmp_path / "data").exists()


@pytest.mark.kafka
@pytest.mark.usefixtures("apache_kafka_runs")
def test_kafkas_storage_tool_says_the_same(tmp_path: Path) -> None:
    lines = []
    for number, (node, words, _) in enumerate(REFUSALS):
        folder = tmp_path / str(number)
        folder.mkdir()
        config = write_config(folder, node)
        lines.append("\t".join(["format", "--cluster-id", ID, "--config", str(config), *words]))
    source = Path(__file__).with_name("RunStorageTool.java")
    done = subprocess.run(
        [*apache_kafka.java_command(), str(source)],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    said = [line.removeprefix("said:") for line in done.stdout.splitlines() if line.startswith("said:")]
    for theirs, (_, words, complaint) in zip(said, REFUSALS, strict=True):
        assert theirs.startswith(complaint), words


def test_a_standalone_controller_is_the_only_voter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    format_node(write_config(tmp_path, CONTROLLER), "--standalone")
    data, disk = str(tmp_path / "data"), SystemDisk()
    assert capsys.readouterr().out == (
        f"Formatting dynamic metadata voter directory {data} with metadata.version 4.3-IV0.\n"
    )
    meta = read_meta_properties(disk, data)
    assert meta is not None
    assert (meta.cluster_id, meta.node_id) == (ID, 1)
    endpoint = VoterEndpoint("CONTROLLER", "localhost", 9093)
    snapshot = read_snapshot(disk, f"{data}/__cluster_metadata-0", BOOTSTRAP)
    assert snapshot.kraft_version == 1
    assert snapshot.voters == (VoterNode(1, meta.directory_id, (endpoint,)),)
    assert [record.message for record in read_bootstrap(disk, data)] == [
        record.message for record in bootstrap_records()
    ]


@pytest.mark.parametrize(("node", "kind"), [(CONTROLLER, "dynamic metadata voter"), (BROKER, "dynamic metadata")])
def test_initial_controllers_are_written_on_voters_and_on_others(
    tmp_path: Path, node: Mapping[str, str], kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    format_node(write_config(tmp_path, node), "--initial-controllers", f"{SECOND},{FIRST}")
    data, disk = str(tmp_path / "data"), SystemDisk()
    assert f"Formatting {kind} directory {data}" in capsys.readouterr().out
    first, second = uuids.from_text(DIRECTORY), uuids.from_text(OTHER_DIRECTORY)
    assert read_snapshot(disk, f"{data}/__cluster_metadata-0", BOOTSTRAP).voters == (
        VoterNode(1, first, (VoterEndpoint("CONTROLLER", "localhost", 9093),)),
        VoterNode(2, second, (VoterEndpoint("CONTROLLER", "::1", 9094),)),
    )
    meta = read_meta_properties(disk, data)
    assert meta is not None
    assert (meta.directory_id == first) == (node is CONTROLLER)


@pytest.mark.parametrize(
    ("node", "words"), [(BROKER, []), (BROKER, ["-N"]), (CONTROLLER, ["-N"]), (STATIC, []), (STATIC, ["-N"])]
)
def test_without_initial_controllers_no_voters_are_written(
    tmp_path: Path, node: Mapping[str, str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    format_node(write_config(tmp_path, node), *words)
    assert f"Formatting metadata directory {tmp_path / 'data'}" in capsys.readouterr().out
    assert sorted(file.name for file in (tmp_path / "data").iterdir()) == ["bootstrap.checkpoint", "meta.properties"]


def several(folder: Path) -> Path:
    file = write_config(folder, CONTROLLER, log_dirs=f"{folder}/one,{folder}/two/")
    file.write_text(file.read_text() + f"metadata.log.dir={folder}/three\n")
    return file


def test_every_folder_is_formatted_and_one_of_them_has_the_voters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    format_node(several(tmp_path), "-s")
    said = capsys.readouterr().out
    for name in ("one", "two"):
        assert f"Formatting data directory {tmp_path / name} with" in said
        assert sorted(file.name for file in (tmp_path / name).iterdir()) == ["bootstrap.checkpoint", "meta.properties"]
    assert (tmp_path / "three" / "__cluster_metadata-0").exists()
    ids = {parse_properties((tmp_path / n / "meta.properties").read_text())["directory.id"] for n in ("one", "two")}
    assert len(ids) == 2


def test_a_formatted_folder_is_refused_or_left_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = several(tmp_path)
    format_node(config, "-s")
    kept = (tmp_path / "two" / "meta.properties").read_bytes()
    assert refusal(config, "-s") == (
        f"Log directory {tmp_path / 'one'} is already formatted. "
        "Use --ignore-formatted to ignore this directory and format the others."
    )
    for file in (tmp_path / "one").iterdir():
        file.unlink()
    capsys.readouterr()
    format_node(config, "-s", "--ignore-formatted")
    assert f"Formatting data directory {tmp_path / 'one'}" in capsys.readouterr().out
    assert (tmp_path / "two" / "meta.properties").read_bytes() == kept
    format_node(config, "-s", "-g")
    assert capsys.readouterr().out == "All of the log directories are already formatted.\n"


@pytest.mark.parametrize("words", [["-s"], ["-s", "--ignore-formatted"]])
def test_folders_of_another_cluster_or_node_are_refused(tmp_path: Path, words: list[str]) -> None:
    config = several(tmp_path)
    format_node(config, "-s")
    file = tmp_path / "one" / "meta.properties"
    assert refusal(config, *words, cluster_id="other") == (
        f"Invalid cluster.id in: {file}. Expected other, but read {ID}"
    )
    config.write_text(config.read_text().replace("node.id=1", "node.id=9"))
    assert refusal(config, *words).startswith(f"Stored node id 1 doesn't match previous node id 9 in {file}.")
    config.write_text(config.read_text().replace("node.id=9", "node.id=1"))
    file.write_text((tmp_path / "two" / "meta.properties").read_text())
    assert refusal(config, *words).endswith(
        f"found. It was the ID of {tmp_path / 'one'}, but also of {tmp_path / 'two'}"
    )


def test_a_metadata_log_without_its_properties_is_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "data" / "__cluster_metadata-0" / "00000000000000000000.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"")
    assert "has a metadata log, but there is no meta.properties" in refusal(write_config(tmp_path, CONTROLLER), "-s")


def test_a_file_without_roles_is_refused(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"broker.id": "1", "listeners": "PLAINTEXT://localhost:9092"})
    assert refusal(config, "-s") == 'Missing required configuration "process.roles" which has no default value.'


def test_older_releases_begin_with_their_own_features() -> None:
    assert initial_features(None, [], has_static_voters=False) == DEFAULT_FEATURES
    assert initial_features("4.0", [], has_static_voters=False).levels == {
        "metadata.version": 25,
        "group.version": 1,
        "transaction.version": 2,
    }
    assert initial_features("3.9.1", ["transaction.version=1"], has_static_voters=False).levels == {
        "metadata.version": 21,
        "transaction.version": 1,
    }
    assert "transaction.version" not in initial_features(None, ["transaction.version=0"], has_static_voters=True).levels
    assert [release_level(each) for each in ("3.3", "3.7", "4.0-IV1", "4.2", "4.3")] == [7, 19, 23, 29, 30]


def test_an_id_is_made_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    format_node(write_config(tmp_path, CONTROLLER), "-s", cluster_id="auto")
    meta = read_meta_properties(SystemDisk(), str(tmp_path / "data"))
    assert meta is not None
    assert f"Cluster id {meta.cluster_id}\n" in capsys.readouterr().out
    assert uuids.from_text(meta.cluster_id)


def test_random_ids_do_not_begin_with_a_dash(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(100):
        random_uuid_command.run([])
    ids = capsys.readouterr().out.split()
    assert len({*ids}) == 100
    assert not any(text.startswith("-") for text in ids)
    assert all(uuids.from_text(text) for text in ids)


def test_a_node_starts_on_what_was_formatted(tmp_path: Path) -> None:
    node = {
        **CONTROLLER,
        "process.roles": "broker,controller",
        "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    }
    format_node(write_config(tmp_path, node), "-s")
    with Node(tmp_path / "data"):
        pass
    meta = read_meta_properties(SystemDisk(), str(tmp_path / "data"))
    assert meta is not None
    assert meta.cluster_id == ID
