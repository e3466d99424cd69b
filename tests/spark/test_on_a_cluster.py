"""The same pipeline on a cluster: nothing but the master differs, and executors get the package from the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from examples.common import read_json
from examples.word_count import COUNTS, generate

from barnabas.spark import python_workers
from tests.spark.standalone import cluster, python_without_barnabas, run_example
from tests.spark.test_example_word_count import words

if TYPE_CHECKING:
    from pathlib import Path

    from tests.peers import Peer

SEED = 3
EVENTS = 500


@pytest.mark.timeout(300)
def test_an_example_on_a_master_and_two_workers(fresh_node: Peer, tmp_path: Path) -> None:
    python = python_without_barnabas(tmp_path / "python")
    with cluster(tmp_path, workers=2) as spark_cluster:
        told = ["--bootstrap", fresh_node.bootstrap, "--master", spark_cluster.master, "--once"]
        printed = run_example(
            "word_count", *told, "--seed", str(SEED), "--events", str(EVENTS), python=python, folder=tmp_path
        )
        assert spark_cluster.executors() == [1, 1], "both workers take part"
    counts = {word: value["count"] for word, value in read_json(fresh_node.bootstrap, COUNTS)}
    assert counts == words(generate(SEED, EVENTS))
    assert "The most frequent words" in printed


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local", True),
        ("local[*]", True),
        ("local[2,4]", True),
        ("local-cluster[2,1,1024]", False),
        ("spark://host:7077", False),
        ("yarn", False),
    ],
)
def test_only_executors_elsewhere_need_the_package(master: str, expected: bool) -> None:
    assert python_workers.is_local(master) == expected
