"""The classes of messages: lazily built, plain, typed by a generated stub."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tools import extract_schemas, make_messages

from barnabas.protocol import messages as m
from barnabas.protocol.compiler.schema import definitions, message_schema, parse_versions, snake_case
from tests.unit.protocol.values import ALL_VERSIONS, filled_message

if TYPE_CHECKING:
    from pathlib import Path

IMPORT_MS_MAX = 60

MEASURE_IMPORT = """
import time
before = time.process_time()
import barnabas.protocol
from barnabas.protocol import api, codec, headers, messages, metadata_records
print(1000 * (time.process_time() - before))
"""

COUNT_CLASSES = """
from barnabas.protocol import api, codec, headers, messages, metadata_records
from barnabas.protocol.compiler import structs
print(len(structs.Message.__subclasses__()))
messages.MetadataRequest
print(len(structs.Message.__subclasses__()))
"""


def run_python(source: str, bytecode_cache: Path) -> str:
    """What a new interpreter prints. It compiles modules once, as an installed package has them compiled."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(bytecode_cache)
    command = [sys.executable, "-c", source]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_importing_the_protocol_is_quick(tmp_path: Path) -> None:
    assert min(float(run_python(MEASURE_IMPORT, tmp_path)) for _ in range(6)) <= IMPORT_MS_MAX


def test_a_class_is_built_when_it_is_first_asked_for(tmp_path: Path) -> None:
    assert run_python(COUNT_CLASSES, tmp_path).split() == ["0", "1"]


def test_the_stub_is_what_its_generator_writes() -> None:
    assert make_messages.OUTPUT.read_text() == make_messages.stub()


def test_the_data_file_is_in_the_form_that_its_extractor_writes() -> None:
    assert extract_schemas.OUTPUT.read_text() == extract_schemas.to_text(definitions())


def test_every_message_can_be_listed_and_built() -> None:
    for name in dir(m):
        if name in definitions():
            cls = getattr(m, name)
            assert cls.__name__ == name
            assert cls.versions == tuple(message_schema(name).versions)
            assert cls() == cls()


def test_a_name_that_is_no_message_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="MetadataReqest"):
        _ = m.MetadataReqest  # type: ignore[attr-defined]


def test_class_attributes_say_what_the_schema_says() -> None:
    assert m.MetadataRequest.api_key == 3
    assert m.MetadataRequest.versions == (0, 13)
    assert m.MetadataRequest.flexible_from == 9
    assert m.SaslHandshakeRequest.flexible_from is None
    assert m.LeaderChangeMessage.api_key is None
    assert m.StopReplicaRequest.versions == (0, -1)


def test_defaults_are_kafkas() -> None:
    assert m.MetadataResponse.MetadataResponsePartition().leader_epoch == -1
    assert m.FetchRequest().max_bytes == 0x7FFFFFFF
    assert m.MetadataRequest().allow_auto_topic_creation is True
    assert m.FetchRequest().cluster_id is None
    assert m.PartitionChangeRecord().isr is None
    assert m.ProduceRequest.PartitionProduceData().records is None


def test_a_default_list_or_struct_belongs_to_one_object() -> None:
    one, other = m.MetadataResponse(), m.MetadataResponse()
    one.topics.append(m.MetadataResponse.MetadataResponseTopic())
    assert other.topics == []
    entry = m.RemoteLogSegmentMetadataRecord().remote_log_segment_id
    assert entry is not m.RemoteLogSegmentMetadataRecord().remote_log_segment_id


def test_fields_are_given_by_name_only() -> None:
    with pytest.raises(TypeError):
        m.HeartbeatRequest("group")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        m.HeartbeatRequest(grup_id="group")  # type: ignore[call-arg]


def test_objects_have_no_room_for_other_attributes() -> None:
    with pytest.raises(AttributeError):
        m.HeartbeatRequest().grup_id = "group"  # type: ignore[attr-defined]


def test_objects_are_equal_by_class_and_fields() -> None:
    assert m.HeartbeatRequest(group_id="a") == m.HeartbeatRequest(group_id="a")
    assert m.HeartbeatRequest(group_id="a") != m.HeartbeatRequest(group_id="b")
    assert m.HeartbeatRequest() != m.LeaveGroupRequest()
    assert m.PartitionRecord(replicas=(1, 2)) == m.PartitionRecord(replicas=[1, 2])
    assert m.PartitionRecord(replicas=[1]) != m.PartitionRecord(replicas=(1, 2))


def test_the_representation_names_class_and_fields() -> None:
    broker = m.MetadataResponse.MetadataResponseBroker(node_id=1, host="h", port=2)
    assert repr(broker) == "MetadataResponse.MetadataResponseBroker(node_id=1, host='h', port=2, rack=None)"


def test_messages_can_be_copied_and_pickled() -> None:
    for name, version in ALL_VERSIONS[::20]:
        message = filled_message(name, version)
        assert copy.deepcopy(message) == message
        assert pickle.loads(pickle.dumps(message)) == message


@pytest.mark.parametrize(
    ("kafkas", "ours"),
    [
        ("TopicId", "topic_id"),
        ("IsKRaftController", "is_kraft_controller"),
        ("KRaftVersion", "kraft_version"),
        ("Enable2Pc", "enable_2pc"),
        ("V3AndBelowTopics", "v3_and_below_topics"),
        ("validateOnly", "validate_only"),
        ("ISRNodes", "isr_nodes"),
    ],
)
def test_names_become_snake_case(kafkas: str, ours: str) -> None:
    assert snake_case(kafkas) == ours


def test_ranges_of_versions_are_read_in_kafkas_notation() -> None:
    assert parse_versions("none").covers(0) is False
    assert [parse_versions("3").covers(version) for version in (2, 3, 4)] == [False, True, False]
    assert [parse_versions("1-2").covers(version) for version in (0, 1, 2, 3)] == [False, True, True, False]
    assert parse_versions("2+").covers(30000)


def test_definitions_lose_comments_and_documentation_and_keep_what_a_codec_needs() -> None:
    text = """
    // Licence
    { "name": "XRequest", "type": "request", "apiKey": 1, "validVersions": "0-1", "flexibleVersions": "1+",
      "fields": [ // a comment with "quotes"
        { "name": "A", "type": "int32", "versions": "0+", "default": "0x10", "about": "see http://x" },
        { "name": "B", "type": "string", "nullableVersions": "0+", "versions": "0+", "default": "null" },
        { "name": "C", "type": "[]int8", "taggedVersions": "1+", "tag": 0, "default": null, "ignorable": false },
        { "name": "D", "type": "bool", "versions": "0+", "default": "true", "ignorable": true } ] }
    """
    definition = json.loads(extract_schemas.without_comments(text))
    assert extract_schemas.compact_message(definition) == {
        "name": "XRequest",
        "type": "request",
        "apiKey": 1,
        "validVersions": "0-1",
        "flexibleVersions": "1+",
        "fields": [
            {"name": "A", "type": "int32", "versions": "0+", "default": 16},
            {"name": "B", "type": "string", "versions": "0+", "nullableVersions": "0+", "default": None},
            {"name": "C", "type": "[]int8", "versions": "1+", "taggedVersions": "1+", "tag": 0},
            {"name": "D", "type": "bool", "versions": "0+", "default": True, "ignorable": True},
        ],
    }
