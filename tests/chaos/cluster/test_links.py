"""The links by themselves: who speaks is known, and what is cut does not pass, in the direction that was cut."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

import pytest

from barnabas.testing.several_nodes import reserved_port
from tests.chaos.cluster.links import HOST, Door, Links

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE, THERE = 1, 2
SILENCE_S, ANSWER_S = 0.5, 10.0
ECHO = """
import socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listener:
    print("ready", flush=True)
    while True:
        connection, _ = listener.accept()
        with connection:
            while data := connection.recv(65536):
                connection.sendall(data)
"""


class Between(NamedTuple):
    links: Links
    port: int
    """The door to node THERE."""
    there: subprocess.Popen[bytes]


@pytest.fixture
def between() -> Iterator[Between]:
    """Node THERE is a process that echoes, node HERE is this process."""
    with reserved_port() as behind, reserved_port() as door:
        target, entry = behind.getsockname()[1], door.getsockname()[1]
        process = subprocess.Popen([sys.executable, "-c", ECHO, str(target)], stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            pids = {HERE: os.getpid(), THERE: process.pid}
            doors = [Door(THERE, entry, target), Door(HERE, 0, 0)]
            with Links(doors, pids.get) as links:
                yield Between(links, entry, process)
        finally:
            process.kill()
            process.communicate()


def hears(connection: socket.socket, timeout_s: float) -> bytes:
    connection.settimeout(timeout_s)
    try:
        return connection.recv(100)
    except TimeoutError:
        return b""


def test_what_is_cut_one_way_arrives_after_it_is_healed(between: Between) -> None:
    links, port, _ = between
    with socket.create_connection((HOST, port)) as connection:
        connection.sendall(b"one")
        assert hears(connection, ANSWER_S) == b"one"
        links.cut((THERE, HERE))
        connection.sendall(b"two")
        assert hears(connection, SILENCE_S) == b""
        links.heal()
        assert hears(connection, ANSWER_S) == b"two"


def test_nobody_answers_a_connection_that_is_opened_across_a_cut(between: Between) -> None:
    links, port, _ = between
    links.cut((HERE, THERE))
    with socket.create_connection((HOST, port)) as connection:
        connection.sendall(b"hello")
        assert hears(connection, SILENCE_S) == b""
        links.heal((HERE, THERE))
        assert hears(connection, ANSWER_S) == b"hello"


def test_the_end_of_a_node_is_not_heard_across_a_cut(between: Between) -> None:
    links, port, _ = between
    with socket.create_connection((HOST, port)) as connection:
        connection.sendall(b"one")
        assert hears(connection, ANSWER_S) == b"one"
        links.cut((THERE, HERE))
        between.there.kill()
        connection.settimeout(SILENCE_S)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        links.heal()
        connection.settimeout(ANSWER_S)
        assert connection.recv(1) == b""


def test_slow_links_delay(between: Between) -> None:
    links, port, _ = between
    links.slow_down(SILENCE_S, (HERE, THERE))
    with socket.create_connection((HOST, port)) as connection:
        connection.sendall(b"slow")
        assert hears(connection, SILENCE_S / 2) == b""
        assert hears(connection, ANSWER_S) == b"slow"


def test_a_stranger_is_turned_away(between: Between) -> None:
    connect = f"socket.create_connection(('{HOST}', {between.port}), {ANSWER_S})"
    asked = f"import socket; print({connect}.recv(1))"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, check=True)
    assert done.stdout == b"b''\n"
