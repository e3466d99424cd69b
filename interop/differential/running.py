"""A sequence sent to both sides, step by step: each answer of one beside that of the other.

Most requests are answered at once, and are waited for. One that joins or synchronises a group may have to wait for
other members: where neither side answers, the sequence goes on, and the answers are taken when they come. What such a
connection is to send next is sent on another.
"""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from interop.differential.pools import GROUPS, PRODUCERS, TOPICS
from interop.differential.sides import Answer, Asked, Side

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from interop.differential.references import Step

MAY_WAIT = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
PATIENCE_SECONDS = 0.06
"""After so long without an answer from either side, a request is taken for one that waits for others."""
LAG_SECONDS_MAX = 4.0
"""How long one side may take to answer after the other has."""

CHANGES_METADATA = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.UPDATE_FEATURES,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    }
)
CHANGES_TRANSACTIONS = frozenset({ApiKey.END_TXN, ApiKey.INIT_PRODUCER_ID})
TOPIC, BROKER, GROUP, CLIENT_METRICS = 2, 4, 32, 16

_RUNS = itertools.count()


class Exchange(NamedTuple):
    """What both sides answered to a step."""

    number: int
    step: Step
    asked: tuple[Asked, Asked]
    answers: tuple[Answer, Answer]


class _Waiting(NamedTuple):
    number: int
    step: Step
    asked: tuple[Asked, Asked]


class Pair:
    """Both sides, which go through sequences together."""

    def __init__(self, ours: Side, kafkas: Side) -> None:
        self.sides = (ours, kafkas)
        self.prefix = ""

    def run(self, steps: Sequence[Step], seen: Callable[[Exchange], bool]) -> None:
        """Sends the steps until `seen` no longer wants to go on, and cleans up."""
        self.prefix = f"s{os.getpid() % 100_000:05}{next(_RUNS):06}-"
        for side in self.sides:
            side.begin(self.prefix)
        waiting: dict[int, _Waiting] = {}
        try:
            for number, step in enumerate(steps, 1):
                if not self._take(step, number, waiting, seen):
                    return
        finally:
            self._clean_up(steps)

    def _take(self, step: Step, number: int, waiting: dict[int, _Waiting], seen: Callable[[Exchange], bool]) -> bool:
        connection = step.connection
        while connection in waiting:
            connection += 10
        asked = (self.sides[0].send(step, connection), self.sides[1].send(step, connection))
        api = ApiKey(step.request.api_key or 0)
        waiting[connection] = _Waiting(number, step, asked)
        patience = PATIENCE_SECONDS if api in MAY_WAIT else LAG_SECONDS_MAX
        goes_on = self._gather(connection, waiting, seen, patience)
        if goes_on:
            self._settle(api, step)
            for earlier in list(waiting):
                goes_on = goes_on and self._gather(earlier, waiting, seen, 0)
        return goes_on

    def _gather(
        self, connection: int, waiting: dict[int, _Waiting], seen: Callable[[Exchange], bool], patience: float
    ) -> bool:
        """Takes the answers on a connection if at least one side has one in time."""
        number, step, asked = waiting[connection]
        first = self._first(asked, patience)
        is_patient = patience == LAG_SECONDS_MAX
        if first is None and not is_patient:
            return True
        del waiting[connection]
        answers = []
        for side, each in zip(self.sides, asked, strict=True):
            if side.has_answer(each, LAG_SECONDS_MAX if first is not None else 0):
                answers.append(side.receive(each))
            else:
                answers.append(Answer(None, step.version, "no answer"))
        return seen(Exchange(number, step, asked, (answers[0], answers[1])))

    def _first(self, asked: tuple[Asked, Asked], patience: float) -> int | None:
        """Which side has an answer."""
        waited = 0.0
        slice_seconds = min(patience, 0.01)
        while True:
            for index, (side, each) in enumerate(zip(self.sides, asked, strict=True)):
                if side.has_answer(each, slice_seconds if index == 0 else 0):
                    return index
            waited += slice_seconds
            if waited >= patience:
                return None

    def _settle(self, api: ApiKey, step: Step) -> None:
        """Waits until what the step has set off is done on both sides."""
        if api in CHANGES_METADATA or _may_create_topics(step):
            for side in self.sides:
                side.await_metadata()
        if api in CHANGES_TRANSACTIONS:
            for side in self.sides:
                side.await_transactions(*(self.prefix + each for each in PRODUCERS))

    def _clean_up(self, steps: Sequence[Step]) -> None:
        """Has both sides forget what they would otherwise list for ever, and what would change later sequences."""
        apis = {each.request.api_key for each in steps}
        for side in self.sides:
            side.hang_up()
            names = [self.prefix + each for each in TOPICS]
            side.call(m.DeleteTopicsRequest(topic_names=names, timeout_ms=30_000), 5)
            side.call(m.DeleteGroupsRequest(groups_names=[self.prefix + each for each in GROUPS]), 2)
            if apis & {ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS}:
                _reset_configs(side, self.prefix)
            if ApiKey.ALTER_CLIENT_QUOTAS in apis:
                _reset_quotas(side)


def _may_create_topics(step: Step) -> bool:
    request = step.request
    return isinstance(request, m.MetadataRequest) and bool(request.topics) and request.allow_auto_topic_creation


def _reset_configs(side: Side, prefix: str) -> None:
    request = m.AlterConfigsRequest
    named = [(BROKER, ""), (BROKER, "1"), (GROUP, prefix + "g0"), (GROUP, prefix + "gone")]
    named += [(CLIENT_METRICS, prefix + "metrics"), (CLIENT_METRICS, prefix + "gone")]
    resources = [request.AlterConfigsResource(resource_type=of_type, resource_name=name) for of_type, name in named]
    side.call(request(resources=resources), 2)


def _reset_quotas(side: Side) -> None:
    request = m.AlterClientQuotasRequest
    described = side.call(m.DescribeClientQuotasRequest(components=[], strict=False), 1)
    entries = [
        request.EntryData(
            entity=[request.EntityData(entity_type=e.entity_type, entity_name=e.entity_name) for e in entry.entity],
            ops=[request.OpData(key=value.key, remove=True) for value in entry.values],
        )
        for entry in described.entries or ()
    ]
    side.call(request(entries=entries), 1)
