"""How many connections come in a second: to the broker, to a listener, and from an address."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from barnabas.protocol.config_resources import ResourceType
from barnabas.protocol.errors import Error
from tests.peers import HOST, running, wait_until
from tests.wire.connection import Connection
from tests.wire.test_client_quotas import CONNECTED, IP, Alteration, require_altered
from tests.wire.test_config_resources import DELETE, SET, change
from tests.wire.test_connection_limits import answers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.peers import Peer, PeerKind

RATE = 10
WINDOWS = {"quota.window.num": "2", "quota.window.size.seconds": "1"}
"""So many connections may come in each of the two windows before they are too many."""
MANY = 4 * RATE


@pytest.fixture(scope="module")
def rated_node(peer_kind: PeerKind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with running(peer_kind, tmp_path_factory.mktemp("rated"), WINDOWS) as node:
        yield node


def seconds_for_many(port: int) -> float:
    """How long many connections take to be served, one after the other."""
    begun = time.monotonic()
    for _ in range(MANY):
        with Connection(port) as connection:
            assert answers(connection)
    return time.monotonic() - begun


@pytest.mark.parametrize(
    "name", ["max.connection.creation.rate", "listener.name.plaintext.max.connection.creation.rate"]
)
def test_connections_that_come_too_often_wait(rated_node: Peer, name: str) -> None:
    port = rated_node.port
    with Connection(port) as connection:
        altered = change(connection, ResourceType.BROKER, "", {name: (SET, str(RATE))})
        assert altered.error_code == Error.NONE, altered.error_message
        wait_until(lambda: seconds_for_many(port) > (MANY - 2 * RATE) / RATE / 2, "connections have to wait")
        assert change(connection, ResourceType.BROKER, "", {name: (DELETE, None)}).error_code == Error.NONE
        wait_until(lambda: seconds_for_many(port) < (MANY - 2 * RATE) / RATE / 2, "they need not wait any more")


@pytest.mark.parametrize("address", [HOST, None], ids=["one address", "every address"])
def test_an_address_that_connects_too_often_is_refused(rated_node: Peer, address: str | None) -> None:
    with ExitStack() as opened:
        kept = opened.enter_context(Connection(rated_node.port))
        require_altered(kept, Alteration(((IP, address),), {CONNECTED: float(RATE)}))

        def is_one_refused() -> bool:
            for _ in range(MANY):
                with Connection(rated_node.port) as connection:
                    if not answers(connection):
                        return True
            return False

        wait_until(is_one_refused, "a connection is refused")
        assert answers(kept), "those that are there stay"
        require_altered(kept, Alteration(((IP, address),), {CONNECTED: None}))
        wait_until(lambda: not is_one_refused(), "none is refused any more")
