"""Trying again: which failures are worth it, how long to wait between tries, and when to stop.

A call has one deadline, whatever it takes within: connections, metadata, several requests. Between tries it waits, at
first for `retry.backoff.ms`, then twice as long each time up to `retry.backoff.max.ms`, each time shortened or
lengthened by chance so that the clients of a broker that came back do not all knock at once.
"""

from __future__ import annotations

import logging
import random
import time
from typing import TYPE_CHECKING, Final, TypeVar

from barnabas.net.frames import TRANSIENT, AuthenticationError, UnsupportedVersionError, WireError
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.client.client_settings import ClientSettings

T = TypeVar("T")

_log = logging.getLogger(__name__)

BACKOFF_GROWTH: Final = 2.0
BACKOFF_JITTER: Final = 0.2

ABSENCE_S: Final = 1.0
"""How long a topic must be missing to be believed: brokers may hear of a new topic a moment after its creator."""

PATIENCE_S: Final = 3.0
"""After so long a person would like to know what a call waits for."""

_TIMEOUT_MIN_S: Final = 0.001
"""A socket takes a timeout of 0 for "do not block"."""

LEADERSHIP_ERRORS: Final = frozenset(
    {
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.FENCED_LEADER_EPOCH,
        Error.UNKNOWN_LEADER_EPOCH,
        Error.LEADER_NOT_AVAILABLE,
        Error.REPLICA_NOT_AVAILABLE,
        Error.LISTENER_NOT_FOUND,
        Error.UNKNOWN_TOPIC_ID,
        Error.INCONSISTENT_TOPIC_ID,
        Error.KAFKA_STORAGE_ERROR,
    }
)
"""What says that the metadata in hand may be old."""

COORDINATOR_ERRORS: Final = frozenset({Error.NOT_COORDINATOR, Error.COORDINATOR_NOT_AVAILABLE})
"""What says that somebody else may coordinate now."""

