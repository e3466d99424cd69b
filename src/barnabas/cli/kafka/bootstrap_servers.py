"""The servers that a client is pointed at, checked as Java's clients check them before they connect."""

from __future__ import annotations

import re
import socket
from typing import Final

from barnabas.cli.kafka.java.java_log import log_warning
from barnabas.cli.kafka.tool import ToolError, ToolUsageError

_SERVER: Final = re.compile(r"(?:[0-9a-zA-Z\-%._]*://)?\[?(?P<host>[0-9a-zA-Z\-%._:]*)\]?:(?P<port>\d+)")
_PORT_END: Final = 1 << 16
_CLIENT_UTILS: Final = "org.apache.kafka.clients.ClientUtils"


def check_form(text: str | None) -> None:
    """ToolUsageError, in the words of the tools that look at `--bootstrap-server` themselves."""
    if not text:
        raise ToolUsageError("Error while validating the bootstrap address\n")
    if not all(_SERVER.fullmatch(server) for server in text.split(",")):
        raise ToolUsageError("Please provide valid host:port like host1:9091,host2:9092\n")


def check_names(text: str, client: str) -> None:
    """ToolError if no server has a name that leads anywhere: that will not pass by waiting. `client` is what would be
    made: `kafka consumer`."""
    found = False
    for server in [each.strip() for each in text.split(",") if each.strip()]:
        parts = _SERVER.fullmatch(server)
        if parts is None or int(parts["port"]) >= _PORT_END:
            raise _no_client(client, f"Invalid url in bootstrap.servers: {server}")
        try:
            socket.getaddrinfo(parts["host"], int(parts["port"]))
            found = True
        except OSError:
            log_warning(
                f"Couldn't resolve server {server} from bootstrap.servers as DNS resolution failed for {parts['host']}",
                _CLIENT_UTILS,
            )
    if not found:
        raise _no_client(client, "No resolvable bootstrap urls given in bootstrap.servers")


def _no_client(client: str, reason: str) -> ToolError:
    return ToolError(f"org.apache.kafka.common.KafkaException: Failed to construct {client}", hint=reason)
