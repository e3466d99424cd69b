"""Commits that repeat the previous one in all but the offsets: recognised by their bytes, and not decoded.

A consumer commits the partitions that it reads, over and over. In such a request only the offsets and leader epochs
change, and in its answer nothing does. So a connection keeps its last commit, and takes the next one of the same size
apart with a prepared layout: the fixed bytes are compared, and the others go into the request that was decoded before.
This works for as long as the topics stay the same.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any

from barnabas.protocol import codec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.metadata.image import TopicsImage
    from barnabas.protocol import messages as m

COMMIT_BY_ID = 10
FIRST_FLEXIBLE_VERSION = 8
STANDING_BYTES_MAX = 4096
"""What a connection may keep. Larger commits are rare, and decoded."""

_UUID_BYTES = 16
_OFFSET_AND_EPOCH = "qi"
_OFFSET_AND_EPOCH_BYTES = 12
_NO_TAGS_BYTES = 1


class StandingCommit:
    """A commit that was begun. If it named partitions that do not exist, these were removed from the request, which no
    longer matches its bytes: such a commit never counts as repeated."""

    __slots__ = ("_answer", "_body", "_fixed", "_layout", "_partitions", "_topics", "_version", "request")

    def __init__(self, request: m.OffsetCommitRequest, body: bytes, version: int, topics: TopicsImage) -> None:
        self.request = request
        self._body = body
        self._version = version
        self._topics = [topics.get(topic.name) for topic in request.topics]
        """Only the topics of the commit: an idle connection must not keep a whole old image alive."""
        self._partitions: list[m.OffsetCommitRequest.OffsetCommitRequestPartition] = []
        self._layout: Struct | None = None
        """Made when a second commit has the size of the first."""
        self._fixed: tuple[bytes, ...] = ()
        self._answer: bytes | None = None

    @classmethod
    def of(
        cls, request: m.OffsetCommitRequest, body: memoryview, version: int, topics: TopicsImage
    ) -> StandingCommit | None:
        """None for a commit that is not kept."""
        if version < FIRST_FLEXIBLE_VERSION or len(body) > STANDING_BYTES_MAX:
            return None
        return cls(request, bytes(body), version, topics)

    def is_repeated_by(self, body: memoryview, version: int, topics: TopicsImage) -> bool:
        """Whether a request differs from this one only in its offsets. If so, `request` has the new ones from here
        on."""
        if len(body) != len(self._body) or version != self._version:
            return False
        for topic, known in zip(self.request.topics, self._topics, strict=True):
            if topics.get(topic.name) is not known:
                return False
        layout = self._layout or self._lay_out()
        if layout is None:
            return False
        fields = layout.unpack(body)
        if fields[::3] != self._fixed:
            return False
        for partition, offset, epoch in zip(self._partitions, fields[1::3], fields[2::3], strict=True):
            partition.committed_offset = offset
            partition.committed_leader_epoch = epoch
        return True

    def finish(self, response: m.OffsetCommitResponse) -> Any:
        """The answer as it is sent. The answer that all offsets are committed is encoded only once."""
        for topic in response.topics:
            for partition in topic.partitions:
                if partition.error_code:
                    return response
        if self._answer is None:
            self._answer = codec.encode(response, self._version)
        return self._answer

    def _lay_out(self) -> Struct | None:
        """Fixed bytes and, between them, offset and epoch of each partition; None for a request in an unusual form."""
        format_, end = ">", 0
        for at in (places := list(_places_of_offsets(self.request, self._version)))[:-1]:
            format_ += f"{at - end}s{_OFFSET_AND_EPOCH}"
            end = at + _OFFSET_AND_EPOCH_BYTES
        if places[-1] != len(self._body):
            return None
        self._layout = Struct(f"{format_}{len(self._body) - end}s")
        self._fixed = self._layout.unpack(self._body)[::3]
        self._partitions = [partition for topic in self.request.topics for partition in topic.partitions]
        return self._layout


def _places_of_offsets(request: m.OffsetCommitRequest, version: int) -> Iterator[int]:
    """Where in a request's bytes the offset of each partition begins, and where the bytes end.

    group, generation i32, member, instance, topics [name or id, partitions [index i32, offset i64, epoch i32, metadata,
    tags], tags], tags: in the shortest form, with no varint longer than necessary, and without any tags.
    """
    at = _string_bytes(request.group_id) + 4 + _string_bytes(request.member_id)
    at += _string_bytes(request.group_instance_id) + _count_bytes(len(request.topics))
    for topic in request.topics:
        at += _UUID_BYTES if version >= COMMIT_BY_ID else _string_bytes(topic.name)
        at += _count_bytes(len(topic.partitions))
        for partition in topic.partitions:
            at += 4
            yield at
            at += _OFFSET_AND_EPOCH_BYTES + _string_bytes(partition.committed_metadata) + _NO_TAGS_BYTES
        at += _NO_TAGS_BYTES
    yield at + _NO_TAGS_BYTES


def _string_bytes(text: str | None) -> int:
    if text is None:
        return 1
    size = len(text.encode())
    return _count_bytes(size) + size


def _count_bytes(count: int) -> int:
    """The size of a length, which is written as an unsigned varint of the length plus one."""
    return ((count + 1).bit_length() + 6) // 7
