"""ListTransactions: which transactions each filter leaves."""

from __future__ import annotations

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error, KafkaError
from barnabas.transactions.transaction import TransactionState
from barnabas.transactions.transaction_views import Filters, unknown_states
from tests.unit.transactions.household import FIRST_PRODUCER_ID, FOO_0, Household


@pytest.fixture
def house() -> Household:
    """empty, then 1 s later ongoing, then 1 s later committed and one that is being aborted, then 1 s more."""
    house = Household()
    house.begun("empty")
    house.now_ms += 1_000
    house.ongoing("ongoing")
    house.now_ms += 1_000
    for transactional_id in ("committed", "aborting"):
        producer = house.begun(transactional_id)
        house.add(producer, FOO_0, transactional_id=transactional_id)
        house.end(producer, committed=transactional_id == "committed", transactional_id=transactional_id)
        if transactional_id == "committed":
            house.write_markers()
    house.now_ms += 1_000
    return house


EVERYTHING = {"empty", "ongoing", "committed", "aborting"}


def listed(house: Household, request: m.ListTransactionsRequest) -> set[str]:
    found = house.shard.list_transactions(Filters.of(request), house.now_ms)
    assert len(found) == len({each.transactional_id for each in found})
    return {each.transactional_id for each in found}


def test_a_listed_transaction_has_its_producer_and_state(house: Household) -> None:
    request = m.ListTransactionsRequest(state_filters=["PrepareAbort"])
    [found] = house.shard.list_transactions(Filters.of(request), house.now_ms)
    assert (found.transactional_id, found.producer_id) == ("aborting", FIRST_PRODUCER_ID + 4)
    assert found.transaction_state == "PrepareAbort"


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([], EVERYTHING),
        (["Ongoing"], {"ongoing"}),
        (["Empty", "CompleteCommit"], {"empty", "committed"}),
        (["PrepareAbort", "none such"], {"aborting"}),
        (["none such"], set()),
        (["ongoing"], set()),
    ],
)
def test_by_state(house: Household, states: list[str], expected: set[str]) -> None:
    assert listed(house, m.ListTransactionsRequest(state_filters=states)) == expected


def test_names_that_no_state_has_are_told() -> None:
    names = ["x", *(state.title for state in TransactionState), "y", "x", "empty"]
    assert unknown_states(m.ListTransactionsRequest(state_filters=names)) == ["x", "y", "empty"]


def test_by_producer_id(house: Household) -> None:
    ids = [FIRST_PRODUCER_ID + 2, FIRST_PRODUCER_ID + 3, 1]
    assert listed(house, m.ListTransactionsRequest(producer_id_filters=ids)) == {"ongoing", "committed"}


@pytest.mark.parametrize(
    ("duration_ms", "expected"),
    [
        (-1, EVERYTHING),
        (0, EVERYTHING),
        (999, EVERYTHING),
        (1_000, {"empty", "ongoing"}),
        (2_000, {"empty"}),
    ],
)
def test_by_how_long_ago_they_started(house: Household, duration_ms: int, expected: set[str]) -> None:
    """One that never started counts as started long ago, as in Kafka."""
    assert listed(house, m.ListTransactionsRequest(duration_filter=duration_ms)) == expected


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (None, EVERYTHING),
        ("", EVERYTHING),
        (".*ing", {"ongoing", "aborting"}),
        ("ing", set()),
        ("(?i)EMPTY|committed", {"empty", "committed"}),
        ("empty|committed.*", {"empty", "committed"}),
    ],
)
def test_by_a_pattern_of_the_whole_transactional_id(house: Household, pattern: str | None, expected: set[str]) -> None:
    assert listed(house, m.ListTransactionsRequest(transactional_id_pattern=pattern)) == expected


@pytest.mark.parametrize("pattern", ["(", "a**", r"(a)\1", "(?=a)"])
def test_a_pattern_that_is_none_is_refused(pattern: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KafkaError) as refused:
        Filters.of(m.ListTransactionsRequest(transactional_id_pattern=pattern))
    assert refused.value.error is Error.INVALID_REGULAR_EXPRESSION
    assert f"`{pattern}`" in refused.value.message
    assert capfd.readouterr() == ("", "")


def test_filters_are_all_to_be_met(house: Household) -> None:
    request = m.ListTransactionsRequest(
        state_filters=["Ongoing", "Empty"], producer_id_filters=[FIRST_PRODUCER_ID + 2], transactional_id_pattern=".*"
    )
    assert listed(house, request) == {"ongoing"}