TRANSIENT_ERRORS: Final = frozenset(
    {
        Error.COORDINATOR_LOAD_IN_PROGRESS,
        Error.UNSTABLE_OFFSET_COMMIT,
        Error.OFFSET_NOT_AVAILABLE,
        Error.REQUEST_TIMED_OUT,
        Error.NETWORK_EXCEPTION,
        Error.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""What passes by itself: the same broker is asked again."""

RETRIED: Final = LEADERSHIP_ERRORS | COORDINATOR_ERRORS | TRANSIENT_ERRORS

REMEDIES: Final = {
    Error.UNKNOWN_TOPIC_OR_PARTITION: "create it, or correct the name",
    Error.LEADER_NOT_AVAILABLE: "no broker leads the partition: start those that hold its replicas",
    Error.NOT_LEADER_OR_FOLLOWER: "the cluster has not settled who leads the partition",
    Error.REPLICA_NOT_AVAILABLE: "start the brokers that hold its replicas",
    Error.COORDINATOR_NOT_AVAILABLE: "the cluster has no coordinator to offer: are enough brokers running?",
    Error.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is still reading its log: try again later",
    Error.UNSTABLE_OFFSET_COMMIT: "a transaction that commits offsets for the group is open: end it or let it time out",
    Error.TOPIC_AUTHORIZATION_FAILED: "give this user the right to the topic",
    Error.GROUP_AUTHORIZATION_FAILED: "give this user the right to the group",
    Error.CLUSTER_AUTHORIZATION_FAILED: "give this user the right to the cluster",
    Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "give this user the right to the transactional id",
    Error.UNKNOWN_MEMBER_ID: "the group has members, and only they may commit: stop them, or use another group",
    Error.NON_EMPTY_GROUP: "the group has members: stop them first",
    Error.GROUP_SUBSCRIBED_TO_TOPIC: "members of the group read the topic: stop them first",
    Error.SASL_AUTHENTICATION_FAILED: "check the security options",
    Error.NETWORK_EXCEPTION: (
        "is the broker running, does its advertised listener lead there, and does security.protocol fit it?"
    ),
    Error.UNSUPPORTED_VERSION: "the broker is too old or too new for this client",
}


class RetriableError(KafkaError):
    """A failure that another try may not meet."""


class Attempts:
    """The tries of one call under one deadline."""

    def __init__(self, settings: ClientSettings, timeout_ms: int | None = None) -> None:
        timeout_ms = settings.default_api_timeout_ms if timeout_ms is None else timeout_ms
        self._settings = settings
        self._started = time.monotonic()
        self._deadline = self._started + timeout_ms / 1000
        self.failures = 0
        self._absent_since: float | None = None
        self._last: KafkaError | None = None
        self._has_told = False

    @property
    def remaining_s(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    @property
    def request_timeout_s(self) -> float:
        """How long the next request may wait for its answer."""
        return max(min(self._settings.request_timeout_ms / 1000, self.remaining_s), _TIMEOUT_MIN_S)

    @property
    def connect_timeout_s(self) -> float:
        return max(min(self._settings.connection_setup_timeout_ms / 1000, self.remaining_s), _TIMEOUT_MIN_S)

    def is_absent_for_good(self) -> bool:
        """Whether what a broker now says not to exist has not existed for long enough to be believed."""
        now = time.monotonic()
        if self._absent_since is None:
            self._absent_since = now
        return now - self._absent_since >= ABSENCE_S

    def pause(self, failure: KafkaError) -> None:
        """Wait before the next try; where no time is left for one, raise what the last one met."""
        self.failures += 1
        if self.remaining_s == 0 and self._last is not None:
            failure = self._last  # this try was cut short by the deadline: what the one before it met says more
        self._last = failure
        wait_s = backoff_s(self._settings, self.failures)
        if wait_s >= self.remaining_s:
            elapsed_s = time.monotonic() - self._started
            raise KafkaError(
                failure.error, f"{failure.message} (given up after {self.failures} tries in {elapsed_s:.1f} s)"
            ) from failure
        if not self._has_told and time.monotonic() - self._started > PATIENCE_S:
            self._has_told = True
            _log.warning("%s; trying for %.0f s more (default.api.timeout.ms)", failure.message, self.remaining_s)
        time.sleep(wait_s)


def backoff_s(settings: ClientSettings, failures: int) -> float:
    """How long to wait after so many failures in a row."""
    grown_ms = settings.retry_backoff_ms * pow(BACKOFF_GROWTH, min(failures - 1, 30))
    wait_ms: float = min(grown_ms, max(settings.retry_backoff_max_ms, settings.retry_backoff_ms))
    return wait_ms / 1000 * random.uniform(1 - BACKOFF_JITTER, 1 + BACKOFF_JITTER)


def retrying(settings: ClientSettings, attempt: Callable[[Attempts], T], timeout_ms: int | None = None) -> T:
    """Try until it works, fails for good, or the deadline passes. Every failure comes out as a `KafkaError`."""
    attempts = Attempts(settings, timeout_ms)
    while True:
        try:
            return attempt(attempts)
        except RetriableError as failure:
            attempts.pause(failure)
        except WireError as failure:
            error = as_kafka_error(failure)
            if not isinstance(failure, TRANSIENT):
                raise error from failure
            attempts.pause(error)


def as_kafka_error(failure: WireError) -> KafkaError:
    """What happened on a connection, in Kafka's terms."""
    if isinstance(failure, TRANSIENT):
        return failure_of(Error.NETWORK_EXCEPTION, str(failure))
    if isinstance(failure, AuthenticationError):
        return failure_of(Error.SASL_AUTHENTICATION_FAILED, str(failure))
    if isinstance(failure, UnsupportedVersionError):
        return failure_of(Error.UNSUPPORTED_VERSION, str(failure))
    return KafkaError(Error.UNKNOWN_SERVER_ERROR, str(failure))


def failure_of(error: Error, subject: str, retried: frozenset[Error] = frozenset()) -> KafkaError:
    """The exception for an error that a broker answered with: retriable or not, and with what to do about it."""
    remedy = REMEDIES.get(error)
    kind = RetriableError if error in RETRIED or error in retried else KafkaError
    return kind(error, f"{subject}: {remedy}" if remedy else subject)
