"""Back-off and deadline, and what each failure becomes."""

from __future__ import annotations

import pickle

import pytest

from barnabas.client import retries
from barnabas.client.client_settings import Address, ClientSettings
from barnabas.client.retries import Attempts, RetriableError, backoff_s, failure_of, retrying
from barnabas.net import frames
from barnabas.protocol.errors import Error, KafkaError

SETTINGS = ClientSettings((Address("broker", 9092),), retry_backoff_ms=100, retry_backoff_max_ms=1_000)
QUICK = ClientSettings((Address("broker", 9092),), retry_backoff_ms=1, retry_backoff_max_ms=2)


@pytest.mark.parametrize(("failures", "expected_s"), [(1, 0.1), (2, 0.2), (3, 0.4), (4, 0.8), (5, 1.0), (1_000, 1.0)])
def test_waits_double_up_to_a_limit_give_or_take_a_fifth(failures: int, expected_s: float) -> None:
    waits = [backoff_s(SETTINGS, failures) for _ in range(200)]
    assert all(0.8 * expected_s <= each <= 1.2 * expected_s for each in waits)
    assert len(set(waits)) > 100


def test_what_fails_for_a_while_works_in_the_end() -> None:
    tries: list[Attempts] = []

    def attempt(attempts: Attempts) -> str:
        tries.append(attempts)
        if len(tries) == 1:
            raise RetriableError(Error.NOT_COORDINATOR)
        if len(tries) == 2:
            raise frames.ConnectError("nobody there")
        return "done"

    assert retrying(QUICK, attempt) == "done"
    assert len(tries) == 3


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (frames.AuthenticationError("no"), Error.SASL_AUTHENTICATION_FAILED),
        (frames.UnsupportedVersionError("no"), Error.UNSUPPORTED_VERSION),
        (frames.MalformedAnswerError("no"), Error.UNKNOWN_SERVER_ERROR),
        (KafkaError(Error.INVALID_GROUP_ID), Error.INVALID_GROUP_ID),
    ],
)
def test_what_will_not_pass_is_not_tried_again(failure: Exception, error: Error) -> None:
    tries = []

    def attempt(attempts: Attempts) -> None:
        tries.append(attempts)
        raise failure

    with pytest.raises(KafkaError) as caught:
        retrying(QUICK, attempt)
    assert caught.value.error is error
    assert len(tries) == 1


def test_one_deadline_is_over_all_tries() -> None:
    def attempt(attempts: Attempts) -> None:
        raise frames.ConnectionLostError(f"lost with {attempts.remaining_s} s left")

    with pytest.raises(KafkaError, match="given up after") as caught:
        retrying(QUICK, attempt, timeout_ms=50)
    assert caught.value.error is Error.NETWORK_EXCEPTION
    assert not isinstance(caught.value, RetriableError)


def test_a_try_that_the_deadline_cut_short_does_not_hide_what_was_wrong() -> None:
    def attempt(attempts: Attempts) -> None:
        if attempts.failures == 0:
            raise RetriableError(Error.UNSTABLE_OFFSET_COMMIT, "a transaction is open")
        while attempts.remaining_s:
            pass
        raise frames.AnswerTimeoutError("no answer in time")

    with pytest.raises(KafkaError, match="a transaction is open") as caught:
        retrying(QUICK, attempt, timeout_ms=50)
    assert caught.value.error is Error.UNSTABLE_OFFSET_COMMIT


def test_a_request_waits_no_longer_than_the_call_has_left() -> None:
    assert Attempts(SETTINGS).request_timeout_s == pytest.approx(30, abs=0.1)
    assert Attempts(SETTINGS, timeout_ms=1_000).request_timeout_s == pytest.approx(1, abs=0.1)
    assert 0 < Attempts(SETTINGS, timeout_ms=0).request_timeout_s < 0.01
    assert 0 < Attempts(SETTINGS, timeout_ms=0).connect_timeout_s < 0.01


def test_errors_say_what_to_do_where_something_can_be_done() -> None:
    assert str(failure_of(Error.NON_EMPTY_GROUP, "group 'g'")) == (
        "NON_EMPTY_GROUP: group 'g': the group has members: stop them first"
    )
    assert str(failure_of(Error.INVALID_GROUP_ID, "group ''")) == "INVALID_GROUP_ID: group ''"


def test_every_error_that_is_retried_is_one_that_kafka_calls_retriable() -> None:
    assert all(error.retriable for error in retries.RETRIED)


def test_errors_travel_from_a_task_to_its_driver() -> None:
    error = pickle.loads(pickle.dumps(failure_of(Error.LEADER_NOT_AVAILABLE, "t-0")))
    assert error.error is Error.LEADER_NOT_AVAILABLE
    assert "t-0" in str(error)
