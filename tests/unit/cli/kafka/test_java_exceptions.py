from __future__ import annotations

import pytest

from barnabas.cli.kafka.java.java_exceptions import exception_name
from barnabas.protocol.errors import Error

PACKAGE = "org.apache.kafka.common.errors."


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (Error.UNKNOWN_TOPIC_OR_PARTITION, f"{PACKAGE}UnknownTopicOrPartitionException"),
        (Error.INVALID_TOPIC_EXCEPTION, f"{PACKAGE}InvalidTopicException"),
        (Error.REQUEST_TIMED_OUT, f"{PACKAGE}TimeoutException"),
        (Error.NON_EMPTY_GROUP, f"{PACKAGE}GroupNotEmptyException"),
        (Error.INVALID_RECORD, "org.apache.kafka.common.InvalidRecordException"),
    ],
)
def test_exceptions_have_kafkas_names(error: Error, name: str) -> None:
    assert exception_name(error) == name
