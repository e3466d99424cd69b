"""Clusters that outlive the block in which they are used."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from barnabas.client import pool
from barnabas.client.pool import borrowed
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from tests.unit.client.brokers import FakeBroker, broker, knows, settings_for

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def one() -> Iterator[FakeBroker]:
    with broker({}) as only:
        only.answers[ApiKey.METADATA] = knows({1: only}, {"t": {0: 1}})
        yield only
        pool.close_idle()


def connections(node: FakeBroker) -> int:
    """How many were made: each begins with this question."""
    return node.count(m.ApiVersionsRequest)


def test_the_next_block_with_the_same_settings_is_connected_already(one: FakeBroker) -> None:
    for _ in range(3):
        with borrowed(settings_for(one)) as cluster:
            cluster.leader("t", 0)
    assert connections(one) == 1


def test_other_settings_have_another_connection(one: FakeBroker) -> None:
    with borrowed(settings_for(one, client_id="a")) as a:
        pass
    with borrowed(settings_for(one, client_id="b")) as b:
        assert b is not a
    assert connections(one) == 2


def test_whoever_borrows_has_it_alone(one: FakeBroker) -> None:
    with borrowed(settings_for(one)) as outer, borrowed(settings_for(one)) as inner:
        assert inner is not outer


def test_after_a_failure_nobody_gets_what_may_be_half_read(one: FakeBroker) -> None:
    with pytest.raises(RuntimeError), borrowed(settings_for(one)):
        raise RuntimeError
    with borrowed(settings_for(one)):
        pass
    assert connections(one) == 2


def test_a_connection_with_an_answer_on_its_way_is_not_passed_on(one: FakeBroker) -> None:
    with borrowed(settings_for(one)) as cluster:
        cluster.any().send_nowait(m.MetadataRequest(topics=[]))
    with borrowed(settings_for(one)) as cluster:
        assert cluster.any().in_flight == 0
    assert connections(one) == 2


def test_no_more_than_a_few_are_kept(one: FakeBroker) -> None:
    for number in range(pool.IDLE_MAX + 1):
        with borrowed(settings_for(one, client_id=str(number))):
            pass
    assert connections(one) == pool.IDLE_MAX + 1
    with borrowed(settings_for(one, client_id=str(pool.IDLE_MAX))):
        pass
    assert connections(one) == pool.IDLE_MAX + 1
    with borrowed(settings_for(one, client_id="0")):
        pass
    assert connections(one) == pool.IDLE_MAX + 2


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")  # the broker of this test has threads
def test_a_child_process_has_none_of_its_parents_connections(one: FakeBroker) -> None:
    with borrowed(settings_for(one)) as cluster:
        connection = cluster.any()
    child = os.fork()
    if child == 0:
        os._exit(int(connection.is_usable()))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    with borrowed(settings_for(one)) as cluster:
        cluster.leader("t", 0)
    assert connections(one) == 1
