"""Ten thousand groups that have committed offsets: how long it takes to list and describe them, and to load them again.

Requests are sent ahead of their answers, so that the broker's work counts and not the way there and back.
"""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any

from barnabas.client.broker_connection import Connection, WireError
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from bench.loads.channel import GROUP, NOT_YET
from bench.loads.offset_commits import VERSION as COMMIT_VERSION
from bench.loads.offset_commits import commit_request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from barnabas.protocol.messages import Message

ANSWER_SECONDS_MAX = 120.0
PARTITIONS = 10
IN_FLIGHT = 50
DESCRIBED_AT_ONCE = 100
LIST_VERSION, DESCRIBE_VERSION, FIND_VERSION = 5, 6, 6
RETRY_SECONDS = 0.005
EMPTY = "Empty"


class GroupsError(RuntimeError):
    """The broker does not have the groups that it was given."""


def commit_all(host: str, port: int, topic: str, groups: list[str]) -> None:
    """One offset for every partition of the topic, by each of the groups."""
    with Connection(host, port, timeout_s=ANSWER_SECONDS_MAX) as connection:
        found = m.FindCoordinatorRequest(coordinator_keys=groups[:1], key_type=GROUP)
        _repeat(lambda: connection.send(found, FIND_VERSION).coordinators[0].error_code)
        left = groups
        while left:
            requests = (commit_request(group, topic, PARTITIONS) for group in left)
            answers = zip(left, _pipelined(connection, requests, COMMIT_VERSION), strict=True)
            # The partitions of the coordinator's topic come up one after the other.
            left = [group for group, answer in answers if _is_to_be_repeated(answer)]


def list_all(host: str, port: int, count: int) -> float:
    """How many seconds it takes to have the names of all groups."""
    with Connection(host, port, timeout_s=ANSWER_SECONDS_MAX) as connection:
        started = time.perf_counter()
        answer = connection.send(m.ListGroupsRequest(), LIST_VERSION)
        seconds = time.perf_counter() - started
    if answer.error_code != Error.NONE or len(answer.groups) != count:
        raise GroupsError(f"{len(answer.groups)} of {count} groups are listed, error code {answer.error_code}")
    return seconds


def describe_all(host: str, port: int, groups: list[str]) -> float:
    """How many seconds it takes to have the state of all groups."""
    requests = [m.DescribeGroupsRequest(groups=list(some)) for some in _in_batches(groups, DESCRIBED_AT_ONCE)]
    with Connection(host, port, timeout_s=ANSWER_SECONDS_MAX) as connection:
        started = time.perf_counter()
        answers = list(_pipelined(connection, requests, DESCRIBE_VERSION))
        seconds = time.perf_counter() - started
    states = [(each.error_code, each.group_state) for answer in answers for each in answer.groups]
    if states != [(Error.NONE, EMPTY)] * len(groups):
        raise GroupsError(f"{states.count((Error.NONE, EMPTY))} of {len(groups)} groups are described as empty")
    return seconds


def await_all(host: str, port: int, count: int) -> None:
    """Return when a broker that is starting has loaded every group."""
    deadline = time.monotonic() + ANSWER_SECONDS_MAX
    while True:
        try:
            list_all(host, port, count)
            return
        except (GroupsError, WireError):
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_SECONDS)


def _pipelined(connection: Connection, requests: Iterable[Message], version: int) -> Iterator[Any]:
    """The answers in the order of the requests, some of which are always under way."""
    for request in requests:
        connection.send_nowait(request, version)
        if connection.in_flight == IN_FLIGHT:
            yield connection.receive()
    while connection.in_flight:
        yield connection.receive()


def _is_to_be_repeated(answer: m.OffsetCommitResponse) -> bool:
    errors = {each.error_code for topic in answer.topics for each in topic.partitions}
    if errors <= {Error.NONE}:
        return False
    if errors <= NOT_YET:
        return True
    raise GroupsError(f"a commit was refused with error codes {errors}")


def _repeat(ask: Callable[[], int]) -> None:
    deadline = time.monotonic() + ANSWER_SECONDS_MAX
    while (error := ask()) != Error.NONE:
        if error not in NOT_YET or time.monotonic() > deadline:
            raise GroupsError(f"no coordinator: {Error(error).name}")
        time.sleep(RETRY_SECONDS)


def _in_batches(groups: list[str], size: int) -> Iterator[tuple[str, ...]]:
    names = iter(groups)
    while some := tuple(itertools.islice(names, size)):
        yield some
