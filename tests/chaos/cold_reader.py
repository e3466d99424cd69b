"""A process that reads a partition from its beginning to its end and throws away what it gets.

A process of its own, so that the one which measures has no part in its work. It says `reading` when the first bytes
have come, and at the end how many there were. Every batch of the partition has the same size and holds one record.

    python -m tests.chaos.cold_reader PORT TOPIC BATCH_BYTES
"""

from __future__ import annotations

import sys

from barnabas.protocol.uuids import ZERO_UUID
from tests.wire.connection import Connection, request_frame
from tests.wire.requests import Topic, fetch_request

FETCH_BYTES = 10_000_000
VERSION = 12


def main(port: int, topic: Topic, batch_bytes: int) -> None:
    buffer = bytearray(FETCH_BYTES + batch_bytes + 10_000)
    offset = read_bytes = 0
    with Connection(port, timeout_s=300) as connection:
        while True:
            wanted = fetch_request(topic, VERSION, offset=offset, partition_max_bytes=FETCH_BYTES)
            connection.send_bytes(request_frame(wanted, VERSION))
            size = _read_frame(connection, buffer)
            if read_bytes == 0:
                print("reading", flush=True)
            count = size // batch_bytes
            if count == 0:
                break
            read_bytes += count * batch_bytes
            offset += count
    print(read_bytes, flush=True)


def _read_frame(connection: Connection, buffer: bytearray) -> int:
    """Read one answer into the buffer and forget it; its size."""
    view = memoryview(buffer)
    filled = 0
    while filled < 4:
        filled += _receive(connection, view[filled:4])
    size = int.from_bytes(view[:4])
    filled = 0
    while filled < size:
        filled += _receive(connection, view[filled:size])
    return size


def _receive(connection: Connection, into: memoryview) -> int:
    count = connection.socket.recv_into(into)
    if count == 0:
        raise ConnectionError("the node closed the connection")
    return count


if __name__ == "__main__":
    main(int(sys.argv[1]), Topic(sys.argv[2], ZERO_UUID), int(sys.argv[3]))
