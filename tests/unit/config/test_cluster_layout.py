"""Who is who in a cluster on one machine."""

from __future__ import annotations

import pytest

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.cluster_layout import (
    DECIDED,
    Layout,
    LayoutError,
    consecutive_ports,
    format_layout,
    make_layout,
    node_properties,
    parse_layout,
    require_folders,
    require_same_cluster,
    voter_count,
)
from barnabas.config.settings import BROKER
from barnabas.protocol.uuids import Uuid


def layout_of(nodes: int, host: str = "127.0.0.1", port: int = 9092) -> Layout:
    ids = [Uuid(bytes([number + 1]) * 16) for number in range(voter_count(nodes))]
    return make_layout("MkU3OEVBNTcwNTJENDM2Qg", host, nodes, consecutive_ports(port, nodes), ids)


def config_of(layout: Layout, node_id: int, given: dict[str, str] | None = None) -> BrokerConfig:
    properties = node_properties(layout, node_id, f"/d/node-{node_id}", given or {}, machine="m")
    return BrokerConfig.from_properties(properties)[0]


@pytest.mark.parametrize(("nodes", "voters"), [(1, 1), (2, 1), (3, 3), (4, 3), (5, 5), (6, 5), (12, 5)])
def test_the_first_nodes_are_voters_and_the_rest_only_brokers(nodes: int, voters: int) -> None:
    layout = layout_of(nodes)
    roles = [config_of(layout, node_id).process_roles for node_id in layout.node_ids]
    assert roles == [("broker", "controller")] * voters + [("broker",)] * (nodes - voters)
    assert [layout.is_voter(node_id) for node_id in layout.node_ids] == ["controller" in each for each in roles]


def test_ports_follow_each_other_clients_first() -> None:
    layout = layout_of(4)
    assert layout.bootstrap == "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094,127.0.0.1:9095"
    for node_id in layout.node_ids:
        config = config_of(layout, node_id)
        assert config.node_id == node_id
        assert config.log_dirs == (f"/d/node-{node_id}",)
        assert [each.port for each in config.listeners] == [9091 + node_id]
        assert [each.port for each in config.controller_listeners] == ([9095 + node_id] if node_id <= 3 else [])
        assert [server.port for server in config.quorum_servers] == [9096, 9097, 9098]
        assert config.broker_rack == "m"


@pytest.mark.parametrize(("nodes", "replicas", "min_isr"), [(1, 1, 1), (2, 2, 1), (3, 3, 2), (5, 3, 2)])
def test_internal_topics_have_the_replicas_that_so_many_nodes_can_hold(nodes: int, replicas: int, min_isr: int) -> None:
    config = config_of(layout_of(nodes), 1)
    assert config.offsets_topic_replication_factor == replicas
    assert config.transaction_state_log_replication_factor == replicas
    assert config.share_coordinator_state_topic_replication_factor == replicas
    assert config.transaction_state_log_min_isr == config.share_coordinator_state_topic_min_isr == min_isr
    assert (config.barnabas_offsets_topic_min_isr or config.min_insync_replicas) == min_isr


def test_given_settings_win_over_defaults_but_not_over_the_layout() -> None:
    given = {"offsets.topic.replication.factor": "2", "broker.rack": "r", "node.id": "9", "log.dirs": "/elsewhere"}
    config = config_of(layout_of(3), 2, given)
    assert config.offsets_topic_replication_factor == 2
    assert config.broker_rack == "r"
    assert config.node_id == 2
    assert config.log_dirs == ("/d/node-2",)


def test_what_the_layout_decides_are_settings() -> None:
    assert {*BROKER} >= DECIDED


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_nodes_on_every_interface_are_known_by_the_machines_name(host: str) -> None:
    config = config_of(layout_of(3, host), 2)
    assert [str(each) for each in config.advertised_listeners] == ["PLAINTEXT://m:9093"]
    assert [each.host for each in config.advertised_controller_listeners] == ["127.0.0.1"]


