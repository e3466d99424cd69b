"""An address that something listens on."""

from __future__ import annotations

from typing import NamedTuple


class Listener(NamedTuple):
    """A named listener and its address. `host` is without brackets; empty, it is the default interface."""

    name: str
    security_protocol: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"
