"""What a person gives at the start, from nothing to a file of the ZooKeeper era, and what they are told about it."""

import pytest

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.settings import ConfigError
from barnabas.config.startup import replace_broker_listeners
from barnabas.net.endpoint import Listener

KRAFT = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
}


def test_a_node_without_a_file_is_a_cluster_of_its_own() -> None:
    config, warnings = BrokerConfig.for_single_node(data_dir="/data", host="127.0.0.1", port=0)
    assert warnings == []
    assert config.process_roles == ("broker", "controller")
    assert config.node_id == config.broker_id == 1
    assert config.log_dirs == ("/data",)
    assert config.listeners == (Listener("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 0),)
    assert config.controller_listeners == (Listener("CONTROLLER", "PLAINTEXT", "127.0.0.1", 0),)
    for name in (
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
        "transaction.state.log.min.isr",
        "share.coordinator.state.topic.replication.factor",
        "share.coordinator.state.topic.min.isr",
    ):
        assert config.get(name) == 1


def test_overrides_go_before_what_a_node_without_a_file_has() -> None:
    overrides = {"offsets.topic.replication.factor": "3", "node.id": "7", "listeners": "PLAINTEXT://localhost:1234"}
    config, _ = BrokerConfig.for_single_node(data_dir="/data", overrides=overrides)
    assert config.get("offsets.topic.replication.factor") == 3
    assert config.node_id == 7
    assert [listener.port for listener in (*config.listeners, *config.controller_listeners)] == [1234, 0]


def test_a_file_keeps_kafkas_defaults_of_internal_topics() -> None:
    config, _ = BrokerConfig.from_properties(KRAFT)
    assert config.get("offsets.topic.replication.factor") == 3
    assert config.get("transaction.state.log.min.isr") == 2


def test_a_file_of_the_zookeeper_era_starts() -> None:
    era = {
        "broker.id": "4",
        "port": "9095",
        "host.name": "localhost",
        "zookeeper.connect": "zk:2181",
        "zookeeper.connection.timeout.ms": "6000",
        "log.dirs": "/a,/b",
        "log.retention.hours": "24",
    }
    config, warnings = BrokerConfig.from_properties(era)
    assert config.node_id == config.broker_id == 4
    assert config.listeners == (Listener("PLAINTEXT", "PLAINTEXT", "localhost", 9095),)
    assert config.log_dirs == ("/a", "/b")
    assert warnings == [
        "ZooKeeper is not used: ignoring zookeeper.connect, zookeeper.connection.timeout.ms",
        "using listeners=PLAINTEXT://localhost:9095 instead of host.name and port",
    ]


def test_old_advertised_addresses_become_advertised_listeners() -> None:
    era = {"port": "9095", "advertised.host.name": "broker.example.org"}
    config, warnings = BrokerConfig.from_properties(era)
    assert config.advertised_listeners == (Listener("PLAINTEXT", "PLAINTEXT", "broker.example.org", 9095),)
    assert "using advertised.listeners=PLAINTEXT://broker.example.org:9095 instead of advertised.host.name" in warnings


def test_listeners_go_before_port_and_host_name() -> None:
    config, warnings = BrokerConfig.from_properties({"port": "1", "listeners": "PLAINTEXT://localhost:9092"})
    assert config.listeners[0].port == 9092
    assert warnings == ["ignoring port, because listeners is set"]


def test_a_broker_id_that_was_to_be_generated_is_1() -> None:
    config, _ = BrokerConfig.from_properties({"broker.id": "-1"})
    assert config.node_id == config.broker_id == 1


def test_node_id_and_broker_id_must_agree() -> None:
    config, _ = BrokerConfig.from_properties({**KRAFT, "broker.id": "1"})
    assert config.node_id == 1
    with pytest.raises(ConfigError, match=r"You must set `node.id` to the same value as `broker.id`"):
        BrokerConfig.from_properties({**KRAFT, "broker.id": "3"})


@pytest.mark.parametrize(
    ("name", "successor"),
    [
        ("log.message.format.version", "records are always stored"),
        ("inter.broker.protocol.version", "metadata.version"),
        ("quota.producer.default", "client quotas"),
        ("log.message.timestamp.difference.max.ms", "log.message.timestamp.before.max.ms"),
        ("control.plane.listener.name", "controller.listener.names"),
        ("password.encoder.secret", "config.providers"),
    ],
)
def test_a_removed_setting_is_named_with_what_replaces_it(name: str, successor: str) -> None:
    config, (warning,) = BrokerConfig.from_properties({name: "1"})
    assert warning.startswith(f"{name} was removed from Kafka and is ignored; replacement: ")
    assert successor in warning
    assert name not in {given for layer in config.layers.values() for given in layer}


def test_an_unknown_setting_warns_with_the_nearest_name() -> None:
    config, warnings = BrokerConfig.from_properties({**KRAFT, "num.partition": "3", "x": "1"})
    assert warnings == [
        "unknown setting num.partition is ignored; did you mean num.partitions?",
        "unknown setting x is ignored",
    ]
    assert config.num_partitions == 1


def test_settings_without_effect_are_told_in_one_line() -> None:
    _, warnings = BrokerConfig.from_properties({**KRAFT, "num.io.threads": "8", "num.network.threads": "5"})
    assert warnings == ["accepted, but without effect in this version: num.io.threads, num.network.threads"]


def test_a_setting_without_effect_must_still_be_valid() -> None:
    with pytest.raises(ConfigError, match=r"Invalid value 0 for configuration num.io.threads"):
        BrokerConfig.from_properties({**KRAFT, "num.io.threads": "0"})


@pytest.mark.parametrize(
    "name",
    [
        "listener.name.plaintext.max.connections",
        "config.providers.file.class",
        "super.users",
        "rlmm.config.bootstrap.servers",
        "rsm.config.bucket",
        "client.quota.callback.static.produce",
        "principal.builder.custom",
        "authorizer.custom",
    ],
)
def test_settings_of_listeners_and_plug_ins_pass_in_silence(name: str) -> None:
    assert BrokerConfig.from_properties({**KRAFT, name: "1"})[1] == []


def test_a_plug_in_prefix_of_ones_own_passes_in_silence() -> None:
    given = {**KRAFT, "remote.log.storage.manager.impl.prefix": "tier.", "tier.bucket": "b"}
    assert not any("tier.bucket" in warning for warning in BrokerConfig.from_properties(given)[1])


def test_overrides_go_before_the_file() -> None:
    config, _ = BrokerConfig.from_properties({**KRAFT, "num.partitions": "9"}, {"num.partitions": " 3 "})
    assert config.num_partitions == 3


@pytest.mark.parametrize("name", ["node.id", "controller.listener.names"])
def test_a_file_with_roles_must_have_what_kafka_requires(name: str) -> None:
    incomplete = {key: value for key, value in KRAFT.items() if key != name}
    with pytest.raises(ConfigError, match=f'Missing required configuration "{name}" which has no default value.'):
        BrokerConfig.from_properties(incomplete)


def test_an_added_controller_listener_gets_its_protocol_beside_others() -> None:
    config, _ = BrokerConfig.from_properties({"listeners": "PLAINTEXT://localhost:9092,SSL://:9091"})
    assert [listener.name for listener in config.listeners] == ["PLAINTEXT", "SSL"]
    assert [listener.name for listener in config.controller_listeners] == ["CONTROLLER"]


def test_a_listen_address_replaces_client_listeners_and_keeps_the_controllers() -> None:
    override = replace_broker_listeners(KRAFT, "::1", 0)
    assert override == {"listeners": "PLAINTEXT://[::1]:0,CONTROLLER://localhost:9093"}
    assert replace_broker_listeners({}, "h", 1) == {"listeners": "PLAINTEXT://h:1"}
    assert replace_broker_listeners({"listeners": "FRONT://a:1"}, "h", 2) == {"listeners": "FRONT://h:2"}
