"""Brokers that answer as a test tells them to: for what a healthy cluster does not do on request."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import TYPE_CHECKING, Any

from barnabas.client.client_settings import ClientSettings
from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.api import APIS, ApiKey, response_header_version
from barnabas.protocol.errors import Error
from barnabas.protocol.headers import parse_request_header
from barnabas.protocol.uuids import Uuid

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator, Mapping

    from barnabas.client.cluster import Cluster

    Answer = Callable[[Any], m.Message | None]
    """The response to a request; None closes the connection instead."""

HOST = "127.0.0.1"


class FakeBroker:
    """Answers requests of any number of connections, by API; what it has no answer for closes the connection."""

    def __init__(
        self,
        answers: Mapping[ApiKey, Answer],
        *,
        newest: Mapping[ApiKey, int] | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.answers = {ApiKey.API_VERSIONS: self._api_versions, **answers}
        self.requests: list[Any] = []
        self.versions: list[tuple[ApiKey, int]] = []
        self._newest = dict(newest or {})
        self._context = context
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def count(self, request: type[m.Message]) -> int:
        return sum(isinstance(each, request) for each in self.requests)

    def drop_connections(self) -> None:
        """End what is connected now; others may connect."""
        while self._connections:
            _shut(self._connections.pop())

    def close(self) -> None:
        _shut(self._listener)
        self._threads[0].join(10)
        self.drop_connections()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        # However a client leaves, and whatever handshake it breaks off, is for the test to judge on its side.
        with connection, contextlib.suppress(OSError, EOFError):
            if self._context is not None:
                with self._context.wrap_socket(connection, server_side=True) as secured:
                    self._converse(secured)
            else:
                self._converse(connection)

    def _converse(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as stream:
            while True:
                (length,) = struct.unpack(">i", _exactly(stream.read(4), 4))
                header = parse_request_header(frame := _exactly(stream.read(length), length), 0)
                api_key = ApiKey(header.api_key)
                request_class = getattr(m, APIS[api_key].request)
                request = codec.decode(request_class, frame, header.api_version, header.body_offset)
                self.requests.append(request)
                self.versions.append((api_key, header.api_version))
                response = self.answers[api_key](request) if api_key in self.answers else None
                if response is None:
                    return
                head = codec.encode(
                    m.ResponseHeader(correlation_id=header.correlation_id),
                    response_header_version(api_key, header.api_version),
                )
                body = codec.encode(response, header.api_version)
                connection.sendall(struct.pack(">i", len(head) + len(body)) + head + body)

    def _api_versions(self, _: Any) -> m.ApiVersionsResponse:
        keys = [
            m.ApiVersionsResponse.ApiVersion(
                api_key=key, min_version=api.min_version, max_version=self._newest.get(ApiKey(key), api.max_version)
            )
            for key, api in APIS.items()
        ]
        return m.ApiVersionsResponse(api_keys=keys)


@contextlib.contextmanager
def broker(answers: Mapping[ApiKey, Answer], **options: Any) -> Iterator[FakeBroker]:
    with contextlib.closing(FakeBroker(answers, **options)) as started:
        yield started


def settings_for(*brokers: FakeBroker, **options: str) -> ClientSettings:
    """Settings that lose no time between tries."""
    servers = ",".join(f"{HOST}:{each.port}" for each in brokers)
    given = {name.replace("_", "."): value for name, value in options.items()}
    quick = {"retry.backoff.ms": "1", "retry.backoff.max.ms": "5", "default.api.timeout.ms": "10000"}
    return ClientSettings.from_options({"bootstrap.servers": servers} | quick | given)


def knows(
    brokers: Mapping[int, FakeBroker], leaders: Mapping[str, Mapping[int, int]], *, leader_epoch: int = 0
) -> Answer:
    """Answers about topics: by name the leader of each partition. Others do not exist."""
    response = m.MetadataResponse

    def described(name: str) -> m.MetadataResponse.MetadataResponseTopic:
        if name not in leaders:
            return response.MetadataResponseTopic(name=name, error_code=Error.UNKNOWN_TOPIC_OR_PARTITION)
        partitions = [
            response.MetadataResponsePartition(partition_index=partition, leader_id=leader, leader_epoch=leader_epoch)
            for partition, leader in leaders[name].items()
        ]
        topic_id = Uuid(name.encode().ljust(16, b"."))
        return response.MetadataResponseTopic(name=name, topic_id=topic_id, partitions=partitions)

    def answer(request: m.MetadataRequest) -> m.MetadataResponse:
        names = leaders if request.topics is None else [topic.name or "" for topic in request.topics]
        nodes = [
            response.MetadataResponseBroker(node_id=node_id, host=HOST, port=each.port)
            for node_id, each in brokers.items()
        ]
        return response(brokers=nodes, topics=[described(name) for name in names])

    return answer


def partitions_of(cluster: Cluster, *topics: str) -> dict[str, list[int]]:
    """The partitions that each topic has now."""
    return {name: list(topic.partitions) for name, topic in cluster.metadata(topics).items()}


def list_offsets_response(
    request: m.ListOffsetsRequest, offset: int = 0, error: Error = Error.NONE
) -> m.ListOffsetsResponse:
    """The same answer for every partition that is asked about."""
    response = m.ListOffsetsResponse
    return response(
        topics=[
            response.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    response.ListOffsetsPartitionResponse(
                        partition_index=each.partition_index, offset=offset, error_code=error
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _exactly(data: bytes, size: int) -> bytes:
    if len(data) < size:
        raise EOFError
    return data


def _shut(opened: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it is closed already
        opened.shutdown(socket.SHUT_RDWR)
    opened.close()
