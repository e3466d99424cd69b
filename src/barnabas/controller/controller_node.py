"""The controller as the rest of the node sees it: it is opened, started, sent requests and stopped.

It runs in a thread with an event loop of its own (`quorum_controller`) and serves its own listener there, so that
neither a slow disk nor a large fetch delays a heartbeat, and nothing the controller does delays a fetch.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from barnabas.controller.quorum_controller import ControllerOptions, Environment, QuorumController, Reply
from barnabas.metadata import versions
from barnabas.metadata.replay import ReplayError
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error, KafkaError
from barnabas.protocol.refusals import refusal
from barnabas.protocol.uuids import to_text
from barnabas.raft.format import read_bootstrap
from barnabas.raft.metadata_log import MetadataLog, metadata_folder, read_folder
from barnabas.raft.quorum_state import read_static_voters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.metadata.image import Endpoint
    from barnabas.metadata.versions import VersionedRecord
    from barnabas.ports import LoopThread
    from barnabas.protocol.compiler.structs import Message
    from barnabas.raft.image_publisher import ImagePublisher
    from barnabas.raft.metadata_log import FolderContent

__all__ = [
    "ControllerNode",
    "ControllerOptions",
    "Environment",
    "ForeignQuorumError",
    "LocalControllerChannel",
    "Reply",
]


class ForeignQuorumError(Exception):
    """The folder belongs to a quorum of which this node is not the only voter."""


class ControllerNode:
    """Call `open`, then `start`, then `ask` any number of times from any event loop, then `stop`, which also ends the
    thread."""

    def __init__(self, options: ControllerOptions, environment: Environment, thread: LoopThread) -> None:
        self._options = options
        self._environment = environment
        self._folder = metadata_folder(options.data_folder)
        self._content: FolderContent | None = None
        self._bootstrap: list[VersionedRecord] = []
        self._thread: LoopThread | None = thread
        self._controller: QuorumController | None = None

    def open(self) -> None:
        """Reads the folder into the image publisher. Never writes to the folder. May block.

        Raises NewerMetadataError, UnsupportedMetadataVersionError or ForeignQuorumError if this node must not use the
        folder, and ReplayError if its records contradict each other.
        """
        disk = self._environment.disk
        content = read_folder(disk, self._folder)
        self._check_voters(content)
        self._check_static_voters()
        self._bootstrap = read_bootstrap(disk, self._options.data_folder)
        for record in self._bootstrap:
            if isinstance(record.message, m.FeatureLevelRecord):
                versions.check_supported(record.message.name, record.message.feature_level)
        try:
            self._environment.publisher.restore(content.snapshot, content.batches)
        except ReplayError as error:
            raise ReplayError(f"{self._folder} cannot be read: {error}") from error
        self._content = content

    async def start(self, endpoints: Sequence[Endpoint]) -> None:
        """Starts the controller and returns when it is active and registered.

        `endpoints` are the advertised addresses of this node's CONTROLLER listeners.
        """
        assert self._content is not None, "open comes before start"
        assert self._thread is not None, "stopped"
        try:
            await asyncio.wrap_future(self._thread.submit(self._start(self._content, endpoints)))
        except BaseException:
            await self.stop()
            raise
        self._content = None

    async def stop(self) -> None:
        """Stops the controller after committing what was appended, and closes the log cleanly.

        If the log cannot be closed, raises the error, but the thread has ended all the same.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            if self._controller is not None:
                await asyncio.wrap_future(thread.submit(self._controller.close()))
        finally:
            await thread.stop()

    async def ask(self, request: Message) -> Reply:
        """Hands a request to the controller, from any event loop. Returns when the decision is committed."""
        if self._thread is None or self._controller is None:
            error = KafkaError(Error.NOT_CONTROLLER, "The controller of this node is not running.")
            return Reply(refusal(request, error), -1)
        return await asyncio.wrap_future(self._thread.submit(self._controller.handle(request)))

    @property
    def quorum(self) -> QuorumController:
        """The controller that the handlers of the CONTROLLER listener use, on its own loop."""
        assert self._controller is not None, "not started"
        return self._controller

    async def _start(self, content: FolderContent, endpoints: Sequence[Endpoint]) -> None:
        # Repairing the log may block for a while, but nothing else runs on this thread yet.
        environment = self._environment
        log = MetadataLog.open(
            self._folder, content, self._options.limits, disk=environment.disk, clock=environment.clock
        )
        self._controller = QuorumController(
            self._options, environment, content, log, endpoints=endpoints, bootstrap=self._bootstrap
        )
        await self._controller.start()

    def _check_voters(self, content: FolderContent) -> None:
        node_id, directory_id = self._options.settings.node_id, self._options.directory_id
        self._check_alone([voter.id for voter in content.voters])
        for voter in content.voters:
            if voter.directory_id != directory_id:
                raise ForeignQuorumError(
                    f"{self._folder} belongs to node {node_id} with directory.id {to_text(voter.directory_id)}, but "
                    f"meta.properties has {to_text(directory_id)}: was it copied from another folder?"
                )

    def _check_static_voters(self) -> None:
        if self._environment.disk.exists(self._folder):
            self._check_alone(read_static_voters(self._environment.disk, self._folder))

    def _check_alone(self, voter_ids: Sequence[int]) -> None:
        node_id = self._options.settings.node_id
        if any(voter_id != node_id for voter_id in voter_ids):
            ids = ", ".join(map(str, voter_ids))
            raise ForeignQuorumError(
                f"{self._folder} belongs to a quorum of the voters {ids}, but this is node {node_id}, and clusters of "
                "several nodes are not supported yet: use another folder"
            )


class LocalControllerChannel:
    """The broker's channel to the controller in the same process. Use it only on the loop that the publisher is
    attached to."""

    def __init__(self, controller: ControllerNode, publisher: ImagePublisher) -> None:
        self._controller = controller
        self._publisher = publisher

    async def send(self, request: Message) -> Any:
        reply = await self._controller.ask(request)
        await self._publisher.wait_for_offset(reply.offset)
        return reply.response
