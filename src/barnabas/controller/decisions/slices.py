"""Large requests, decided as several small ones.

The controller decides on one request at a time, and answers no other one meanwhile; a heartbeat must not wait for the
creation of thousands of topics. So a large request is decided slice by slice, with room for others in between. Each
slice is a batch of its own in the log: the topics of a request are independent of each other, in the answer as in the
log, and so are resources. What occurs twice in a request, which is an error, stays together.

A request that would write more than `MAX_RECORDS_PER_BATCH` records is refused as a whole, before anything of it is
done.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.controller.decisions.context import MAX_RECORDS_PER_BATCH
from barnabas.controller.decisions.quota_changes import entity_of
from barnabas.controller.decisions.topic_changes import check_total_partitions
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error, KafkaError
from barnabas.protocol.refusals import TOO_MANY_CHANGES
from barnabas.protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from barnabas.controller.decisions.context import Context
    from barnabas.protocol.compiler.structs import Message

TOPICS_PER_SLICE = 16
"""To create them and describe their settings in the answer is a few milliseconds' work."""
RESOURCES_PER_SLICE = 32
"""Or settings of resources, if they are more."""
ELEMENTS_PER_SLICE = 500
"""For elements that cost a few microseconds each."""


class Slicing(NamedTuple):
    """How requests of one kind are taken apart, and their answers put together."""

    array: str
    answers: str
    key: Callable[[Any], Hashable]
    """What may occur only once in a request."""
    per_slice: int
    weight: Callable[[Any], int] = lambda _: 1
    """How many elements one is worth."""


def _records_of_topic(topic: m.CreateTopicsRequest.CreatableTopic) -> int:
    return 1 + len(topic.configs) + max(len(topic.assignments), topic.num_partitions, 1)


_of_resources = Slicing(
    "resources",
    "responses",
    lambda each: (each.resource_type, each.resource_name),
    RESOURCES_PER_SLICE,
    lambda each: max(len(each.configs), 1),
)
_SLICINGS: dict[str, Slicing] = {
    "CreateTopicsRequest": Slicing("topics", "topics", lambda topic: topic.name, TOPICS_PER_SLICE),
    "CreatePartitionsRequest": Slicing("topics", "results", lambda topic: topic.name, RESOURCES_PER_SLICE),
    "AlterConfigsRequest": _of_resources,
    "IncrementalAlterConfigsRequest": _of_resources,
    "ElectLeadersRequest": Slicing(
        "topic_partitions",
        "replica_election_results",
        lambda topic: topic.topic,
        ELEMENTS_PER_SLICE,
        lambda topic: len(topic.partitions),
    ),
    "AlterClientQuotasRequest": Slicing(
        "entries", "entries", lambda entry: entity_of(entry.entity), RESOURCES_PER_SLICE, lambda entry: len(entry.ops)
    ),
    "AlterPartitionRequest": Slicing(
        "topics", "topics", lambda topic: topic.topic_id, ELEMENTS_PER_SLICE, lambda topic: len(topic.partitions)
    ),
}
_DELETION_BY_NAME = Slicing("topic_names", "responses", lambda name: name, ELEMENTS_PER_SLICE)
_DELETION_BY_STATE = Slicing("topics", "responses", lambda topic: (topic.name, topic.topic_id), ELEMENTS_PER_SLICE)


def slicing_of(request: Message) -> Slicing | None:
    """How to take a request apart; None if it is small enough, or cannot be."""
    if isinstance(request, m.DeleteTopicsRequest):
        slicing = _deletion_slicing(request)
    else:
        slicing = _SLICINGS.get(type(request).__name__)
    if slicing is None:
        return None
    elements = getattr(request, slicing.array) or ()
    if len(elements) <= slicing.per_slice and sum(map(slicing.weight, elements)) <= slicing.per_slice:
        return None
    return slicing


def slices(request: Message, slicing: Slicing, context: Context) -> Iterable[Message]:
    """The request in slices; KafkaError if it asks for too much."""
    _check_total(request, context)
    elements = getattr(request, slicing.array)
    times = Counter(map(slicing.key, elements))
    once = [element for element in elements if times[slicing.key(element)] == 1]
    repeated = [element for element in elements if times[slicing.key(element)] > 1]
    slice_: list[Any] = []
    weight = 0
    for element in once:
        if slice_ and weight + slicing.weight(element) > slicing.per_slice:
            yield _with(request, slicing.array, slice_)
            slice_, weight = [], 0
        slice_.append(element)
        weight += slicing.weight(element)
    if slice_:
        yield _with(request, slicing.array, slice_)
    if repeated:
        yield _with(request, slicing.array, repeated)


def joined(responses: Sequence[Message], slicing: Slicing) -> Message:
    """The answer to a request, made of those to its slices. If a slice is refused as a whole, so is the request."""
    for response in responses:
        if getattr(response, "error_code", Error.NONE):
            return response
    answer = responses[0]
    answers = getattr(answer, slicing.answers)
    for response in responses[1:]:
        answers += getattr(response, slicing.answers)
    return answer


def _deletion_slicing(request: m.DeleteTopicsRequest) -> Slicing | None:
    if request.topic_names:
        return None if request.topics else _DELETION_BY_NAME
    names_ids = any(topic.topic_id != ZERO_UUID for topic in request.topics)
    names_names = any(topic.name is not None for topic in request.topics)
    # If a topic is named in both ways, that must be noticed.
    return None if names_ids and names_names else _DELETION_BY_STATE


def _check_total(request: Message, context: Context) -> None:
    match request:
        case m.CreateTopicsRequest():
            check_total_partitions(request.topics, context)
            count = sum(map(_records_of_topic, request.topics))
        case m.DeleteTopicsRequest():
            count = len(request.topics) + len(request.topic_names)
        case m.AlterConfigsRequest() | m.IncrementalAlterConfigsRequest():
            count = sum(len(resource.configs) for resource in request.resources)
        case m.AlterClientQuotasRequest():
            count = sum(len(entry.ops) for entry in request.entries)
        case m.ElectLeadersRequest():
            count = sum(len(topic.partitions) for topic in request.topic_partitions or ())
        case _:
            return
    if count > MAX_RECORDS_PER_BATCH:
        raise KafkaError(Error.POLICY_VIOLATION, TOO_MANY_CHANGES)


def _with(request: Message, array: str, elements: list[Any]) -> Message:
    slice_ = object.__new__(type(request))
    for field in request.__slots__:
        setattr(slice_, field, getattr(request, field))
    setattr(slice_, array, elements)
    return slice_
