"""The parts of the differential run that need no broker: sequences, and the comparison of answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from interop.differential import sequences
from interop.differential.campaign import DifferenceError, Tally, hunt
from interop.differential.canonical import Canon
from interop.differential.comparison import compare
from interop.differential.memory import Memory
from interop.differential.references import Name, ProducerEpoch, Records, Step, TopicId, resolved
from interop.differential.running import Exchange
from interop.differential.sides import Answer, Asked

from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.batch import read_header
from barnabas.protocol.uuids import Uuid
from tests.wire.connection import request_frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.compiler.structs import Message

ONE_ID, OTHER_ID = Uuid(b"the id of one..."), Uuid(b"that of another.")


def memory() -> Memory:
    return Memory("prefix-", "/folder", lambda _: ONE_ID)


def exchange(ours: Message, kafkas: Message, request: Message, version: int) -> Exchange:
    step = Step(request, version)
    asked = Asked(step, request, 0, 1, is_probed=False)
    return Exchange(1, step, (asked, asked), (Answer(ours, version), Answer(kafkas, version)))


def differing(ours: Message, kafkas: Message, request: Message, version: int) -> list[str]:
    """The paths of what differs."""
    canons = (Canon("prefix-", "/ours", {}), Canon("prefix-", "/kafkas", {}))
    return [each.path for each in compare(exchange(ours, kafkas, request, version), canons).differences]


@pytest.mark.parametrize("focus", sequences.LISTED, ids=lambda of: f"{ApiKey(of[0]).name}-{of[1]}")
def test_a_sequence_has_the_api_and_version_that_it_is_about_and_can_be_written(focus: tuple[ApiKey, int]) -> None:
    @settings(max_examples=3, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(sequences.sequences(focus))
    def check(steps: list[Step]) -> None:
        assert focus in {(step.request.api_key, step.version) for step in steps}
        for step in steps:
            request_frame(resolved(step.request, memory().resolve), step.version)

    check()


def test_a_reference_becomes_what_the_side_was_last_told() -> None:
    side = memory()
    answer = m.InitProducerIdResponse(producer_id=7, producer_epoch=3)
    side.learn(Step(m.InitProducerIdRequest(), 5, producer=1), m.InitProducerIdRequest(), answer)
    assert side.resolve(ProducerEpoch(1, 1)) == 4
    assert side.resolve(ProducerEpoch(0)) == -1
    assert side.resolve(TopicId(Name("t"))) == ONE_ID
    batch = side.resolve(Records(Name("t"), 0, producer=1))
    assert (read_header(batch).producer_id, read_header(batch).producer_epoch) == (7, 3)


def test_ids_that_each_side_makes_up_are_the_same_where_they_turn_up_in_the_same_places() -> None:
    def answer(*ids: Uuid) -> Message:
        topic = m.MetadataResponse.MetadataResponseTopic
        return m.MetadataResponse(
            topics=[topic(name=f"prefix-{number}", topic_id=each) for number, each in enumerate(ids)]
        )

    request = m.MetadataRequest(topics=[])
    assert differing(answer(ONE_ID, OTHER_ID), answer(OTHER_ID, ONE_ID), request, 12) == []
    assert differing(answer(ONE_ID, OTHER_ID), answer(ONE_ID, ONE_ID), request, 12) == ["Metadata.topics[1].topic_id"]


def test_the_order_of_results_does_not_matter_and_neither_does_into_how_many_pieces_a_topic_is_cut() -> None:
    def answer(*topics: tuple[str, list[int]]) -> Message:
        topic = m.ListOffsetsResponse.ListOffsetsTopicResponse
        partition = m.ListOffsetsResponse.ListOffsetsPartitionResponse
        return m.ListOffsetsResponse(
            topics=[topic(name=name, partitions=[partition(partition_index=at) for at in of]) for name, of in topics]
        )

    request: Any = m.ListOffsetsRequest()
    assert differing(answer(("a", [0]), ("b", [1])), answer(("b", [1]), ("a", [0])), request, 5) == []
    assert differing(answer(("a", [0]), ("a", [1])), answer(("a", [1, 0])), request, 5) == []
    assert differing(answer(("a", [0])), answer(("a", [0, 1])), request, 5) == ["ListOffsets.topics[0].partitions"]


def test_an_error_is_a_difference_and_the_time_that_an_answer_took_is_none() -> None:
    request = m.HeartbeatRequest()
    assert differing(m.HeartbeatResponse(throttle_time_ms=5), m.HeartbeatResponse(), request, 4) == []
    assert differing(m.HeartbeatResponse(error_code=25), m.HeartbeatResponse(), request, 4) == ["Heartbeat.error_code"]


@pytest.mark.parametrize("kafkas", [7, -7, 0])
def test_a_checksum_of_each_sides_own_says_nothing_by_its_sign(kafkas: int) -> None:
    ours, theirs = (m.GetTelemetrySubscriptionsResponse(subscription_id=each) for each in (-5, kafkas))
    assert differing(ours, theirs, m.GetTelemetrySubscriptionsRequest(), 0) == []


def test_what_may_differ_may_do_so_only_with_the_values_and_requests_that_it_is_listed_for() -> None:
    def answer(code: int) -> Message:
        return m.MetadataResponse(topics=[m.MetadataResponse.MetadataResponseTopic(name="prefix-t", error_code=code)])

    topic = m.MetadataRequest.MetadataRequestTopic
    nameless, named = (m.MetadataRequest(topics=[topic(name=name)]) for name in (None, "prefix-t"))
    assert differing(answer(42), answer(-1), nameless, 12) == []
    assert differing(answer(3), answer(-1), nameless, 12) == ["Metadata.topics[0].error_code"]
    assert differing(answer(42), answer(-1), named, 12) == ["Metadata.topics[0].error_code"]


class UnsteadyPair:
    """Two sides of which one answers as many requests wrongly."""

    prefix = "prefix-"

    def __init__(self, wrong_answers: int) -> None:
        self.sides = (SimpleNamespace(peer=SimpleNamespace(data_dir="/folder"), memory=memory()),) * 2
        self._wrong_answers = wrong_answers

    def run(self, steps: list[Step], seen: Callable[[Exchange], bool]) -> None:
        for step in steps:
            wrong = int(self._wrong_answers > 0)
            self._wrong_answers -= wrong
            answers = (m.HeartbeatResponse(error_code=wrong), m.HeartbeatResponse())
            if not seen(exchange(*answers, step.request, step.version)):
                return


@pytest.mark.parametrize("wrong_answers", [1, 2])
def test_a_difference_that_does_not_come_again_is_counted_and_is_none(wrong_answers: int) -> None:
    tally = Tally()
    pair: Any = UnsteadyPair(wrong_answers)
    hunt(pair, 1, 100, tally, lambda _: None)
    assert tally.unsteady.total() == 1
    assert tally.requests >= 100


def test_a_difference_that_comes_again_and_again_is_one() -> None:
    pair: Any = UnsteadyPair(1_000)
    with pytest.raises(DifferenceError) as found:
        hunt(pair, 1, 100, Tally(), lambda _: None)
    assert found.value.difference.ours == 1
