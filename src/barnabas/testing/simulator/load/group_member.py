"""What members of both kinds of groups have and do alike: they commit offsets for what they own, and say what is
committed there."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, Final

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.testing.simulator.load.client import MOVED, GaveUpError, Kind
from barnabas.testing.simulator.load.group_offsets import committed_offsets
from barnabas.testing.simulator.load.history import Fate, OffsetCommit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from barnabas.testing.simulator.load.client import ClusterClient
    from barnabas.testing.simulator.load.history import History, TopicPartition

COMMIT_VERSION: Final = 9
"""The last that names topics by name."""
GIVE_UP_S: Final = 8.0


class MembershipOverError(Exception):
    """The coordinator does not know the member any more, or nobody answers: it has to join anew."""


class OffsetCommitter:
    """Commits ever larger offsets. A commit is sent once: repeated, it might take effect after a later one."""

    def __init__(
        self, client: ClusterClient, group: str, partitions: Sequence[TopicPartition], history: History
    ) -> None:
        self._client = client
        self._group = group
        self._partitions = tuple(partitions)
        self._history = history
        self._numbers = count(1)

    async def commit(self, partitions: Iterable[TopicPartition], member_id: str, generation: int) -> Error:
        """One commit for all of these. MembershipOverError if there is no answer."""
        client, request = self._client, m.OffsetCommitRequest
        commits = []
        topics: dict[str, list[Any]] = {}
        for partition in sorted(partitions):
            number = next(self._numbers)
            mark = f"{client.name}/{number}"
            commits.append(OffsetCommit(self._group, partition, number, mark, member_id, generation, client.now_s))
            topics.setdefault(partition.topic, []).append(
                request.OffsetCommitRequestPartition(
                    partition_index=partition.partition, committed_offset=number, committed_metadata=mark
                )
            )
        asked = request(
            group_id=self._group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=[request.OffsetCommitRequestTopic(name=name, partitions=each) for name, each in topics.items()],
        )
        self._history.commits += commits
        try:
            node, response = await client.ask_coordinator_once(Kind.GROUP, self._group, asked, COMMIT_VERSION)
        except GaveUpError as failure:
            raise MembershipOverError from failure
        first_error = Error(response.topics[0].partitions[0].error_code)
        if first_error in MOVED:
            client.forget_coordinator(Kind.GROUP, self._group)
        errors = {each.partition_index: each.error_code for topic in response.topics for each in topic.partitions}
        for commit in commits:
            error = Error(errors[commit.partition.partition])
            if error is Error.NONE:
                commit.fate = Fate.DONE
                commit.told_s = client.now_s
                commit.coordinator_epoch = client.coordinator_epoch(node, self._group)
        return next((Error(error) for error in errors.values() if error), Error.NONE)

    async def look(self) -> None:
        """Asks for all offsets of the group, which invariants compare with what was committed."""
        await committed_offsets(self._client, self._group, self._partitions, self._history, GIVE_UP_S)

    async def see_the_end(self) -> None:
        while True:
            try:
                await self.look()
            except GaveUpError:
                continue
            return


class GroupMember:
    """What a member of either kind has from the beginning."""

    def __init__(
        self, client: ClusterClient, group: str, partitions: Sequence[TopicPartition], history: History
    ) -> None:
        self.client = client
        self.group = group
        self.is_stopped = False
        self._history = history
        self._committer = OffsetCommitter(client, group, partitions, history)
        self._member_id = ""
        self._owned: frozenset[TopicPartition] = frozenset()
