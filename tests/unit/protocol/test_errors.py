from __future__ import annotations

import kio.schema.errors
import pytest

from barnabas.protocol.errors import Error, KafkaError


def test_codes_names_and_retriability_are_kafkas() -> None:
    theirs = {error.value: (error.name.upper(), error.retriable) for error in kio.schema.errors.ErrorCode}
    assert {error.value: (error.name, error.retriable) for error in Error} == theirs


def test_an_error_says_its_name_and_message() -> None:
    error = KafkaError(Error.INVALID_TOPIC_EXCEPTION, "topic 'a/b' has a slash")
    assert str(error) == "INVALID_TOPIC_EXCEPTION: topic 'a/b' has a slash"
    assert str(KafkaError(Error.NONE)) == "NONE"
    assert error.error is Error.INVALID_TOPIC_EXCEPTION
    assert error.message == "topic 'a/b' has a slash"


def test_a_code_that_only_newer_nodes_know_is_an_unknown_error() -> None:
    assert Error(29_999) is Error.UNKNOWN_SERVER_ERROR
    with pytest.raises(ValueError, match="no code"):
        Error("no code")  # type: ignore[arg-type]
