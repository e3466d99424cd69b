"""Where figures about a node are served (`barnabas.metrics.listener`), and those of several on one machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.config.values import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

METRICS_LISTENER: Final = "barnabas.metrics.listener"
PORT_MAX: Final = 65_535


def metrics_address(text: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`; a host in brackets is an IPv6 address."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > PORT_MAX:
        raise ConfigError(
            METRICS_LISTENER, f"{METRICS_LISTENER} is {text!r}: expected HOST:PORT, such as 127.0.0.1:9308"
        )
    return host.strip("[]"), int(port)


def metrics_listener_of(node_id: int, given: Mapping[str, str]) -> dict[str, str]:
    """The setting of one of several nodes that share a configuration: node 1 has the port, node 2 the next one."""
    text = given.get(METRICS_LISTENER)
    if not text:
        return {}
    host, port = metrics_address(text)
    port_here = port + node_id - 1 if port else 0
    return {METRICS_LISTENER: f"[{host}]:{port_here}" if ":" in host else f"{host}:{port_here}"}
