"""The controller is told where partitions were put, until it knows."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from barnabas.broker import directories
from barnabas.broker.directories import ASSIGNMENTS_PER_REQUEST, Directories
from barnabas.metadata.image import FeaturesImage
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.protocol.uuids import Uuid
from tests.unit.broker.api.stand_ins import NODE_ID, ScriptedChannel, topic_id

if TYPE_CHECKING:
    import pytest

EPOCH = 11
FIRST, SECOND = Uuid(b"the first folder"), Uuid(b"the second one..")
Places = dict[tuple[Uuid, int], Uuid]


def no_failure(error: BaseException) -> None:
    raise AssertionError(f"no folder should fail: {error}")


class Household:
    """What is seen of a broker whose controller refuses the first requests."""

    def __init__(self, misplaced: Places, *, refusals: int = 0, metadata_version: int = 30) -> None:
        self.misplaced = misplaced
        self.features = FeaturesImage(metadata_version)
        self.channel = ScriptedChannel(self._answer)
        self._refusals = refusals

    def _answer(self, _: object) -> m.AssignReplicasToDirsResponse:
        self._refusals -= 1
        error = Error.NOT_CONTROLLER if self._refusals >= 0 else Error.NONE
        return m.AssignReplicasToDirsResponse(error_code=error)

    async def tell(self) -> list[Places]:
        """Registers the broker, and returns what the controller was told, request by request."""
        told = Directories(
            NODE_ID,
            "/data",
            cast("Any", SimpleNamespace(on_failed_dir=None)),
            cast("Any", SimpleNamespace(misplaced=self.misplaced)),
            cast("Any", SimpleNamespace(image=SimpleNamespace(features=self.features))),
            self.channel,
            no_failure,
        )
        told.say_where_partitions_are()
        assert self.channel.requests == [], "nobody is told anything before the registration"
        told.registered(cast("Any", SimpleNamespace(epoch=EPOCH)))
        if told._assigning is not None:
            await asyncio.wait_for(told._assigning, 5)
        await told.close()
        assert {(request.broker_id, request.broker_epoch) for request in self.channel.requests} <= {(NODE_ID, EPOCH)}
        return [
            {
                (topic.topic_id, partition.partition_index): directory.id
                for directory in request.directories
                for topic in directory.topics
                for partition in topic.partitions
            }
            for request in self.channel.requests
        ]


def test_each_partition_is_told_once_with_its_folder() -> None:
    places = {(topic_id("t"), 0): FIRST, (topic_id("t"), 1): SECOND, (topic_id("u"), 0): SECOND}
    assert asyncio.run(Household(dict(places)).tell()) == [places]


def test_nothing_is_told_where_there_is_nothing_to_tell_or_the_cluster_knows_no_folders() -> None:
    assert asyncio.run(Household({}).tell()) == []
    assert asyncio.run(Household({(topic_id("t"), 0): FIRST}, metadata_version=14).tell()) == []


def test_a_controller_that_refuses_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directories, "RETRY_SECONDS", 0.001)
    places = {(topic_id("t"), 0): FIRST}
    assert asyncio.run(Household(dict(places), refusals=2).tell()) == [places] * 3


def test_many_partitions_are_told_in_several_requests() -> None:
    places = {(topic_id("t"), index): FIRST for index in range(2 * ASSIGNMENTS_PER_REQUEST + 1)}
    told = asyncio.run(Household(dict(places)).tell())
    assert [len(request) for request in told] == [ASSIGNMENTS_PER_REQUEST, ASSIGNMENTS_PER_REQUEST, 1]
    assert {place for request in told for place in request.items()} == set(places.items())
