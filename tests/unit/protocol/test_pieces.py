"""A message that is read or written in pieces is the same message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.compiler.decoder import WEIGHT_OF_STRUCT
from barnabas.protocol.errors import DecodeError
from barnabas.protocol.pieces import CHUNK_BYTES, PieceReader, PieceWriter, read_unit

if TYPE_CHECKING:
    from barnabas.protocol.compiler.structs import Message


def metadata(count: int) -> m.MetadataRequest:
    topic = m.MetadataRequest.MetadataRequestTopic
    return m.MetadataRequest(
        topics=[topic(name=f"topic-{number}") for number in range(count)], allow_auto_topic_creation=False
    )


def offset_fetch(groups: int, topics: int, partitions: int) -> m.OffsetFetchRequest:
    request = m.OffsetFetchRequest
    return request(
        groups=[
            request.OffsetFetchRequestGroup(
                group_id=f"group-{group}",
                topics=[
                    request.OffsetFetchRequestTopics(name=f"topic-{topic}", partition_indexes=list(range(partitions)))
                    for topic in range(topics)
                ],
            )
            for group in range(groups)
        ],
        require_stable=True,
    )


def delete_groups(count: int) -> m.DeleteGroupsRequest:
    return m.DeleteGroupsRequest(groups_names=[f"group-{number}" for number in range(count)])


def reassigned(topics: int) -> m.ListPartitionReassignmentsRequest:
    """Its topics are null by default."""
    topic = m.ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
    return m.ListPartitionReassignmentsRequest(
        topics=[topic(name=f"topic-{number}", partition_indexes=[0, 1, 2]) for number in range(topics)]
    )


MESSAGES = [
    (metadata(0), 12, ("topics",)),
    (metadata(7), 12, ("topics",)),
    (metadata(500), 4, ("topics",)),
    (m.MetadataRequest(topics=None), 12, ("topics",)),
    (delete_groups(40), 0, ("groups_names",)),
    (delete_groups(40), 2, ("groups_names",)),
    (offset_fetch(1, 1, 100), 8, ("groups", "topics", "partition_indexes")),
    (offset_fetch(3, 4, 5), 8, ("groups", "topics", "partition_indexes")),
    (offset_fetch(5, 0, 0), 9, ("groups", "topics", "partition_indexes")),
    (offset_fetch(2, 9, 0), 9, ("groups", "topics", "partition_indexes")),
    (offset_fetch(2, 9, 3), 9, ("groups", "topics")),
    (reassigned(9), 0, ("topics",)),
    (reassigned(9), 0, ("topics", "partition_indexes")),
    (m.ListPartitionReassignmentsRequest(topics=None), 0, ("topics",)),
]
IDS = [f"{type(message).__name__}-v{version}-{len(path)}" for message, version, path in MESSAGES]


def weight_of(message: Any, path: tuple[str, ...]) -> int:
    """The elements at all depths of the path."""
    if not path:
        return 0
    elements = getattr(message, path[0]) or ()
    return len(elements) + sum(weight_of(element, path[1:]) for element in elements)


def merge(into: Any, piece: Any, path: tuple[str, ...]) -> None:
    """Adds what a piece has of the arrays on the path, where the last element so far may go on in the first."""
    ours, theirs = getattr(into, path[0]), getattr(piece, path[0])
    if ours is None or theirs is None:
        return
    if len(path) > 1 and ours and theirs and names_of(ours[-1]) == names_of(theirs[0]):
        merge(ours[-1], theirs.pop(0), path[1:])
    ours += theirs


def names_of(element: Any) -> tuple[Any, ...]:
    return getattr(element, "group_id", None), getattr(element, "name", None)


@pytest.mark.parametrize(("message", "version", "path"), MESSAGES, ids=IDS)
@pytest.mark.parametrize("elements", [1, 3, 1000])
def test_pieces_are_small_and_make_up_the_message(
    message: Message, version: int, path: tuple[str, ...], elements: int
) -> None:
    data = encode(message, version)
    reader = PieceReader(type(message), version, path, b"head" + data + b"tail", 4)
    reader.piece_weight_max = elements * WEIGHT_OF_STRUCT
    *pieces, last = reader.pieces()
    # What is open is named again in the next piece.
    assert all(weight_of(piece, path) <= elements + len(path) for piece in (*pieces, last))
    if pieces:
        whole = pieces[0]
        for piece in pieces[1:]:
            merge(whole, piece, path)
        merge(whole, last, path)
        setattr(last, path[0], getattr(whole, path[0]))
    assert last == message
    assert list(reader.pieces())[-1] is not last


@pytest.mark.parametrize(("message", "version", "path"), MESSAGES, ids=IDS)
def test_a_message_in_pieces_that_is_cut_short_anywhere_is_refused(
    message: Message, version: int, path: tuple[str, ...]
) -> None:
    data = encode(message, version)
    for end in range(0, len(data), max(1, len(data) // 200)):
        with pytest.raises(DecodeError):
            list(PieceReader(type(message), version, path, data[:end], 0).pieces())


def test_an_array_that_claims_more_than_there_is_is_refused_before_anything_of_it_is_read() -> None:
    data = (2**31 - 1).to_bytes(4) + bytes(100)
    with pytest.raises(DecodeError, match="claims 2147483647 elements, 100 bytes are left"):
        list(PieceReader(m.MetadataRequest, 1, ("topics",), data, 0).pieces())


def test_what_is_not_on_the_path_must_not_be_large() -> None:
    resource = m.DescribeConfigsRequest.DescribeConfigsResource
    request = m.DescribeConfigsRequest(
        resources=[resource(resource_type=2, resource_name="topic", configuration_keys=["key"] * 100_000)]
    )
    with pytest.raises(DecodeError, match="more elements than a request of its kind may have"):
        list(PieceReader(m.DescribeConfigsRequest, 4, ("resources",), encode(request, 4), 0).pieces())


def test_a_unit_is_a_whole_message_unless_it_is_large() -> None:
    def join(count: int) -> m.JoinGroupRequest:
        protocol = m.JoinGroupRequest.JoinGroupRequestProtocol
        return m.JoinGroupRequest(
            group_id="group", protocols=[protocol(name=str(n), metadata=b"x") for n in range(count)]
        )

    assert read_unit(m.JoinGroupRequest, b"." + encode(join(100), 9), 9, 1) == join(100)
    with pytest.raises(DecodeError, match="more elements than a request of its kind may have"):
        read_unit(m.JoinGroupRequest, encode(join(100_000), 9), 9, 0)


def test_a_unit_does_not_have_thousands_of_tagged_fields() -> None:
    body = encode(m.HeartbeatRequest(group_id="group", member_id="member"), 4)
    assert body[-1] == 0
    tags = (100_000).to_bytes(3, "little")
    varint = bytes((tags[0] | 0x80, (100_000 >> 7) & 0x7F | 0x80, 100_000 >> 14))
    data = body[:-1] + varint + b"\x7f\x00" * 100_000
    with pytest.raises(DecodeError, match="more elements than a request of its kind may have"):
        read_unit(m.HeartbeatRequest, data, 4, 0)


def fetched(topic: str, partitions: range, error_code: int = 0) -> m.OffsetFetchResponse.OffsetFetchResponseTopics:
    response = m.OffsetFetchResponse
    return response.OffsetFetchResponseTopics(
        name=topic,
        partitions=[
            response.OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=index, metadata="", error_code=error_code
            )
            for index in partitions
        ],
    )


def fetched_group(name: str, *topics: Any) -> m.OffsetFetchResponse.OffsetFetchResponseGroup:
    return m.OffsetFetchResponse.OffsetFetchResponseGroup(group_id=name, topics=list(topics))


@pytest.mark.parametrize("version", [8, 9])
def test_an_element_that_came_in_several_pieces_is_written_as_one(version: int) -> None:
    writer = PieceWriter(m.OffsetFetchResponse, version, ("groups", "topics", "partitions"))
    writer.add([fetched_group("a", fetched("t", range(3)))])
    writer.add([fetched_group("a", fetched("t", range(3, 5)), fetched("u", range(2))), fetched_group("b")])
    writer.add([fetched_group("c", fetched("t", range(1)))])
    writer.add([])
    written = b"".join(writer.finish(m.OffsetFetchResponse(throttle_time_ms=7)))
    expected = m.OffsetFetchResponse(
        throttle_time_ms=7,
        groups=[
            fetched_group("a", fetched("t", range(5)), fetched("u", range(2))),
            fetched_group("b"),
            fetched_group("c", fetched("t", range(1))),
        ],
    )
    assert decode(m.OffsetFetchResponse, written, version) == expected


def test_what_is_written_comes_in_chunks_and_is_counted() -> None:
    topic = m.MetadataResponse.MetadataResponseTopic
    writer = PieceWriter(m.MetadataResponse, 1, ("topics",))
    for start in range(0, 20_000, 500):
        writer.add([topic(name=f"topic-{number}") for number in range(start, start + 500)])
    encoded = encode(m.MetadataResponse(topics=[topic(name="encoded")]), 1)[12:]
    writer.add_encoded([encoded, encoded], 2)
    chunks = writer.finish(m.MetadataResponse(controller_id=3))
    assert max(map(len, chunks)) < 2 * CHUNK_BYTES
    assert abs(writer.bytes_written - sum(map(len, chunks))) < 2 * CHUNK_BYTES
    answer = decode(m.MetadataResponse, b"".join(chunks), 1)
    assert answer.controller_id == 3
    names = [f"topic-{number}" for number in range(20_000)]
    assert [each.name for each in answer.topics] == [*names, "encoded", "encoded"]


def test_a_message_without_elements_is_written_too() -> None:
    writer = PieceWriter(m.ListOffsetsResponse, 7, ("topics", "partitions"))
    response = m.ListOffsetsResponse(throttle_time_ms=3)
    assert b"".join(writer.finish(response)) == encode(response, 7)
