"""A connection that ends while its backlog is sent handles no further request, and keeps no file."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING

from barnabas.log.segments.open_files import FilePool
from barnabas.log.segments.segment import Segment
from barnabas.net.connection import MAX_IN_FLIGHT, Connection, Slot
from barnabas.net.parts import FilePart
from barnabas.ports import SystemDisk
from tests.unit.net.test_connection import Served, framed, run, until

if TYPE_CHECKING:
    from pathlib import Path


def test_no_request_is_handled_after_sending_found_the_client_gone(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / f"{0:020d}.log"
        path.write_bytes(b"x" * 100_000)
        pool = FilePool(SystemDisk())
        file = pool.open(Segment(str(tmp_path), 0, 100_000))
        after_close: list[bytes] = []
        slots: list[Slot] = []
        ended = asyncio.Event()

        def handler(connection: Connection, frame: memoryview) -> None:
            body = bytes(frame)
            if connection.is_closed:
                after_close.append(body)
            if body == b"hold":
                slots.append(connection.reserve())
                if len(slots) == MAX_IN_FLIGHT:
                    # What the kernel says when the client has reset the connection.
                    stream = connection._sock
                    assert isinstance(stream, socket.socket)
                    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    stream.shutdown(socket.SHUT_WR)
                    ended.set()
            elif body == b"file":
                connection.reply([FilePart(file, 0, 100_000, is_cold=False)])
            else:
                connection.reply_bytes(framed(b"early"))

        served = Served(handler)
        _, writer = await served.client()
        writer.write(framed(b"early") + framed(b"hold") * MAX_IN_FLIGHT + framed(b"file") * 3)
        await asyncio.wait_for(ended.wait(), 10)
        await until(lambda: not served.server.connections)
        assert after_close == []
        pool.close(file)
        assert file.fd == -1, "nobody holds the file any more"
        writer.close()
        served.server.close()

    run(scenario)
