"""What `barnabas start --nodes N` does: lays the cluster out, formats it, and supervises its nodes."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.command_line import DEFAULT_BOOTSTRAP_SERVER, CommandError, UsageError, parse_address
from barnabas.cli.start_command import DEFAULT_DATA_DIR, formatter, read_properties, set_up_log, system_error_text
from barnabas.cli.supervisor.console import Console, JsonConsole
from barnabas.cli.supervisor.home import Home
from barnabas.cli.supervisor.supervision import NodePlan, Supervisor
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.cluster_layout import DECIDED, INTERNAL_REPLICATION_FACTORS, REPLICAS_MAX
from barnabas.config.settings import ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from barnabas.config.cluster_layout import Layout

SUPERVISOR = "nodes"

logger = logging.getLogger("barnabas.nodes")


class Log(NamedTuple):
    """What is logged, and how."""

    level: str
    format: str


class ConsoleHandler(logging.Handler):
    """The supervisor's own lines, among those of its nodes."""

    def __init__(self, console: Console | JsonConsole, log_format: str) -> None:
        super().__init__()
        self.setFormatter(formatter(log_format))
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        self._console.show(SUPERVISOR, self.format(record))


def start_nodes(options: argparse.Namespace) -> int:
    """Runs until the cluster is told to stop. Returns the exit code."""
    from_file = read_properties(options.config) if options.config is not None else {}
    given = {**from_file, **given_by_words(options.overrides)}
    try:
        home = Home(options.data_dir or DEFAULT_DATA_DIR)
        try:
            layout = home.layout(options.nodes, options.listen, parse_address(DEFAULT_BOOTSTRAP_SERVER))
            configs = home.configs(layout, given)
            parsed = check_configs(configs.values())
            home.remember(layout)
            home.write_configs(configs)
            home.format_nodes(layout)
            warnings = [*ignored_settings(from_file), *single_replicas(parsed)]
            return supervise(home, layout, Log(options.log_level, options.log_format), warnings)
        finally:
            home.close()
    except OSError as error:
        raise CommandError(system_error_text(error)) from error


def given_by_words(overrides: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The settings of `--set`, which must not contradict the layout."""
    given = dict(overrides)
    refused = sorted(DECIDED.intersection(given))
    if refused:
        raise UsageError(f"--set {refused[0]} cannot be used with --nodes, which decides it for every node")
    return given


def check_configs(configs: Iterable[Mapping[str, str]]) -> list[BrokerConfig]:
    """Finds a setting that no node can start with before anything is written."""
    try:
        return [BrokerConfig.from_properties(properties)[0] for properties in configs]
    except ConfigError as error:
        raise CommandError(str(error)) from error


def ignored_settings(from_file: Mapping[str, str]) -> Iterator[str]:
    if ignored := sorted(DECIDED.intersection(from_file)):
        yield f"ignoring {', '.join(ignored)} of the file: --nodes decides them for every node"


def single_replicas(configs: Sequence[BrokerConfig]) -> Iterator[str]:
    """Kafka's own server.properties is for one node: what it says of internal topics makes several less than one."""
    single = [name for name in INTERNAL_REPLICATION_FACTORS if configs[0].get(name) == 1]
    if single and len(configs) > 1:
        yield (
            f"{' and '.join(f'{name} is 1' for name in single)}: what these internal topics have is on one node only; "
            "while that one is down, its groups and transactions wait for it, and what it loses is lost. Without these "
            f"settings there are {min(REPLICAS_MAX, len(configs))} replicas, in topics that do not exist yet"
        )


def supervise(home: Home, layout: Layout, log: Log, warnings: Iterable[str]) -> int:
    plans = [
        NodePlan(f"node-{node_id}", node_command(home.config_file(node_id), log), layout.is_voter(node_id))
        for node_id in layout.node_ids
    ]
    names = [*(plan.name for plan in plans), SUPERVISOR]
    console = JsonConsole(sys.stderr) if log.format == "json" else Console(sys.stderr, names)
    set_up_log(log.level)
    logging.getLogger().handlers[:] = [ConsoleHandler(console, log.format)]
    for warning in warnings:
        logger.warning("%s", warning)
    return asyncio.run(Supervisor(plans, console, lambda: note_service(home, layout), lambda: announce(layout)).run())


def node_command(config_file: str, log: Log) -> tuple[str, ...]:
    words = ("--config", config_file, "--log-level", log.level, "--log-format", log.format)
    return (sys.executable, "-m", "barnabas", "start", *words)


def note_service(home: Home, layout: Layout) -> None:
    try:
        home.note_service(layout)
    except OSError as error:
        # The nodes serve, and are worth more than the note: the next start writes it.
        logger.error("cannot record in %s that the cluster has been in use: %s", home.path, system_error_text(error))


def announce(layout: Layout) -> None:
    """The one line on standard output, once all nodes serve."""
    print(f"barnabas ready: {layout.bootstrap}", flush=True)
