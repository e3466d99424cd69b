"""Clients that come all at once, while the node is busy with something else."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.nodes import Node
from tests.wire.connection import Connection

if TYPE_CHECKING:
    from pathlib import Path

CLIENTS = 300
SOONER_THAN_A_SECOND_TRY_SECONDS = 0.9
"""A connection that finds the queue full is tried again after a second."""


def test_hundreds_of_clients_find_room_while_the_node_does_not_accept(tmp_path: Path) -> None:
    with Node(tmp_path / "data") as node, ExitStack() as opened:
        os.kill(node.pid, signal.SIGSTOP)
        opened.callback(os.kill, node.pid, signal.SIGCONT)
        for _ in range(CLIENTS):
            opened.enter_context(socket.create_connection(("127.0.0.1", node.port), SOONER_THAN_A_SECOND_TRY_SECONDS))
        os.kill(node.pid, signal.SIGCONT)
        last = opened.enter_context(Connection(node.port))
        assert last.call(m.ApiVersionsRequest(), 0, m.ApiVersionsResponse).error_code == Error.NONE
