"""Barnabas and Apache Kafka answer the same requests alike, whatever they are, but for what is listed as allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tools import apache_kafka

from interop.differential.campaign import Tally, hunt
from interop.differential.nodes import pair_of_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from interop.differential.running import Pair

SEEDS = (1, 2, 3, 4)
REQUESTS_PER_SEED = 5_000
UNSTEADY_MAX = 10


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    if (reason := apache_kafka.missing()) is not None:
        pytest.skip(f"not run: {reason}")
    with pair_of_nodes(tmp_path_factory.mktemp("differential")) as pair:
        yield pair


@pytest.mark.kafka
@pytest.mark.timeout(3_600)
def test_twenty_thousand_requests_are_answered_alike(pair: Pair) -> None:
    tally = Tally()
    for seed in SEEDS:
        hunt(pair, seed, REQUESTS_PER_SEED, tally, lambda _: None)
    print(tally.coverage())
    assert tally.requests >= len(SEEDS) * REQUESTS_PER_SEED
    assert tally.missing == [], "these APIs and versions are listed, and were never asked"
    assert tally.unsteady.total() <= UNSTEADY_MAX, tally.unsteady
