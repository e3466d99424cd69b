"""`quorum-state`: the epoch, its leader and this node's vote, in Kafka's JSON format.

Data version 1 is for a quorum whose voters are in the log; with a static quorum, data version 0 lists the voters. The
file must be durable before this node grants a vote or leads an epoch, so it is replaced as a whole: temporary file,
fsync, rename, fsync of the folder.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from barnabas.log.folder.checkpoints import read_text, write_text
from barnabas.protocol.uuids import ZERO_UUID, from_text, to_text
from barnabas.raft.consensus.messages import NO_NODE, HardState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.ports import Disk

FILE_NAME = "quorum-state"


class QuorumStateError(ValueError):
    """The file cannot be parsed, and guessing its contents could let a node vote twice."""


def write_quorum_state(disk: Disk, folder: str, state: HardState, static_voters: Sequence[int] = ()) -> None:
    """Returns when the state is durable. `static_voters` are the voters of a static quorum."""
    content: dict[str, object] = {"leaderId": state.leader_id, "leaderEpoch": state.epoch, "votedId": state.voted_id}
    if static_voters:
        voters = [{"voterId": voter_id} for voter_id in static_voters]
        content = {"clusterId": "", **content, "appliedOffset": 0, "currentVoters": voters, "data_version": 0}
    else:
        content |= {"votedDirectoryId": to_text(state.voted_directory_id), "data_version": 1}
    write_text(disk, f"{folder}/{FILE_NAME}", json.dumps(content, separators=(",", ":")))


def read_quorum_state(disk: Disk, folder: str) -> HardState:
    """The state of the last run; the initial state if there is no file."""
    content = _read(disk, folder)
    if content is None:
        return HardState()
    try:
        directory = content.get("votedDirectoryId")
        return HardState(
            epoch=int(content["leaderEpoch"]),
            leader_id=int(content.get("leaderId", NO_NODE)),
            voted_id=int(content.get("votedId", NO_NODE)),
            voted_directory_id=from_text(directory) if directory else ZERO_UUID,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise _unreadable(folder, error) from error


def read_static_voters(disk: Disk, folder: str) -> tuple[int, ...]:
    """The voters of a static quorum, as of the last run; empty for any other quorum."""
    content = _read(disk, folder) or {}
    try:
        return tuple(int(voter["voterId"]) for voter in content.get("currentVoters") or ())
    except (ValueError, KeyError, TypeError) as error:
        raise _unreadable(folder, error) from error


def _read(disk: Disk, folder: str) -> dict[str, Any] | None:
    text = read_text(disk, f"{folder}/{FILE_NAME}")
    if not text:
        return None
    try:
        content = json.loads(text)
    except ValueError as error:
        raise _unreadable(folder, error) from error
    if not isinstance(content, dict):
        raise _unreadable(folder, TypeError("not an object"))
    return content


def _unreadable(folder: str, error: Exception) -> QuorumStateError:
    return QuorumStateError(
        f"{folder}/{FILE_NAME} is not a valid quorum state ({error}): restore it, or remove the folder of the metadata "
        "log if other nodes have the metadata too"
    )
