"""The controller as the rest of the node sees it: it is opened, started, sent requests and stopped.

It runs in a thread with an event loop of its own (`quorum_controller`) and serves its own listener there, so that
neither a slow disk nor a large fetch delays a heartbeat, and nothing the controller does delays a fetch.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, Protocol

from barnabas.controller.quorum_controller import ControllerOptions, Environment, QuorumController, Reply
from barnabas.metadata import versions
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error, KafkaError
from barnabas.protocol.refusals import refusal
from barnabas.protocol.uuids import ZERO_UUID, to_text
from barnabas.raft.consensus.voter_sets import VOTERS_IN_LOG, Voter, VoterNode, VoterSet
from barnabas.raft.current_leader import CurrentLeader
from barnabas.raft.folder.format import BOOTSTRAP_FILE, read_bootstrap
from barnabas.raft.folder.metadata_log import MetadataLog, metadata_folder
from barnabas.raft.folder.quorum_state import read_static_voters
from barnabas.raft.quorum_client import read_quorum

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.metadata.image import Endpoint
    from barnabas.metadata.versions import VersionedRecord
    from barnabas.ports import Disk, LoopThread
    from barnabas.protocol.compiler.structs import Message
    from barnabas.raft.quorum_client import OpenedQuorum, QuorumClient, QuorumSettings

__all__ = [
    "ControllerNode",
    "ControllerOptions",
    "Environment",
    "ForeignQuorumError",
    "Reply",
]


class ForeignQuorumError(Exception):
    """The folder belongs to a quorum that this node cannot be a part of."""


class OwnQuorum(NamedTuple):
    """What the folder of a controller says of its quorum."""

    opened: OpenedQuorum
    settings: QuorumSettings
    """Those that were given, or those of a node that is alone."""
    bootstrap: list[VersionedRecord]
    """For the first leader to append."""


class ControllerListeners(Protocol):
    """The listeners of a controller. Both methods are called on its loop."""

    def open(self, controller: QuorumController) -> None: ...

    async def close(self) -> None: ...


class ControllerNode:
    """Call `open`, then `start`, then `ask` any number of times from any event loop, then `stop`, which also ends the
    thread."""

    def __init__(self, options: ControllerOptions, environment: Environment, thread: LoopThread) -> None:
        self._options = options
        self._environment = environment
        self._folder = metadata_folder(options.data_folder)
        self._opened: OpenedQuorum | None = None
        self.current_leader = CurrentLeader()
        """Who leads the metadata quorum. May be followed from any event loop."""
        self._bootstrap: list[VersionedRecord] = []
        self._thread: LoopThread | None = thread
        self._controller: QuorumController | None = None
        self._listeners: ControllerListeners | None = None
        self.is_alone = False
        """Whether this node is the only voter, as of `open`."""

    def open(self) -> None:
        """Reads the folder into the image publisher. Never writes to the folder. May block.

        Raises NewerMetadataError, UnsupportedMetadataVersionError or ForeignQuorumError if this node must not use the
        folder, and ReplayError if its records contradict each other.
        """
        options = self._options
        local = Voter(options.settings.node_id, options.directory_id)
        own = read_own_quorum(self._environment.disk, options.data_folder, local, options.quorum)
        self._options = options = options._replace(quorum=own.settings)
        self._bootstrap = own.bootstrap
        opened = self._opened = own.opened
        self._environment.publisher.restore(self._folder, opened.content.snapshot, opened.committed)
        self.is_alone = opened.is_alone
        if not opened.is_alone:
            # Another voter may have led, and heard of this broker's last incarnation, since this node last did.
            self._options = options._replace(settings=options.settings._replace(sole_broker_id=None))

    async def start(self, endpoints: Sequence[Endpoint], listeners: ControllerListeners | None = None) -> None:
        """Starts the controller and returns when it knows what is committed: a sole voter when it is active and
        registered, any other when it has caught up with the leader.

        `endpoints` are the advertised addresses of this node's CONTROLLER listeners. `listeners` are opened as soon as
        requests can be answered: a quorum of several comes about only by these.
        """
        assert self._opened is not None, "open comes before start"
        assert self._thread is not None, "stopped"
        try:
            await asyncio.wrap_future(self._thread.submit(self._start(self._opened, endpoints, listeners)))
        except (Exception, asyncio.CancelledError):
            await self.stop()
            raise
        self._opened = None

    async def stop(self) -> None:
        """Stops the controller after committing what was appended, and closes the log cleanly.

        A leader hands over first, and only then are its listeners closed: until another node leads, it may need this
        one's vote. If the log cannot be closed, raises the error, but the thread has ended all the same.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            if self._controller is not None:
                await asyncio.wrap_future(thread.submit(self._close(self._controller)))
        finally:
            await thread.stop()

    async def ask(self, request: Message) -> Reply:
        """Hands a request to the controller, from any event loop. Returns when the decision is committed."""
        if self._thread is None or self._controller is None:
            error = KafkaError(Error.NOT_CONTROLLER, "The controller of this node is not running.")
            return Reply(refusal(request, error), -1)
        return await asyncio.wrap_future(self._thread.submit(self._controller.handle(request)))

    @property
    def begun(self) -> QuorumController | None:
        """The controller on the quorum's loop, once it has been made."""
        return self._controller

    @property
    def quorum(self) -> QuorumController:
        """The controller that the handlers of the CONTROLLER listener use, on its own loop."""
        assert self._controller is not None, "not started"
        return self._controller

    @property
    def quorum_client(self) -> QuorumClient | None:
        """This node's part in the quorum; None before it has started."""
        return None if self._controller is None else self._controller.quorum_client

    async def _start(
        self,
        opened: OpenedQuorum,
        endpoints: Sequence[Endpoint],
        listeners: ControllerListeners | None,
    ) -> None:
        # Repairing the log may block for a while, but nothing else runs on this thread yet.
        environment = self._environment
        log = MetadataLog.open(
            self._folder, opened.content, self._options.limits, disk=environment.disk, clock=environment.clock
        )
        self._controller = QuorumController(
            self._options,
            environment,
            opened,
            log,
            endpoints=endpoints,
            bootstrap=self._bootstrap,
            current_leader=self.current_leader,
        )
        if listeners is not None:
            listeners.open(self._controller)
            self._listeners = listeners
        await self._controller.start()

    async def _close(self, controller: QuorumController) -> None:
        await controller.hand_over()
        if self._listeners is not None:
            await self._listeners.close()
        await controller.close()


