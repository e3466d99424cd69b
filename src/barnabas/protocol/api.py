"""Kafka's APIs: their keys, versions and listeners, and which header goes with which version."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

from barnabas.protocol.compiler.schema import NO_VERSIONS, definitions, parse_versions


class ApiKey(IntEnum):
    """The number of each API. Kafka has removed four of them; their requests have no versions."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


class Api(NamedTuple):
    """One API as Kafka offers it, without versions that Kafka marks as unstable."""

    key: ApiKey
    request: str
    """The name of the request's class in `barnabas.protocol.messages`."""
    response: str
    min_version: int
    max_version: int
    flexible_from: int | None
    listeners: frozenset[str]
    """Where it is served: "broker", "controller", or both."""


def _api(definition: dict[str, Any]) -> Api:
    versions = parse_versions(definition["validVersions"])
    flexible = parse_versions(definition["flexibleVersions"])
    return Api(
        key=ApiKey(definition["apiKey"]),
        request=definition["name"],
        response=definition["name"].removesuffix("Request") + "Response",
        min_version=versions.low,
        max_version=versions.high - definition.get("latestVersionUnstable", False),
        flexible_from=None if flexible == NO_VERSIONS else flexible.low,
        listeners=frozenset(definition["listeners"]),
    )


APIS: dict[int, Api] = {
    api.key: api
    for api in sorted(
        _api(definition)
        for definition in definitions().values()
        if definition["type"] == "request" and definition["validVersions"] != "none"
    )
}
"""All APIs that have versions, by key."""

_FLEXIBLE_FROM: dict[int, int] = {key: api.flexible_from for key, api in APIS.items() if api.flexible_from is not None}
_NEVER = 1 << 16


def request_header_version(api_key: int, version: int) -> int:
    """2 (tagged fields) for a flexible version of a request, else 1."""
    return 2 if version >= _FLEXIBLE_FROM.get(api_key, _NEVER) else 1


def response_header_version(api_key: int, version: int) -> int:
    """1 (tagged fields) for a flexible version of a response, else 0.

    An ApiVersions response always has header version 0, because a client that does not know our versions yet must be
    able to read it.
    """
    return int(api_key != ApiKey.API_VERSIONS and version >= _FLEXIBLE_FROM.get(api_key, _NEVER))
