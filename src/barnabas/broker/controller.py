"""The controller of a node, as the rest of the node sees it: opened, started, asked, stopped.

It runs in a thread with an event loop of its own (`controller_loop`), so that neither a slow disk nor a large fetch
delays a heartbeat, and nothing that it does delays a fetch.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import TYPE_CHECKING

from barnabas.broker.controller_loop import ControllerOptions, Environment, QuorumController, Reply
from barnabas.metadata import versions
from barnabas.metadata.controller.decide import refusal
from barnabas.metadata.replay import ReplayError
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error, KafkaError
from barnabas.protocol.uuids import to_text
from barnabas.raft.format import read_bootstrap
from barnabas.raft.log import MetadataLog, metadata_folder, read_folder
from barnabas.raft.loop_thread import LoopThread
from barnabas.raft.quorum_state import read_static_voters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.metadata.image import Endpoint
    from barnabas.metadata.versions import VersionedRecord
    from barnabas.protocol.structs import Message
    from barnabas.raft.log import FolderContent

__all__ = ["ControllerNode", "ControllerOptions", "Environment", "ForeignQuorumError", "Reply"]


class ForeignQuorumError(Exception):
    """The folder belongs to a quorum in which this node cannot act alone."""


class ControllerNode:
    """`open`, then `start`, then any number of `submit`s from any thread, then `stop`."""

    def __init__(self, options: ControllerOptions, environment: Environment) -> None:
        self._options = options
        self._environment = environment
        self._folder = metadata_folder(options.data_folder)
        self._content: FolderContent | None = None
        self._bootstrap: list[VersionedRecord] = []
        self._thread: LoopThread | None = None
        self._controller: QuorumController | None = None

    def open(self) -> None:
        """Reads the folder into the loader. Nothing is written yet, whatever the folder holds. May block.

        Raises NewerMetadataError, UnsupportedMetadataVersionError or ForeignQuorumError for a folder that this node
        must not serve, and ReplayError for one whose records contradict each other.
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
            self._environment.loader.restore(content.snapshot, content.batches)
        except ReplayError as error:
            raise ReplayError(f"{self._folder} cannot be read: {error}") from error
        self._content = content

    async def start(self, endpoints: Sequence[Endpoint]) -> None:
        """Begins to lead. `endpoints` says where the CONTROLLER listeners of this node are reached.

        Returns when the controller is active and registered.
        """
        assert self._content is not None, "open comes before start"
        self._thread = LoopThread("metadata quorum")
        try:
            await asyncio.wrap_future(self._thread.submit(self._start(self._content, endpoints)))
        except BaseException:
            await self.stop()
            raise
        self._content = None

    async def stop(self) -> None:
        """Ends the controller; what was appended is committed first. The log is left cleanly closed.

        Raises what kept the log from being closed; the thread has ended all the same.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            if self._controller is not None:
                await asyncio.wrap_future(thread.submit(self._controller.close()))
        finally:
            await asyncio.get_running_loop().run_in_executor(None, thread.stop)

    def submit(self, request: Message) -> Future[Reply]:
        """Hands a request to the controller, from any thread. Done when what it answers is committed."""
        if self._thread is None or self._controller is None:
            error = KafkaError(Error.NOT_CONTROLLER, "The controller of this node is not running.")
            reply: Future[Reply] = Future()
            reply.set_result(Reply(refusal(request, error), -1))
            return reply
        return self._thread.submit(self._controller.handle(request))

    async def handle(self, request: Message) -> Message:
        """The response to a request that came in by the CONTROLLER listener, on whatever loop that runs."""
        reply = await asyncio.wrap_future(self.submit(request))
        return reply.response

    async def _start(self, content: FolderContent, endpoints: Sequence[Endpoint]) -> None:
        # Repairing the log may take a while, but nobody else uses this thread yet.
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
                    f"meta.properties says {to_text(directory_id)}: was it copied from another folder?"
                )

    def _check_static_voters(self) -> None:
        if self._environment.disk.exists(self._folder):
            self._check_alone(read_static_voters(self._environment.disk, self._folder))

    def _check_alone(self, voter_ids: Sequence[int]) -> None:
        node_id = self._options.settings.node_id
        if any(voter_id != node_id for voter_id in voter_ids):
            ids = ", ".join(map(str, voter_ids))
            raise ForeignQuorumError(
                f"{self._folder} belongs to a quorum of the nodes {ids}, and this is node {node_id} alone"
            )
