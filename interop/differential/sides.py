"""One broker of the two: its connections, what it has told, and how to wait until a change has reached all of it."""

from __future__ import annotations

import contextlib
import select
import struct
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.wire.connection import ClosedError, Connection, api_key_of, request_frame, response_of

from barnabas.protocol import messages as m
from barnabas.protocol.api import APIS
from barnabas.protocol.codec import DecodeError, EncodeError, decode
from barnabas.protocol.errors import Error
from barnabas.protocol.headers import parse_response_header
from barnabas.protocol.uuids import Uuid
from interop.differential.memory import Memory
from interop.differential.references import Step, resolved

if TYPE_CHECKING:
    from tests.peers import Peer

    from barnabas.protocol.compiler.structs import Message

ANSWER_SECONDS_MAX = 8.0
SETTLE_SECONDS_MAX = 10.0
POLL_SECONDS = 0.001
PROBE = 1_000_000_000
"""A correlation id that no other request has."""
IN_BETWEEN = ("PrepareCommit", "PrepareAbort")


class Answer(NamedTuple):
    """What came of a request: a message, or that there was none and why."""

    message: Message | None
    version: int
    instead: str = ""


class Asked(NamedTuple):
    """A request on its way."""

    step: Step
    request: Message
    connection: int
    correlation_id: int
    is_probed: bool
    """Whether it has no answer of its own, so that another request behind it tells when it is done."""


class Side:
    def __init__(self, name: str, peer: Peer) -> None:
        self.name = name
        self.peer = peer
        self.memory = Memory("", "", self._topic_id)
        self._connections: dict[int, Connection] = {}
        self._own = Connection(peer.port)
        self._correlation_id = 0

    def begin(self, prefix: str) -> None:
        """Forgets the sequence before."""
        self.hang_up()
        self.memory = Memory(prefix, str(self.peer.data_dir), self._topic_id)

    def hang_up(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def close(self) -> None:
        self.hang_up()
        self._own.close()

    def send(self, step: Step, connection: int) -> Asked:
        request = resolved(step.request, self.memory.resolve)
        self._correlation_id += 1
        try:
            frame = request_frame(request, step.version, self._correlation_id)
        except EncodeError as error:
            raise AssertionError(f"{request} cannot be written as version {step.version}") from error
        if step.cut:
            body = frame[4 : -step.cut] if step.cut > 0 else frame[4:] + bytes(-step.cut)
            frame = struct.pack(">i", len(body)) + body
        is_probed = isinstance(request, m.ProduceRequest) and request.acks == 0
        if is_probed:
            frame += request_frame(m.ApiVersionsRequest(), 0, PROBE)
        with contextlib.suppress(ClosedError):  # which the wait for the answer tells
            self._connection(connection).send_bytes(frame)
        return Asked(step, request, connection, self._correlation_id, is_probed)

    def has_answer(self, asked: Asked, seconds: float) -> bool:
        """Whether something comes within a time, be it that the connection is closed."""
        waiting = [self._connection(asked.connection).socket]
        return bool(select.select(waiting, [], [], seconds)[0])

    def receive(self, asked: Asked) -> Answer:
        connection = self._connection(asked.connection)
        version = asked.step.version
        connection.socket.settimeout(ANSWER_SECONDS_MAX)
        try:
            frame = connection.receive_frame()
        except (ClosedError, TimeoutError) as error:
            self._connections.pop(asked.connection).close()
            self.memory.sessions.pop(asked.connection, None)
            return Answer(None, version, "no answer" if isinstance(error, TimeoutError) else "closed")
        if asked.is_probed:
            return Answer(None, version, "nothing, and goes on")
        response = response_of(type(asked.request))
        api_key = api_key_of(response)
        if api_key == m.ApiVersionsRequest.api_key and _says_unsupported(frame):
            version = 0
        try:
            correlation_id, start = parse_response_header(frame, api_key, version)
            answer = decode(response, frame, version, start)
        except DecodeError as error:
            return Answer(None, version, f"cannot be read: {error}: {frame.hex()}")
        if correlation_id != asked.correlation_id:
            return Answer(None, version, "an answer to another request")
        self.memory.learn(asked.step, asked.request, answer)
        return Answer(answer, version)

    def call(self, request: Message, version: int) -> Any:
        """A request of the runner's own, which is no part of what is compared."""
        return self._own.call(request, version, response_of(type(request)))

    def await_metadata(self) -> None:
        """Returns when all of the broker knows what the controller has decided so far. The epoch in its answer is the
        offset of what it has begun to put into effect, so that all before it is in effect."""
        committed = self._committed()
        begun = self._await_epoch(committed)
        self._await_epoch(begun + 1)

    def _committed(self) -> int:
        """The last offset of the metadata log that counts."""
        request = m.DescribeQuorumRequest
        partition = request.PartitionData(partition_index=0)
        topic = request.TopicData(topic_name="__cluster_metadata", partitions=[partition])
        answer = self.call(request(topics=[topic]), 0)
        return int(answer.topics[0].partitions[0].high_watermark) - 1

    def _await_epoch(self, offset: int) -> int:
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        software = m.ApiVersionsRequest(client_software_name="runner", client_software_version="1")
        while (epoch := int(self.call(software, 3).finalized_features_epoch)) < offset:
            assert time.monotonic() < deadline, f"{self.name} does not come to offset {offset} of its metadata"
            time.sleep(POLL_SECONDS)
        return epoch

    def await_transactions(self, *names: str) -> None:
        """Returns when the markers of transactions that have ended are written."""
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        while True:
            answer = self.call(m.DescribeTransactionsRequest(transactional_ids=list(names)), 0)
            if all(each.transaction_state not in IN_BETWEEN for each in answer.transaction_states):
                return
            if time.monotonic() > deadline:
                return  # which is a state like others, and is compared like them
            time.sleep(POLL_SECONDS)

    def _topic_id(self, name: str) -> Uuid:
        request = m.MetadataRequest
        named = request.MetadataRequestTopic(name=name)
        (found,) = self.call(request(topics=[named], allow_auto_topic_creation=False), 12).topics
        return Uuid(found.topic_id)

    def _connection(self, number: int) -> Connection:
        if number not in self._connections:
            self._connections[number] = Connection(self.peer.port, ANSWER_SECONDS_MAX)
        return self._connections[number]


def _says_unsupported(frame: bytes) -> bool:
    """An ApiVersions request of an unknown version is answered in the oldest format."""
    return len(frame) >= 6 and struct.unpack_from(">h", frame, 4)[0] == Error.UNSUPPORTED_VERSION


__all__ = ["APIS", "Answer", "Asked", "Side"]
