"""The command, pointed at the shared nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.client.client_settings import ClientSettings
from barnabas.client.cluster import Cluster
from tests.clients.barnabas_command.command import Barnabas

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.peers import Peer


@pytest.fixture
def barnabas(group_node: Peer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Barnabas:
    return Barnabas(group_node, capsys, monkeypatch)


@pytest.fixture
def cluster(group_node: Peer) -> Iterator[Cluster]:
    with Cluster.connect(ClientSettings.from_options({"bootstrap.servers": group_node.bootstrap})) as connected:
        yield connected
