from __future__ import annotations

import pytest

from barnabas.cli.kafka.older_flags import BROKER_LIST, todays_words


@pytest.mark.parametrize("words", [["--zookeeper", "zk:2181", "--list"], ["--zookeeper=zk:2181", "--list"]])
def test_a_zookeeper_is_the_node_of_this_machine(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert todays_words(words) == ["--bootstrap-server", "localhost:9092", "--list"]
    assert "no ZooKeeper any more" in capsys.readouterr().err


def test_a_zookeeper_beside_a_bootstrap_server_counts_for_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--bootstrap-server", "a:1", "--list", "--zookeeper", "zk:2181"]
    assert todays_words(words) == ["--bootstrap-server", "a:1", "--list"]
    assert capsys.readouterr().err == ""


def test_flags_that_were_renamed_keep_their_arguments() -> None:
    assert todays_words(["--broker-list", "a:1"], BROKER_LIST) == ["--bootstrap-server", "a:1"]
    assert todays_words(["--broker-list=a:1"], BROKER_LIST) == ["--bootstrap-server", "a:1"]
    assert todays_words(["--broker-list", "1,2"]) == ["--broker-list", "1,2"]
