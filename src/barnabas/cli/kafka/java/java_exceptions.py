"""The names of Kafka's exceptions: some of its tools print those before what the exceptions say."""

from __future__ import annotations

from typing import Final

from barnabas.protocol.errors import Error

_PACKAGE: Final = "org.apache.kafka.common.errors"
_IRREGULAR: Final = {
    Error.UNKNOWN_SERVER_ERROR: "UnknownServerException",
    Error.CORRUPT_MESSAGE: "CorruptRecordException",
    Error.REQUEST_TIMED_OUT: "TimeoutException",
    Error.MESSAGE_TOO_LARGE: "RecordTooLargeException",
    Error.STALE_CONTROLLER_EPOCH: "ControllerMovedException",
    Error.OFFSET_METADATA_TOO_LARGE: "OffsetMetadataTooLarge",
    Error.RECORD_LIST_TOO_LARGE: "RecordBatchTooLargeException",
    Error.TOPIC_AUTHORIZATION_FAILED: "TopicAuthorizationException",
    Error.GROUP_AUTHORIZATION_FAILED: "GroupAuthorizationException",
    Error.CLUSTER_AUTHORIZATION_FAILED: "ClusterAuthorizationException",
    Error.TOPIC_ALREADY_EXISTS: "TopicExistsException",
    Error.INVALID_CONFIG: "InvalidConfigurationException",
    Error.OUT_OF_ORDER_SEQUENCE_NUMBER: "OutOfOrderSequenceException",
    Error.DUPLICATE_SEQUENCE_NUMBER: "DuplicateSequenceException",
    Error.INVALID_PRODUCER_ID_MAPPING: "InvalidPidMappingException",
    Error.INVALID_TRANSACTION_TIMEOUT: "InvalidTxnTimeoutException",
    Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "TransactionalIdAuthorizationException",
    Error.KAFKA_STORAGE_ERROR: "KafkaStorageException",
    Error.SASL_AUTHENTICATION_FAILED: "SaslAuthenticationException",
    Error.DELEGATION_TOKEN_AUTH_DISABLED: "DelegationTokenDisabledException",
    Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "UnsupportedByAuthenticationException",
    Error.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "DelegationTokenAuthorizationException",
    Error.NON_EMPTY_GROUP: "GroupNotEmptyException",
    Error.PRINCIPAL_DESERIALIZATION_FAILURE: "PrincipalDeserializationException",
    Error.FETCH_SESSION_TOPIC_ID_ERROR: "FetchSessionTopicIdException",
    Error.INVALID_REGULAR_EXPRESSION: "InvalidRegularExpression",
}
"""Those that are not called as their errors are."""


def exception_name(error: Error) -> str:
    """The full name of the exception that Kafka's clients raise for an error."""
    if error is Error.INVALID_RECORD:
        return "org.apache.kafka.common.InvalidRecordException"
    return f"{_PACKAGE}.{_IRREGULAR.get(error) or _regular(error)}"


def _regular(error: Error) -> str:
    words = "".join(word.capitalize() for word in error.name.split("_"))
    return words if words.endswith("Exception") else f"{words}Exception"
