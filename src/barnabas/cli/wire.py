"""What the commands over the wire client share: finding a broker that answers, and errors as text for a person."""

from __future__ import annotations

import argparse

from barnabas.cli.arguments import parse_addresses
from barnabas.cli.errors import CommandError, UsageError
from barnabas.client.wire import ConnectError, Connection
from barnabas.protocol.errors import Error


def connect(bootstrap_server: str) -> Connection:
    """A connection to the first of the given addresses that takes one."""
    try:
        addresses = parse_addresses(bootstrap_server)
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"--bootstrap-server: {error}") from None
    failures = []
    for host, port in addresses:
        try:
            return Connection(host, port, client_id="barnabas-cli")
        except ConnectError as error:
            failures.append(str(error))
    reasons = "; ".join(failures) or "--bootstrap-server names no address"
    raise CommandError(f"{reasons} (`barnabas start` starts a node)")


def error_text(code: int, message: str | None) -> str:
    """An error code of Kafka's under its name, with what the broker had to say about it."""
    try:
        name = Error(code).name
    except ValueError:
        name = f"error code {code}"
    return f"{name}: {message}" if message else name
