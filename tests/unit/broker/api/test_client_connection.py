"""What handlers keep of a client's last requests lives as long as its connection, and no longer."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, cast

from barnabas.broker.api.client_connection import ClientConnection
from barnabas.net.endpoint import Listener
from barnabas.net.listener import ConnectionCensus, ConnectionLimits, ListenerServer
from barnabas.ports import SystemNetwork

UNLIMITED = 1 << 31


def test_a_listener_makes_the_connections_it_is_told_to_and_a_closed_one_keeps_nothing() -> None:
    async def scenario() -> None:
        came: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        server = ListenerServer(
            asyncio.get_running_loop(),
            SystemNetwork(),
            Listener("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 0),
            lambda connection, _: came.set_result(connection),
            ConnectionLimits(UNLIMITED, UNLIMITED, {}, 600),
            ConnectionCensus(),
            max_connections=UNLIMITED,
            max_frame_bytes=1024,
            max_buffered_bytes=-1,
            make_connection=ClientConnection,
        )
        port = server.bind(50)
        server.open()
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"\0\0\0\x04ping")
            connection = await asyncio.wait_for(came, 10)
            assert isinstance(connection, ClientConnection)
            connection.last_fetch = cast("Any", object())
            connection.last_commit = cast("Any", object())
            server.close()
        assert connection.is_closed
        assert connection.last_fetch is None
        assert connection.last_commit is None

    asyncio.run(scenario())
