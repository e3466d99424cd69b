"""Starts a node whose file is of the ZooKeeper era: it founds a cluster at `zookeeper.connect`, or joins the one there.

`config/meeting_point` decides; here an address is tried, the folder is asked what it remembers, and a node that joins
waits for the founder, learns the cluster's id from it, and formats its folders with it.

Nodes of one machine may be started at the same moment, and only one may found the cluster. So a node that is about to
do so first takes a lock of the machine, by the port, and keeps it for as long as it runs.
"""

from __future__ import annotations

import errno
import logging
import tempfile
import time
from typing import TYPE_CHECKING, Final

from barnabas.client.broker_connection import Connection, WireError
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.meeting_point import (
    CONNECT,
    MEMORY_FILE,
    Attempt,
    BindOutcome,
    EraRole,
    Meeting,
    addresses_to_bind,
    era_properties,
    format_memory,
    meet,
    parse_connect,
    parse_memory,
)
from barnabas.config.values import ConfigError
from barnabas.log.folder.checkpoints import read_text, replace_text
from barnabas.log.folder.meta_properties import META_PROPERTIES
from barnabas.node.format_folders import FormatError, FormatRequest, format_folders
from barnabas.ports import SystemClock, SystemDisk, SystemNetwork, SystemRandom
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.config.meeting_point import Memory
    from barnabas.config.quorum import QuorumServer

CONTROLLERS: Final = 2
"""The type of endpoints in DescribeCluster."""
RETRY_S: Final = 0.2
COMPLAINT_S: Final = 5.0

logger = logging.getLogger("barnabas.start")


def meet_at_connect(properties: Mapping[str, str]) -> tuple[BrokerConfig, list[str]]:
    """The configuration of this node in the cluster that it founds or joins, and warnings. Blocks until the founder of
    a cluster that it joins for the first time answers."""
    servers = parse_connect(properties[CONNECT])
    node_id, folder = _identity(properties, servers)
    remembered = _remembered(folder)
    meeting = meet(node_id, servers, remembered, _attempt(addresses_to_bind(servers, remembered)))
    complete, notes = era_properties(properties, meeting)
    config, warnings = BrokerConfig.from_properties(complete)
    logger.warning("%s", meeting.warning)
    if meeting.role is EraRole.BROKER:
        _join(config, meeting)
    if meeting.is_new:
        _remember(folder, meeting)
    return config, [*notes, *warnings]


def _identity(properties: Mapping[str, str], servers: Sequence[QuorumServer]) -> tuple[int, str]:
    """The node's id and the first of its folders, which do not depend on what it becomes."""
    complete, _ = era_properties(properties, Meeting(EraRole.BROKER, tuple(servers), is_new=True, warning=""))
    config, _ = BrokerConfig.from_properties(complete)
    return config.node_id, config.log_dirs[0]


def _remembered(folder: str) -> Memory | None:
    text = read_text(SystemDisk(), f"{folder}/{MEMORY_FILE}")
    if text is None:
        return None
    try:
        return parse_memory(text)
    except ValueError as error:
        raise ConfigError(CONNECT, f"{folder}: {error}") from None


def _remember(folder: str, meeting: Meeting) -> None:
    disk = SystemDisk()
    disk.make_folders(folder)
    replace_text(disk, f"{folder}/{MEMORY_FILE}", format_memory(meeting))


def _attempt(servers: Sequence[QuorumServer]) -> Attempt | None:
    """What became of the first of these addresses that is on this machine."""
    disk = SystemDisk()
    for server in servers:
        try:
            lock = disk.lock(f"{tempfile.gettempdir()}/barnabas-{CONNECT}-{server.port}.lock")
        except BlockingIOError:
            return Attempt(server, BindOutcome.IN_USE)
        try:
            SystemNetwork().listen(server.host, server.port, backlog=1).close()
        except OSError as error:
            disk.close(lock)
            if error.errno == errno.EADDRINUSE:
                return Attempt(server, BindOutcome.IN_USE)
            logger.debug("%s is not on this machine: %s", server, error)
        else:
            # The lock is given back by the end of the process.
            return Attempt(server, BindOutcome.BOUND)
    return None


def _join(config: BrokerConfig, meeting: Meeting) -> None:
    """Formats the folders of a broker for the cluster that it joins, when they are new."""
    disk = SystemDisk()
    if disk.exists(f"{config.log_dirs[0]}/{META_PROPERTIES}"):
        return
    request = FormatRequest(
        _cluster_id(meeting.servers), config.node_id, config.log_dirs, config.metadata_log_dir, ignore_formatted=True
    )
    try:
        for formatted in format_folders(request, disk=disk, clock=SystemClock(), random=SystemRandom()):
            logger.info("formatting %s for node %d of cluster %s", formatted.path, config.node_id, request.cluster_id)
    except FormatError as error:
        raise ConfigError(CONNECT, str(error)) from error


def _cluster_id(servers: Sequence[QuorumServer]) -> str:
    """The id of the cluster there, once one of these answers."""
    next_complaint = time.monotonic() + COMPLAINT_S
    while True:
        failures = []
        for server in servers:
            try:
                with Connection(server.host, server.port, timeout_s=COMPLAINT_S) as connection:
                    response: m.DescribeClusterResponse = connection.send(
                        m.DescribeClusterRequest(endpoint_type=CONTROLLERS)
                    )
            except WireError as error:
                failures.append(str(error))
                continue
            if response.error_code == Error.NONE and response.cluster_id:
                return response.cluster_id
            failures.append(f"{server} answered {Error(response.error_code).name}")
        if time.monotonic() >= next_complaint:
            next_complaint = time.monotonic() + COMPLAINT_S
            logger.warning(
                "%s: the founder of the cluster does not answer, still trying: %s", CONNECT, "; ".join(failures)
            )
        time.sleep(RETRY_S)
