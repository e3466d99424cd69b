"""What clusters of processes have in common, ours and Apache Kafka's: ports that are kept for their nodes, and an end
after which none of them is left."""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

HOST: Final = "127.0.0.1"


class NodeOfSeveral(Protocol):
    """A process that keeps its port and its folder when it is started again."""

    @property
    def is_running(self) -> bool: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...


N = TypeVar("N", bound=NodeOfSeveral)


class SeveralNodes(ABC, Generic[N]):
    """Nodes by their ids. They run for as long as a `with` block lasts; at its end they are stopped cleanly, or killed
    if it failed."""

    def __init__(self) -> None:
        self.nodes: dict[int, N] = {}

    def __getitem__(self, node_id: int) -> N:
        return self.nodes[node_id]

    @property
    def running(self) -> list[int]:
        return [node_id for node_id, node in self.nodes.items() if node.is_running]

    @abstractmethod
    def start(self) -> Self:
        """Formats the folders that are new, starts all nodes that do not run, and returns when they serve."""

    @abstractmethod
    def stop(self) -> None:
        """A clean stop of all nodes that run."""

    @abstractmethod
    def close(self) -> None:
        """Kills what still runs, and gives back what was held for the nodes."""

    def stop_node(self, node_id: int) -> None:
        """A clean stop of one node, which needs the others to be a quorum."""
        self.nodes[node_id].stop()

    def kill(self, *node_ids: int) -> None:
        """Ends nodes as abruptly as a power cut; without ids, all of them."""
        for node_id in node_ids or self.nodes:
            self.nodes[node_id].kill()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.stop()
        finally:
            self.close()


def reserved_port() -> socket.socket:
    """A socket bound to a free port, never listening: Linux lets a node listen there, and gives it to no one else."""
    reservation = socket.socket()
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reservation.bind((HOST, 0))
    return reservation
