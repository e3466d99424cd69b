"""`quorum-state`: the epoch, its leader and this node's vote, in the JSON that Kafka writes (data version 1).

It must be durable before any vote is answered or any epoch led, so it is replaced as a whole: temporary file, fsync,
rename, fsync of the folder.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from barnabas.log.checkpoints import read_text, write_text
from barnabas.protocol.uuids import ZERO_UUID, from_text, to_text
from barnabas.raft.core import NO_NODE, HardState

if TYPE_CHECKING:
    from barnabas.ports import Disk

FILE_NAME = "quorum-state"
_DATA_VERSION = 1


class QuorumStateError(ValueError):
    """The file says something that this software cannot read, and guessing could let a node vote twice."""


def write_quorum_state(disk: Disk, folder: str, state: HardState) -> None:
    """Returns when the state is durable."""
    content = {
        "leaderId": state.leader_id,
        "leaderEpoch": state.epoch,
        "votedId": state.voted_id,
        "votedDirectoryId": to_text(state.voted_directory_id),
        "data_version": _DATA_VERSION,
    }
    write_text(disk, f"{folder}/{FILE_NAME}", json.dumps(content, separators=(",", ":")))


def read_quorum_state(disk: Disk, folder: str) -> HardState:
    """The state of the last run; that of a node that never ran where there is no file."""
    path = f"{folder}/{FILE_NAME}"
    text = read_text(disk, path)
    if not text:
        return HardState()
    try:
        content = json.loads(text)
        # Version 0, of a quorum whose voters are configured by hand, lacks the directory.
        directory = content.get("votedDirectoryId")
        return HardState(
            epoch=int(content["leaderEpoch"]),
            leader_id=int(content.get("leaderId", NO_NODE)),
            voted_id=int(content.get("votedId", NO_NODE)),
            voted_directory_id=from_text(directory) if directory else ZERO_UUID,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise QuorumStateError(
            f"{path} is not a quorum state ({error}): restore it, or remove the folder of the metadata log if this "
            "node is not the only one that has the metadata"
        ) from error
