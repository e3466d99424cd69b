from __future__ import annotations

import os

import pytest

from barnabas.client.settings import ClientSettings
from barnabas.spark import connections
from barnabas.spark.connections import IDLE_MAX, borrowed_cluster


def settings_of(client_id: str) -> ClientSettings:
    return ClientSettings.from_options({"bootstrap.servers": "nowhere:9092", "client.id": client_id})


def test_a_task_gets_the_cluster_that_an_earlier_one_with_the_same_settings_had() -> None:
    with borrowed_cluster(settings_of("one")) as first:
        pass
    with borrowed_cluster(settings_of("two")) as other:
        assert other is not first
    with borrowed_cluster(settings_of("one")) as second:
        assert second is first


def test_two_readers_at_a_time_do_not_share() -> None:
    with borrowed_cluster(settings_of("both")) as first, borrowed_cluster(settings_of("both")) as second:
        assert first is not second


def test_a_failure_does_not_lose_the_cluster() -> None:
    with pytest.raises(RuntimeError), borrowed_cluster(settings_of("failing")) as first:
        raise RuntimeError
    with borrowed_cluster(settings_of("failing")) as second:
        assert second is first


def test_a_forked_process_makes_connections_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with borrowed_cluster(settings_of("forked")) as first:
        pass
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with borrowed_cluster(settings_of("forked")) as second:
        assert second is not first


def test_few_are_kept() -> None:
    for number in range(IDLE_MAX + 5):
        with borrowed_cluster(settings_of(f"client {number}")):
            pass
    assert len(connections._idle) == IDLE_MAX