def test_ports_beyond_the_last_are_refused() -> None:
    assert consecutive_ports(65530, 3)[-1] == 65535
    with pytest.raises(LayoutError, match="3 nodes from port 65531 on need ports up to 65536"):
        consecutive_ports(65531, 3)


def test_a_layout_is_remembered() -> None:
    layout = layout_of(3, "::1")
    assert parse_layout(format_layout(layout)) == layout
    assert layout.client_address(1) == "[::1]:9092"
    served = layout._replace(has_served=True)
    assert parse_layout(format_layout(served)) == served


def test_the_memory_of_earlier_versions_does_not_say_whether_nodes_have_served() -> None:
    text = format_layout(layout_of(3)).replace("has.served=false\n", "")
    assert "served" not in text
    assert parse_layout(text).has_served is None


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("version=1", "has version 2, only 1 is supported"),
        ("host=127.0.0.1", "has no host"),
        ("client.ports=9092,9093,9094", "cannot be read"),
        ("voters=", "cannot be read"),
        ("has.served=", "has has.served=perhaps, which is neither true nor false"),
    ],
)
def test_a_memory_that_is_damaged_is_refused(line: str, problem: str) -> None:
    broken = {
        "version=1": "version=2",
        "host=127.0.0.1": "",
        "client.ports=9092,9093,9094": "client.ports=x",
        "has.served=": "has.served=perhaps",
    }
    text = format_layout(layout_of(3))
    start = text.index(line)
    end = text.index("\n", start)
    with pytest.raises(LayoutError, match=problem):
        parse_layout(text[:start] + broken.get(line, "voters=nobody") + text[end:])


@pytest.mark.parametrize("listen", [None, ("127.0.0.1", 9092), ("127.0.0.1", 0)])
def test_the_same_cluster_starts_again(listen: tuple[str, int] | None) -> None:
    require_same_cluster(layout_of(3), "/d", nodes=3, listen=listen)


@pytest.mark.parametrize("listen", [("127.0.0.1", 19092), ("0.0.0.0", 9092)])
def test_another_address_is_refused_with_the_old_ports(listen: tuple[str, int]) -> None:
    with pytest.raises(LayoutError) as refused:
        require_same_cluster(layout_of(3), "/d", nodes=3, listen=listen)
    assert "listens at 127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094" in str(refused.value)
    assert "with controllers at 127.0.0.1:9095,127.0.0.1:9096,127.0.0.1:9097" in str(refused.value)


def test_another_number_of_nodes_is_refused() -> None:
    with pytest.raises(LayoutError, match="/d has a cluster of 3 nodes, not of 5: start it with --nodes 3"):
        require_same_cluster(layout_of(3), "/d", nodes=5, listen=None)


def directory_ids(layout: Layout) -> dict[int, Uuid | None]:
    """Of folders that all have what they were formatted with."""
    others = {node_id: Uuid(bytes([100 + node_id]) * 16) for node_id in layout.node_ids}
    return {**others, **{voter.node_id: voter.directory_id for voter in layout.voters}}


def test_a_folder_that_is_gone_is_named_with_what_replaces_it() -> None:
    layout = layout_of(4)
    require_folders(layout, "/d", directory_ids(layout))
    with pytest.raises(LayoutError) as refused:
        require_folders(layout, "/d e", {**directory_ids(layout), 4: None})
    assert str(refused.value) == (
        "/d e has a cluster that was started before, and /d e/node-4 of node 4 is empty or gone: mount or restore it; "
        "to give up what it had, first have the other nodes lead all partitions, as docs/cluster.md says, and only "
        "then format it anew: `barnabas format --config '/d e/node-4.properties' "
        "--cluster-id=MkU3OEVBNTcwNTJENDM2Qg --no-initial-controllers`"
    )


def test_voters_that_were_replaced_are_none_any_more() -> None:
    layout = layout_of(3)
    replaced = {**directory_ids(layout), 1: Uuid(bytes([9]) * 16)}
    require_folders(layout, "/d", replaced)
    with pytest.raises(LayoutError, match="of 3 voters only 1 would be left, which is no majority"):
        require_folders(layout, "/d", {**replaced, 2: None})
