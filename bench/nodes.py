"""The brokers under comparison, each a process with its default settings behind the same few calls."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from tools import apache_kafka

from barnabas.testing import node_process as barnabas_node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

HOST = "127.0.0.1"


class Startable(Protocol):
    """What is compared: a broker, or a cluster of several."""

    def start(self) -> object: ...
    def stop(self) -> None: ...


N = TypeVar("N", bound=Startable)


class Node(Startable, Protocol):
    """A broker process that can be ended and started again on its folder."""

    @property
    def port(self) -> int: ...
    @property
    def bootstrap(self) -> str: ...
    @property
    def pid(self) -> int: ...
    def kill(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Side(Generic[N]):
    """One side of the comparison: its name in the table, how to make a node that is yet to be started, and which
    processes it then has."""

    label: str
    make: Callable[[Path], AbstractContextManager[N]]
    pids: Callable[[N], Sequence[int]]


@contextlib.contextmanager
def _barnabas(data_dir: Path) -> Iterator[Node]:
    node = barnabas_node.Node(data_dir, host=HOST)
    try:
        yield node
    finally:
        node.kill()


@contextlib.contextmanager
def _apache_kafka(data_dir: Path) -> Iterator[Node]:
    """The folder is formatted beforehand: a separate command there, and so no part of a start."""
    node = apache_kafka.KafkaNode(data_dir, flags=apache_kafka.SERVER_FLAGS)
    try:
        node.format_if_empty()
        yield node
    finally:
        node.kill()
        node.close()


def _its_process(node: Node) -> Sequence[int]:
    return [node.pid]


BARNABAS = Side("Barnabas", _barnabas, _its_process)
APACHE_KAFKA = Side("Kafka", _apache_kafka, _its_process)
