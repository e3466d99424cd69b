"""The cluster that a command asks and changes: found by its flags, its refusals as one readable line.

The first contact is quick to fail: somebody who mistyped an address should learn it now, and not after the minute for
which a client puts up with a cluster that restarts.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from barnabas.cli.cluster_connection import connect
from barnabas.cli.command_line import CommandError, UsageError, add_bootstrap_server
from barnabas.client.client_settings import ClientSettings, SettingsError
from barnabas.client.cluster import Cluster
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from barnabas.cli.command_line import Parser

PATIENCE_MS: Final = 15_000
"""How long one question may take with all its tries."""


def add_cluster_arguments(parser: Parser) -> None:
    """What every command takes that asks a cluster and prints what it says."""
    add_bootstrap_server(parser)
    parser.add_argument(
        "--client-config", metavar="FILE", help="a properties file with a client's settings, such as those for TLS"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


@contextlib.contextmanager
def cluster_of(options: argparse.Namespace) -> Iterator[Cluster]:
    """The cluster, for the time of the block. What it refuses in there fails the command."""
    settings = _settings(options)
    connect(options.bootstrap_server).close()
    with failing_in_one_line(), Cluster.connect(settings) as cluster:
        yield cluster


@contextlib.contextmanager
def failing_in_one_line() -> Iterator[None]:
    try:
        yield
    except KafkaError as failure:
        raise CommandError(refusal_text(failure)) from failure


def refusal_text(failure: KafkaError) -> str:
    """The name of the error, by which people search for it, and what it is about."""
    if failure.error is Error.NETWORK_EXCEPTION:
        return failure.message
    return str(failure)


def _settings(options: argparse.Namespace) -> ClientSettings:
    from barnabas.cli.start_command import read_properties

    given = {} if options.client_config is None else read_properties(options.client_config)
    named = {"client.id": "barnabas-cli", **given, "bootstrap.servers": options.bootstrap_server}
    try:
        settings = ClientSettings.from_options(named)
    except SettingsError as error:
        raise UsageError(f"{options.client_config or options.bootstrap_server}: {error}") from None
    return replace(settings, default_api_timeout_ms=min(settings.default_api_timeout_ms, PATIENCE_MS))
