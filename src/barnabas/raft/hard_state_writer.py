"""Makes the hard state durable in a thread, and lets the code that depends on it wait.

Nothing may leave this node that a state not yet durable promises: neither a vote nor a fetch in a new epoch. While one
state is being written, newer ones replace each other, and the newest is written next.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from barnabas.raft.folder.quorum_state import write_quorum_state

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.ports import Disk, ThreadPool
    from barnabas.raft.consensus.messages import HardState


class HardStateWriter:
    """Use it on one event loop."""

    def __init__(self, disk: Disk, folder: str, threads: ThreadPool, static_voters: Sequence[int]) -> None:
        """`static_voters` are the ids of the voters if these are not in the log."""
        self._disk = disk
        self._folder = folder
        self._threads = threads
        self._static_voters = static_voters
        self._newest: HardState | None = None
        """The state that is not durable yet, if there is one."""
        self._writing: asyncio.Task[None] | None = None

    @property
    def is_durable(self) -> bool:
        return self._newest is None

    def put(self, state: HardState) -> None:
        """This is the state from now on. It is written by whoever waits for it."""
        self._newest = state

    async def durable(self) -> None:
        """Returns when every state that was put until now is durable. OSError if that fails; the next one who waits
        has it tried again."""
        while self._newest is not None:
            if self._writing is None:
                self._writing = asyncio.create_task(self._write(), name="raft hard state")
            # Shielded: whoever stops waiting does not keep others from what they wait for.
            await asyncio.shield(self._writing)

    async def _write(self) -> None:
        state = self._newest
        assert state is not None
        try:
            await self._threads.run(write_quorum_state, self._disk, self._folder, state, self._static_voters)
        finally:
            self._writing = None
        if self._newest is state:
            self._newest = None

    async def close(self) -> None:
        if self._writing is not None:
            await asyncio.gather(self._writing, return_exceptions=True)