def read_own_quorum(disk: Disk, data_folder: str, local: Voter, settings: QuorumSettings) -> OwnQuorum:
    """Reads the metadata of a data folder and checks that it is of a quorum that this node can be a part of. Never
    writes. May block.

    Raises what `read_quorum` does, ForeignQuorumError, and UnsupportedMetadataVersionError for bootstrap.checkpoint.
    """
    if not settings.static_voters and not settings.bootstrap_servers:
        # Unless the log says otherwise, a node that is told of nobody else is alone.
        settings = settings._replace(static_voters=(VoterNode(local.id, ZERO_UUID, ()),))
    folder = metadata_folder(data_folder)
    opened = read_quorum(disk, folder, local, settings)
    _check_voters(folder, local, opened.voters.latest.voters, settings)
    if opened.voters.latest.kraft_version < VOTERS_IN_LOG:
        _check_static_voters(disk, folder, local.id, settings)
    bootstrap = read_bootstrap(disk, data_folder)
    for record in bootstrap:
        if isinstance(record.message, m.FeatureLevelRecord):
            try:
                versions.check_supported(record.message.name, record.message.feature_level)
            except versions.UnsupportedMetadataVersionError as error:
                raise error.at(f"{data_folder}/{BOOTSTRAP_FILE}") from error
    return OwnQuorum(opened, settings, bootstrap)


def _check_voters(folder: str, local: Voter, voters: VoterSet, settings: QuorumSettings) -> None:
    """A node that does not vote has to be told where those are that do."""
    if voters.matching(local) is not None or settings.bootstrap_servers:
        return
    voter = voters.get(local.id)
    if voter is not None:
        raise ForeignQuorumError(
            f"{folder} belongs to node {local.id} with directory.id {to_text(voter.directory_id)}, but "
            f"meta.properties has {to_text(local.directory_id)}: was it copied from another folder?"
        )
    ids = ", ".join(map(str, voters.ids))
    raise ForeignQuorumError(
        f"{folder} belongs to a quorum of the voters {ids}, but this is node {local.id}, and their "
        "addresses are not configured: set controller.quorum.bootstrap.servers, or use another folder"
    )


def _check_static_voters(disk: Disk, folder: str, node_id: int, settings: QuorumSettings) -> None:
    """Voters that the configuration names cannot be others than before: two majorities could come about."""
    before = read_static_voters(disk, folder) if disk.exists(folder) else ()
    named = sorted(voter.id for voter in settings.static_voters)
    if before and sorted(before) != named:
        raise ForeignQuorumError(
            f"{folder} belongs to a quorum of the voters {', '.join(map(str, before))}, but this is node "
            f"{node_id}, and by controller.quorum.voters the voters are {', '.join(map(str, named))}: use another "
            "folder, or name the same voters"
        )
