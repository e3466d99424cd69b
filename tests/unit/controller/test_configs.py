"""Dynamic settings are altered, resource by resource."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.metadata.image import ConfigOperation, ConfigResource, ResourceType, edited_list
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.unit.controller.cluster import Cluster

if TYPE_CHECKING:
    from barnabas.protocol.compiler.structs import Message

SET, DELETE, APPEND, SUBTRACT = ConfigOperation
TOPIC, BROKER, GROUP = ResourceType.TOPIC, ResourceType.BROKER, ResourceType.GROUP
Incremental, Alter = m.IncrementalAlterConfigsRequest, m.AlterConfigsRequest


def with_topic() -> Cluster:
    cluster = Cluster()
    cluster.create_topic("t")
    return cluster


def incremental(
    kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> m.IncrementalAlterConfigsRequest:
    configs = [Incremental.AlterableConfig(name=key, config_operation=op, value=value) for key, op, value in changes]
    resource = Incremental.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return Incremental(resources=[resource], validate_only=validate_only)


def alter(kind: int, name: str, configs: dict[str, str | None]) -> m.AlterConfigsRequest:
    given = [Alter.AlterableConfig(name=key, value=value) for key, value in configs.items()]
    return Alter(resources=[Alter.AlterConfigsResource(resource_type=kind, resource_name=name, configs=given)])


def result(cluster: Cluster, request: Message) -> tuple[Error, str | None]:
    (response,) = cluster.send(request).responses
    return Error(response.error_code), response.error_message


def configs_of(cluster: Cluster, kind: int, name: str) -> dict[str, str]:
    return dict(cluster.state.metadata.configs.of(ConfigResource(kind, name)))


def test_settings_are_set_and_deleted_one_by_one() -> None:
    cluster = with_topic()
    assert result(cluster, incremental(TOPIC, "t", ("retention.ms", SET, "5"), ("segment.ms", SET, "6"))) == (
        Error.NONE,
        None,
    )
    assert configs_of(cluster, TOPIC, "t") == {"retention.ms": "5", "segment.ms": "6"}
    result(cluster, incremental(TOPIC, "t", ("retention.ms", DELETE, None)))
    assert cluster.last == [m.ConfigRecord(resource_type=TOPIC, resource_name="t", name="retention.ms", value=None)]
    assert configs_of(cluster, TOPIC, "t") == {"segment.ms": "6"}


def test_a_controller_that_is_asked_directly_takes_the_last_of_two_changes_and_deletes_what_is_set_to_nothing() -> None:
    cluster = with_topic()
    twice = incremental(TOPIC, "t", ("retention.ms", SET, "5"), ("retention.ms", SET, "6"), ("segment.ms", SET, "7"))
    assert result(cluster, twice) == (Error.NONE, None)
    assert configs_of(cluster, TOPIC, "t") == {"retention.ms": "6", "segment.ms": "7"}
    assert result(cluster, incremental(TOPIC, "t", ("retention.ms", SET, None))) == (Error.NONE, None)
    assert configs_of(cluster, TOPIC, "t") == {"segment.ms": "7"}
    assert result(cluster, alter(TOPIC, "t", {"retention.ms": "8", "segment.ms": None})) == (Error.NONE, None)
    assert configs_of(cluster, TOPIC, "t") == {"retention.ms": "8"}


def test_a_list_is_extended_from_its_default_and_shortened() -> None:
    cluster = with_topic()
    result(cluster, incremental(TOPIC, "t", ("cleanup.policy", APPEND, "compact")))
    assert configs_of(cluster, TOPIC, "t") == {"cleanup.policy": "delete,compact"}
    result(cluster, incremental(TOPIC, "t", ("cleanup.policy", APPEND, "compact")))
    assert cluster.last == []
    result(cluster, incremental(TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete")))
    assert configs_of(cluster, TOPIC, "t") == {"cleanup.policy": "compact"}


def test_what_a_topic_has_already_is_not_written_again_but_a_brokers_is() -> None:
    cluster = with_topic()
    for kind, name, key in ((TOPIC, "t", "retention.ms"), (BROKER, "1", "log.cleaner.threads")):
        result(cluster, incremental(kind, name, (key, SET, "2")))
        result(cluster, incremental(kind, name, (key, SET, "2")))
        assert len(cluster.last) == (kind == BROKER)


def test_validating_only_writes_nothing() -> None:
    cluster = with_topic()
    request = incremental(TOPIC, "t", ("retention.ms", SET, "5"), validate_only=True)
    assert result(cluster, request) == (Error.NONE, None)
    assert cluster.last == []


def test_the_older_request_replaces_everything_that_a_resource_had() -> None:
    cluster = with_topic()
    result(cluster, alter(TOPIC, "t", {"retention.ms": "5", "segment.ms": "6"}))
    result(cluster, alter(TOPIC, "t", {"segment.ms": "7"}))
    assert configs_of(cluster, TOPIC, "t") == {"segment.ms": "7"}


@pytest.mark.parametrize(
    ("request_", "error", "message"),
    [
        (
            incremental(TOPIC, "nope", ("retention.ms", SET, "5")),
            Error.UNKNOWN_TOPIC_OR_PARTITION,
            "The topic 'nope' does not exist.",
        ),
        (
            incremental(TOPIC, "t", ("segment.ms", APPEND, "5")),
            Error.INVALID_CONFIG,
            "Can't APPEND to key segment.ms because its type is not LIST.",
        ),
        (
            incremental(TOPIC, "t", ("unheard.of", SUBTRACT, "5")),
            Error.INVALID_CONFIG,
            "Can't SUBTRACT to key unheard.of because its type is not LIST.",
        ),
        (
            incremental(TOPIC, "t", ("retention.ms", SET, "-5")),
            Error.INVALID_CONFIG,
            "Invalid value -5 for configuration retention.ms: Value must be at least -1",
        ),
        (
            incremental(TOPIC, "t", ("cleanup.policy", APPEND, None)),
            Error.INVALID_REQUEST,
            "Null value not supported for : cleanup.policy",
        ),
        (incremental(TOPIC, "t", ("retention.ms", 9, "1")), Error.INVALID_REQUEST, "Unknown operations type 9"),
        (incremental(TOPIC, "", ("a", SET, "1")), Error.INVALID_REQUEST, "Default topic resources are not allowed."),
        (incremental(GROUP, "", ("a", SET, "1")), Error.INVALID_REQUEST, "Default group resources are not allowed."),
        (incremental(77, "t", ("a", SET, "1")), Error.INVALID_REQUEST, "Unknown resource type 77"),
        (
            incremental(TOPIC, "bad name", ("a", SET, "1")),
            Error.INVALID_TOPIC_EXCEPTION,
            (
                "Topic name is invalid: 'bad name' contains one or more characters other than ASCII alphanumerics, "
                "'.', '_' and '-'"
            ),
        ),
        (
            incremental(TOPIC, "bad name", ("segment.ms", APPEND, "1")),
            Error.INVALID_CONFIG,
            "Can't APPEND to key segment.ms because its type is not LIST.",
        ),
        (
            incremental(BROKER, "x", ("a", SET, "1")),
            Error.INVALID_REQUEST,
            "Node id must be an integer, but it is: x",
        ),
        (
            incremental(BROKER, "7", ("log.cleaner.threads", SET, "1")),
            Error.BROKER_ID_NOT_REGISTERED,
            "No node with id 7 found.",
        ),
        (
            incremental(BROKER, "1", ("num.partitions", SET, "5")),
            Error.INVALID_REQUEST,
            "Cannot update these configs dynamically: [num.partitions]",
        ),
        (
            incremental(BROKER, "1", ("log.cleaner.threads", SET, "-5")),
            Error.INVALID_REQUEST,
            "Invalid value -5 for configuration log.cleaner.threads: Value must be at least 0",
        ),
        (
            incremental(BROKER, "1", ("min.insync.replicas", SET, "2")),
            Error.INVALID_CONFIG,
            "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
        ),
        (
            incremental(BROKER, "", ("min.insync.replicas", DELETE, None)),
            Error.INVALID_CONFIG,
            "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
        ),
        (
            incremental(GROUP, "g", ("consumer.session.timeout.ms", SET, "1")),
            Error.INVALID_CONFIG,
            "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            incremental(TOPIC, "t", ("leader.replication.throttled.replicas", SET, "1:1," * 9000)),
            Error.INVALID_CONFIG,
            "The configuration value cannot be added because it exceeds the maximum value size of 32767 bytes.",
        ),
    ],
)
def test_what_cannot_be_set_is_refused_in_kafkas_words(request_: Message, error: Error, message: str) -> None:
    cluster = with_topic()
    assert result(cluster, request_) == (error, message)
    assert cluster.last == []


def test_all_changes_of_a_resource_are_made_or_none_and_resources_stand_for_themselves() -> None:
    cluster = with_topic()
    cluster.create_topic("u")
    good, bad = (
        incremental(TOPIC, "u", ("retention.ms", SET, "5")),
        incremental(TOPIC, "t", ("retention.ms", SET, "5"), ("segment.ms", SET, "x")),
    )
    response = cluster.send(Incremental(resources=[*bad.resources, *good.resources]))
    assert [r.error_code for r in response.responses] == [Error.INVALID_CONFIG, Error.NONE]
    assert configs_of(cluster, TOPIC, "t") == {}
    assert configs_of(cluster, TOPIC, "u") == {"retention.ms": "5"}


def test_a_resource_named_twice_is_refused_both_times() -> None:
    cluster = with_topic()
    resource = incremental(TOPIC, "t", ("retention.ms", SET, "5")).resources[0]
    response = cluster.send(Incremental(resources=[resource, resource]))
    assert {r.error_message for r in response.responses} == {"Each resource must appear at most once."}
    assert cluster.last == []


@pytest.mark.parametrize(
    ("kind", "name", "key", "value"),
    [
        (BROKER, "", "message.max.bytes", "2000000"),
        (BROKER, "1", "log.cleaner.threads", "2"),
        (GROUP, "g", "consumer.session.timeout.ms", "46000"),
    ],
)
def test_the_cluster_brokers_and_groups_have_settings_too(kind: int, name: str, key: str, value: str) -> None:
    cluster = Cluster()
    assert result(cluster, incremental(kind, name, (key, SET, value))) == (Error.NONE, None)
    assert configs_of(cluster, kind, name)[key] == value


def test_another_min_isr_forgets_the_eligible_replicas_that_the_old_one_made() -> None:
    cluster = with_topic()
    result(cluster, incremental(TOPIC, "t", ("min.insync.replicas", SET, "2")))
    assert cluster.last[1:] == [m.ClearElrRecord(topic_name="t")]
    result(cluster, incremental(BROKER, "", ("min.insync.replicas", SET, "2")))
    assert cluster.last[1:] == [m.ClearElrRecord(topic_name="")]


def test_a_cluster_wide_setting_changes_what_new_topics_report() -> None:
    cluster = Cluster()
    result(cluster, incremental(BROKER, "", ("log.retention.ms", SET, "777")))
    request = m.CreateTopicsRequest
    topic: Any = request.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    (created,) = cluster.send(request(topics=[topic])).topics
    assert {config.name: config.value for config in created.configs}["retention.ms"] == "777"


@pytest.mark.parametrize(
    ("text", "operation", "operand", "edited"),
    [
        ("a,b", APPEND, "b,c", "a,b,c"),
        ("", APPEND, "a", "a"),
        ("a,,b", APPEND, "c", "a,b,c"),
        ("a, b", APPEND, "b", "a, b,b"),
        ("a,b,a", SUBTRACT, "a,c", "b,a"),
        ("a, b", SUBTRACT, "b", "a, b"),
    ],
)
def test_lists_are_edited_entry_by_entry_as_they_are_written(
    text: str, operation: ConfigOperation, operand: str, edited: str
) -> None:
    assert edited_list(text, operation, operand) == edited
