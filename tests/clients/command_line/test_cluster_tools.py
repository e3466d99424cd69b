"""`kafka-cluster`, `-broker-api-versions`, `-features` and `-metadata-quorum` on a real node, as Kafka's print."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from barnabas.protocol.api import APIS, ApiKey
from tests.clients.command_line.kafka_tool import Done, KafkaTool, run_tool

if TYPE_CHECKING:
    from tests.peers import Peer

NO_ID = "AAAAAAAAAAAAAAAAAAAAAw"


@pytest.fixture
def features(node: Peer, capsys: pytest.CaptureFixture[str]) -> KafkaTool:
    return KafkaTool("kafka-features", node, capsys)


@pytest.fixture
def quorum(node: Peer, capsys: pytest.CaptureFixture[str]) -> KafkaTool:
    return KafkaTool("kafka-metadata-quorum", node, capsys)


def cluster_tool(node: Peer, capsys: pytest.CaptureFixture[str], action: str, *words: str) -> Done:
    return run_tool(capsys, "kafka-cluster", action, "--bootstrap-server", node.bootstrap, *words)


def test_a_cluster_has_an_id_and_endpoints(node: Peer, capsys: pytest.CaptureFixture[str]) -> None:
    assert re.fullmatch(r"Cluster ID: [\w-]{22}\n", cluster_tool(node, capsys, "cluster-id").out)
    assert cluster_tool(node, capsys, "list-endpoints", "--include-fenced-brokers").out == (
        "ID         HOST      PORT       RACK       STATE      ENDPOINT_TYPE  \n"
        f"1          127.0.0.1 {node.port:<10} null       unfenced   broker         \n"
    )


def test_a_broker_that_is_not_registered_cannot_be_forgotten(node: Peer, capsys: pytest.CaptureFixture[str]) -> None:
    assert cluster_tool(node, capsys, "unregister", "--id", "77") == (
        1,
        "",
        "org.apache.kafka.common.errors.BrokerIdNotRegisteredException: Broker ID 77 is not currently registered\n",
    )
    assert cluster_tool(node, capsys, "unregister").complaint == "kafka-cluster: error: argument --id/-i is required"


def test_a_broker_speaks_apis(node: Peer, capsys: pytest.CaptureFixture[str]) -> None:
    first, *apis, last = KafkaTool("kafka-broker-api-versions", node, capsys).printed().splitlines()
    assert (first, last) == (f"{node.bootstrap} (id: 1 rack: null isFenced: false) -> (", ")")
    newest = APIS[ApiKey.FETCH].max_version
    assert f"\tFetch(1): 4 to {newest} [usable: {newest}]," in apis

    nowhere = run_tool(capsys, "kafka-broker-api-versions", "--bootstrap-server", "nonsense")
    assert (nowhere.code, nowhere.err) == (1, "Invalid url in bootstrap.servers: nonsense\n")


def test_features_are_shown_lowered_and_raised(features: KafkaTool) -> None:
    (line,) = (each for each in features.printed("describe").splitlines() if "streams.version" in each)
    assert re.fullmatch(
        r"Feature: streams\.version {27}SupportedMinVersion: 0 {16}SupportedMaxVersion: 1 {16}"
        r"FinalizedVersionLevel: 1 {16}Epoch: \d+",
        line,
    )
    assert features.printed("downgrade", "--feature", "streams.version=0", "--dry-run") == (
        "streams.version can be downgraded to 0.\n"
    )
    assert features.printed("disable", "--feature", "streams.version") == "streams.version was disabled.\n"
    assert features.printed("upgrade", "--feature", "streams.version=1") == "streams.version was upgraded to 1.\n"


def test_a_level_that_there_is_not_is_refused(features: KafkaTool) -> None:
    refused = features("upgrade", "--feature", "share.version=9")
    assert (refused.code, refused.err) == (1, "1 out of 1 operation(s) failed.\n")
    assert refused.out == (
        "Could not upgrade share.version to 9. The update failed for all features since the following feature had an "
        "error: Invalid update version 9 for feature share.version. Local controller 1 only supports versions 0-1\n"
    )
    unread = features("upgrade", "--feature", "share.version=x")
    assert unread.err == "Can't parse feature=level string share.version=x: unable to parse x as a short.\n"


def test_what_a_release_has_is_told_without_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    mapping = run_tool(capsys, "kafka-features", "version-mapping", "--release-version", "3.9")
    assert mapping.lines[:2] == ["metadata.version=21 (3.9)", "kraft.version=1"]
    needs = run_tool(capsys, "kafka-features", "feature-dependencies", "--feature", "share.version=5")
    assert (needs.code, needs.err) == (1, "No feature:share.version with feature level 5\n")
    assert run_tool(capsys, "kafka-features", "describe").complaint == (
        "Command line error: You must specify either --bootstrap-controller or --bootstrap-server.. "
        "Type --help for help."
    )


def test_the_quorum_is_one_voter(quorum: KafkaTool) -> None:
    shown = dict(line.split(":", 1) for line in quorum.printed("describe", "--status").splitlines())
    assert (shown["LeaderId"].strip(), shown["MaxFollowerLag"].strip()) == ("1", "0")
    assert re.fullmatch(
        r'\[\{"id": 1, "directoryId": "[\w-]{22}", "endpoints": \["CONTROLLER://127\.0\.0\.1:\d+"\]\}\]',
        shown["CurrentVoters"].strip(),
    )
    heading, row = quorum.printed("describe", "--replication", "--human-readable").splitlines()
    assert heading.split() == [
        "NodeId",
        "DirectoryId",
        "LogEndOffset",
        "Lag",
        "LastFetchTimestamp",
        "LastCaughtUpTimestamp",
        "Status",
    ]
    assert [cell.strip() for cell in row.split("\t")][-2:] == ["Leader", ""]


def test_who_does_not_vote_cannot_be_removed(quorum: KafkaTool) -> None:
    words = ("remove-controller", "--controller-id", "3", "--controller-directory-id")
    assert quorum(*words, NO_ID, "--dry-run").out == (
        f"DRY RUN of removing  KRaft controller 3 with directory id {NO_ID}\n"
    )
    refused = quorum(*words, NO_ID)
    assert refused.code == 1
    # Barnabas does not let voters come and go, and says so; Kafka knows none of this number.
    assert re.match(r"org\.apache\.kafka\.common\.errors\.(UnsupportedVersion|VoterNotFound)Exception: ", refused.err)
    assert quorum(*words, "short").err.startswith("Failed to parse --controller-directory-id: ")


def test_a_controllers_properties_say_how_it_would_vote(
    quorum: KafkaTool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("controller")
    (folder / "meta.properties").write_text(f"version=1\ncluster.id=any\nnode.id=9\ndirectory.id={NO_ID}\n")
    properties = folder / "controller.properties"
    properties.write_text(
        f"node.id=9\nprocess.roles=controller\nlog.dirs={folder}\ncontroller.listener.names=CONTROLLER\n"
        "listeners=CONTROLLER://localhost:9393\n"
    )
    assert quorum("--command-config", str(properties), "add-controller", "--dry-run").out == (
        f"DRY RUN of adding controller 9 with directory id {NO_ID} and endpoints: CONTROLLER://localhost:9393\n"
    )
    properties.write_text("node.id=9\nprocess.roles=broker\n")
    assert quorum("--command-config", str(properties), "add-controller").err == (
        "process.roles did not contain 'controller' in configuration file. "
        "Is this a valid controller configuration file?\n"
    )
