"""Brokers whose folders are looked into."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

from bench import nodes
from bench.nodes import Node, Side

if TYPE_CHECKING:
    from pathlib import Path


class FolderNode(Node, Protocol):
    """Either broker's test process has its data in one folder."""

    @property
    def data_dir(self) -> Path: ...


BARNABAS = cast("Side[FolderNode]", nodes.BARNABAS)
APACHE_KAFKA = cast("Side[FolderNode]", nodes.APACHE_KAFKA)
