"""A real listener with a few APIs behind it, on whatever loop and network a test has, for peers to talk to."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Any

from barnabas.log.segments.open_files import FilePool
from barnabas.log.segments.segment import Segment
from barnabas.net import api_versions
from barnabas.net.dispatch import Dispatcher, Route
from barnabas.net.endpoint import Listener
from barnabas.net.listener import ConnectionCensus, ConnectionLimits, ListenerServer
from barnabas.net.parts import FilePart
from barnabas.protocol import messages as m
from barnabas.protocol.api import APIS, ApiKey

if TYPE_CHECKING:
    from barnabas.net.connection import Connection
    from barnabas.net.dispatch import Caller
    from barnabas.ports import Disk, Network

UNLIMITED = 2**31 - 1
METADATA_VERSIONS = (0, 9)
FETCH_VERSION = 11


class Served:
    """Metadata answers with the name of the first topic that it is asked for, as the cluster's id; Heartbeat does so
    when the gate of its group is opened; Fetch answers with a range of a file."""

    def __init__(self, loop: asyncio.AbstractEventLoop, network: Network, host: str, port: int = 0) -> None:
        self.asked: list[str] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.file: Any = None
        routes = {
            ApiKey.API_VERSIONS: Route(ApiKey.API_VERSIONS, api_versions.VERSIONS, answer_versions, None),
            ApiKey.METADATA: Route(ApiKey.METADATA, METADATA_VERSIONS, answer_metadata, None),
            ApiKey.HEARTBEAT: Route(ApiKey.HEARTBEAT, (0, APIS[ApiKey.HEARTBEAT].max_version), answer_heartbeat, None),
            ApiKey.FETCH: Route(ApiKey.FETCH, (4, FETCH_VERSION), None, answer_fetch),
        }
        self.routes: dict[int, Route] = {api_key: route.served_by(self) for api_key, route in routes.items()}
        self.dispatcher = Dispatcher(self.routes)
        self.server = ListenerServer(
            loop,
            network,
            Listener("CONTROLLER", "PLAINTEXT", host, port),
            self.dispatcher.dispatch,
            ConnectionLimits(UNLIMITED, UNLIMITED, {}, 600),
            ConnectionCensus(),
            max_connections=UNLIMITED,
            max_frame_bytes=100 * 1024 * 1024,
            max_buffered_bytes=-1,
        )
        self.port = self.server.bind(50)
        self.server.open()

    def offer_file(self, disk: Disk, folder: str, size: int) -> None:
        """What Fetch answers with from now on."""
        self.file = FilePool(disk).open(Segment(folder, 0, size))
        self.file_bytes = size

    def gate(self, group: str) -> asyncio.Event:
        return self.gates.setdefault(group, asyncio.Event())

    async def close(self) -> None:
        await self.dispatcher.close()
        self.server.close()


def answer_versions(served: Served, request: m.ApiVersionsRequest, caller: Caller) -> m.ApiVersionsResponse:
    return api_versions.answer(served.routes, caller.api_version, supported={}, finalized={}, finalized_epoch=0)


def answer_metadata(served: Served, request: m.MetadataRequest, caller: Caller) -> m.MetadataResponse:
    name = request.topics[0].name if request.topics else ""
    served.asked.append(name or "")
    return m.MetadataResponse(cluster_id=name, controller_id=caller.api_version)


async def answer_heartbeat(served: Served, request: m.HeartbeatRequest, caller: Caller) -> m.HeartbeatResponse:
    served.asked.append(request.group_id)
    await served.gate(request.group_id).wait()
    return m.HeartbeatResponse(throttle_time_ms=request.generation_id)


def answer_fetch(served: Served, connection: Connection, version: int, frame: memoryview, body: int) -> None:
    head = struct.pack(">ii", 4 + served.file_bytes, connection.correlation_id)
    connection.reply([head, FilePart(served.file, 0, served.file_bytes, is_cold=False)])


def metadata(name: str) -> m.MetadataRequest:
    return m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name=name)])


def heartbeat(group: str, generation: int = 0) -> m.HeartbeatRequest:
    return m.HeartbeatRequest(group_id=group, generation_id=generation, member_id="m")
