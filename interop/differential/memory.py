"""What one side has told its clients in a sequence, and what stands in requests for it."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.wire import batches

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.protocol.uuids import ZERO_UUID, Uuid
from interop.differential import references as r
from interop.differential.pools import FIRST_RECORD_MS, UNKNOWN_UUID

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.compiler.structs import Message

MINUTE_MS = 60_000
_IDS_IN_METADATA = 10
_IDS_IN_CREATIONS = 7


@dataclass(slots=True)
class Memory:
    prefix: str
    folder: str
    ask_topic_id: Callable[[str], Uuid]
    """Asks the node, where no answer had the id."""
    topic_ids: dict[str, Uuid] = field(default_factory=dict)
    producers: dict[int, tuple[int, int]] = field(default_factory=dict)
    members: dict[tuple[str, int], tuple[str, int]] = field(default_factory=dict)
    owned: dict[tuple[str, int], list[tuple[Uuid, list[int]]]] = field(default_factory=dict)
    sessions: dict[int, tuple[int, int]] = field(default_factory=dict)
    sequences: dict[tuple[int, str, int], int] = field(default_factory=dict)
    names: dict[tuple[str, Any], str] = field(default_factory=dict)
    """What each id is the id of, for comparing it with that of the other side."""
    instance: Uuid = ZERO_UUID
    subscription: int = 0

    def resolve(self, reference: r.Reference) -> Any:
        match reference:
            case r.Name(text):
                return self.prefix + text
            case r.TopicId(topic):
                return self._topic_id(self.prefix + topic.text)
            case r.ProducerId(producer):
                return self.producers.get(producer, (-1, -1))[0]
            case r.ProducerEpoch(producer, off_by):
                return _moved(self.producers.get(producer, (-1, -1))[1], off_by, 2**15 - 1)
            case r.MemberId(group, member, before):
                return self.members.get((group, member), (before, 0))[0] or before
            case r.MemberEpoch(group, member, off_by):
                return _moved(self.members.get((group, member), ("", 0))[1], off_by, 2**31 - 1)
            case r.Owned(group, member):
                struct_ = m.ConsumerGroupHeartbeatRequest.TopicPartitions
                owned = self.owned.get((group, member), [])
                return [struct_(topic_id=topic_id, partitions=list(indexes)) for topic_id, indexes in owned]
            case r.SessionId(connection):
                return self.sessions.get(connection, (0, 0))[0]
            case r.SessionEpoch(connection, off_by):
                return self.sessions.get(connection, (0, 0))[1] + off_by
            case r.DataFolder():
                return self.folder
            case r.Instance():
                return self.instance
            case r.Subscription(off_by):
                return self.subscription + off_by
            case r.Records():
                return self._batch(reference)
        raise TypeError(f"nothing stands for {reference}")

    def _topic_id(self, name: str) -> Uuid:
        if self.topic_ids.get(name, ZERO_UUID) == ZERO_UUID:
            self._call_topic(name, self.ask_topic_id(name))
        found = self.topic_ids[name]
        return UNKNOWN_UUID if found == ZERO_UUID else found

    def _batch(self, wanted: r.Records) -> bytes:
        """Records are the same on both sides, but for the producer's id."""
        producer: dict[str, Any] = {}
        if wanted.producer is not None:
            producer_id, epoch = self.producers.get(wanted.producer, (3_000_000_000, 0))
            place = (wanted.producer, self.prefix + wanted.topic.text, wanted.partition)
            producer = {
                "producer_id": producer_id,
                "producer_epoch": _moved(epoch, wanted.epoch_off_by, 2**15 - 1),
                "base_sequence": max(0, self.sequences.get(place, 0) + wanted.sequence_off_by),
            }
        flaws: dict[str, dict[str, Any]] = {
            "crc": {"crc": 7},
            "length": {"length": 60},
            "magic": {"magic": 1},
            "count": {"count": wanted.values + 1},
            "control": {"attributes": batches.CONTROL},
            "base offset": {"base_offset": 5},
            "codec": {"attributes": 7},
            "garbage": {"records": b"garbage"},
        }
        made: dict[str, Any] = {
            "key": wanted.key,
            "timestamp_ms": FIRST_RECORD_MS + wanted.minutes * MINUTE_MS,
            "attributes": wanted.attributes,
        }
        whole = batches.batch(
            [b"value %d" % n for n in range(wanted.values)], **(made | producer | flaws.get(wanted.flaw, {}))
        )
        if wanted.attributes & 7 == batches.GZIP:
            whole = _without_gzip_time(whole)
        return {"two": whole + whole, "empty": b""}.get(wanted.flaw, whole)

    def learn(self, step: r.Step, request: Message, answer: Message) -> None:
        """Takes from an answer what later requests need."""
        match answer:
            case m.CreateTopicsResponse() if step.version >= _IDS_IN_CREATIONS:
                for each in answer.topics:
                    if not each.error_code:
                        self._call_topic(each.name, each.topic_id)
            case m.CreateTopicsResponse():
                for created in answer.topics:
                    if not created.error_code:
                        self.topic_ids.pop(created.name, None)
            case m.MetadataResponse() if step.version >= _IDS_IN_METADATA:
                for told in answer.topics:
                    if told.name and not told.error_code:
                        self._call_topic(told.name, told.topic_id)
            case m.InitProducerIdResponse() if not answer.error_code:
                self._begin(step.producer, answer.producer_id, answer.producer_epoch)
            case m.EndTxnResponse() if not answer.error_code and answer.producer_id >= 0:
                self._begin(step.producer, answer.producer_id, answer.producer_epoch)
            case m.ProduceResponse():
                self._count_records(step, answer)
            case m.JoinGroupResponse() if answer.error_code == Error.MEMBER_ID_REQUIRED:
                self._call_member(step, answer.member_id, 0)
            case m.JoinGroupResponse() if not answer.error_code:
                self._call_member(step, answer.member_id, answer.generation_id)
            case m.ConsumerGroupHeartbeatResponse() if not answer.error_code:
                self._follow(step, answer)
            case m.FetchResponse() if not answer.error_code and answer.session_id:
                assert isinstance(request, m.FetchRequest)
                known = self.sessions.get(step.connection, (0, 0))
                epoch = known[1] + 1 if known[0] == answer.session_id and request.session_epoch > 0 else 1
                self.sessions[step.connection] = (answer.session_id, epoch)
            case m.GetTelemetrySubscriptionsResponse() if not answer.error_code:
                self.instance, self.subscription = answer.client_instance_id, answer.subscription_id

    def _call_topic(self, name: str, topic_id: Uuid) -> None:
        self.topic_ids[name] = topic_id
        if topic_id != ZERO_UUID:
            self._call("id", bytes(topic_id), name.removeprefix(self.prefix))

    def _call_member(self, step: r.Step, member_id: str, epoch: int) -> None:
        self.members[step.group, step.member] = (member_id, epoch)
        self._call("member", member_id, f"{step.group}/{step.member}")

    def _call(self, kind: str, value: Any, name: str) -> None:
        if (kind, value) not in self.names:
            number = sum(known.startswith(f"<{kind} of {name},") for known in self.names.values())
            self.names[kind, value] = f"<{kind} of {name}, {number + 1}>"

    def _begin(self, producer: int, producer_id: int, epoch: int) -> None:
        self.producers[producer] = (producer_id, epoch)
        self._call("producer", producer_id, str(producer))
        for place in [place for place in self.sequences if place[0] == producer]:
            del self.sequences[place]

    def _count_records(self, step: r.Step, answer: m.ProduceResponse) -> None:
        assert isinstance(step.request, m.ProduceRequest)
        for asked, answered in zip(step.request.topic_data, answer.responses, strict=False):
            for data, result in zip(asked.partition_data, answered.partition_responses, strict=False):
                sent: Any = data.records
                if isinstance(sent, r.Records) and sent.producer is not None and not result.error_code:
                    place = (sent.producer, self.prefix + sent.topic.text, sent.partition)
                    self.sequences[place] = max(0, self.sequences.get(place, 0) + sent.sequence_off_by) + sent.values

    def _follow(self, step: r.Step, answer: m.ConsumerGroupHeartbeatResponse) -> None:
        place = (step.group, step.member)
        if answer.member_epoch < 0:
            self.members[place] = (self.members.get(place, ("", 0))[0], 0)
            self.owned.pop(place, None)
            return
        self._call_member(step, answer.member_id or "", answer.member_epoch)
        if answer.assignment is not None:
            self.owned[place] = [(each.topic_id, list(each.partitions)) for each in answer.assignment.topic_partitions]


def _moved(value: int, off_by: int, most: int) -> int:
    return min(value + off_by, most)


def _without_gzip_time(whole: bytes) -> bytes:
    """The gzip header has the time of its making, in which two sides would differ."""
    body = bytearray(whole[batches.HEADER.size :])
    struct.pack_into("<I", body, 4, 0)
    return batches.with_body(whole, bytes(body))
