"""`barnabas start`: runs one node in the foreground, from the command line to a running server.

Standard output has one line, the addresses of the node once it is ready; programs that start a node wait for it. The
log goes to standard error. Nothing is imported here that the node itself does not need, because it counts towards its
start-up time.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
from typing import TYPE_CHECKING

from barnabas.cli.command_line import (
    DEFAULT_BOOTSTRAP_SERVER,
    DEFAULT_HOST,
    DEFAULT_PORT,
    CommandError,
    Parser,
    add_overrides,
    parse_address,
    positive_int,
)
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.listeners import require_plaintext, require_plaintext_quorum
from barnabas.config.meeting_point import is_of_the_era
from barnabas.config.metrics_listener import METRICS_LISTENER
from barnabas.config.properties import PropertiesError, parse_properties
from barnabas.config.startup import replace_broker_listeners
from barnabas.config.values import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from barnabas.net.endpoint import Listener
    from barnabas.node.process import Outside

DEFAULT_DATA_DIR = "./barnabas-data"
CLUSTER_PROPERTIES = "cluster.properties"
"""What `--nodes` leaves in its folder."""
LOG_LEVELS = ("debug", "info", "warning", "error")
DATE_FORMAT = "%Y-%m-%d %H:%M:%S"
EPILOG = """examples:
  barnabas start
  barnabas start --data-dir /var/lib/barnabas --listen 127.0.0.1:0 --set num.partitions=3
  barnabas start --config node.properties
  barnabas start --listen 0.0.0.0:9092 --set advertised.listeners=PLAINTEXT://my.host.name:9092

--listen takes HOST:PORT; PORT alone, for this machine only; or HOST alone, for port 9092. Port 0 is any free port.
0.0.0.0 is every interface, and advertised.listeners must then say which address clients are to use.
With --nodes, node 1 has that port, node 2 the next one, and so on; the ports of the controllers follow. The folder
remembers them. --metrics is counted up in the same way. A node that dies is started again.
An empty folder is formatted. SIGTERM or Ctrl-C stops the node cleanly; a second one stops it at once.
"""

logger = logging.getLogger("barnabas.start")


LOG_FORMATS = ("text", "json")


class LineFormatter(logging.Formatter):
    """`2026-01-31 12:00:00.123 INFO    node.node  text`; the component is the logger's name without `barnabas.`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03d %(levelname)-7s %(component)-16s %(message)s", DATE_FORMAT)

    def format(self, record: logging.LogRecord) -> str:
        record.component = record.name.removeprefix("barnabas.")
        return super().format(record)


class JsonFormatter(logging.Formatter):
    """A JSON object in each line: time (UTC), level, logger, message; error, with its trace, if there is one; and
    the fields of a request, if it is about one."""

    def format(self, record: logging.LogRecord) -> str:
        # Imported here, as most nodes write text.
        import json
        from datetime import UTC, datetime

        written = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "time": written.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        line |= getattr(record, "fields", {})
        return json.dumps(line, ensure_ascii=False)


def run(arguments: Sequence[str], *, outside: Outside | None = None) -> int:
    """`outside` is what the node has in place of the system's ports."""
    options = build_parser().parse(arguments)
    if options.metrics is not None:
        address = options.metrics if ":" in options.metrics else f"{DEFAULT_HOST}:{options.metrics}"
        options.overrides.append((METRICS_LISTENER, address))
    if options.nodes is not None:
        from barnabas.cli.supervisor.nodes_command import start_nodes

        return start_nodes(options)
    set_up_log(options.log_level, options.log_format)
    try:
        config, warnings = load_config(options)
        require_plaintext((*config.listeners, *config.controller_listeners))
        require_plaintext_quorum(config.quorum_listener)
    except ConfigError as error:
        raise CommandError(f"{error}{command_line_form(error, options)}") from error
    refuse_folder_of_cluster(config.log_dirs)
    for warning in warnings:
        logger.warning("%s", warning)
    return serve(config, outside)


def refuse_folder_of_cluster(folders: Iterable[str]) -> None:
    """Keeps one node from settling among the folders of several."""
    for folder in folders:
        if os.path.exists(f"{folder}/{CLUSTER_PROPERTIES}"):
            raise CommandError(f"{folder} has a cluster of several nodes: start it with --nodes, or use another folder")


def build_parser() -> Parser:
    parser = Parser("barnabas start", "Run a node in the foreground, or several as a cluster.", EPILOG)
    parser.add_argument(
        "--nodes",
        type=positive_int,
        metavar="N",
        help="run N nodes of one cluster on this machine, each in a folder and a process of its own; see below",
    )
    parser.add_argument("--data-dir", metavar="DIR", help=f"where all data is stored (default {DEFAULT_DATA_DIR})")
    parser.add_argument(
        "--listen",
        type=parse_listen_address,
        metavar="[HOST:]PORT",
        help=f"where clients connect (default {DEFAULT_BOOTSTRAP_SERVER}); see below",
    )
    parser.add_argument("--config", metavar="FILE", help="a properties file with Kafka's broker settings")
    add_overrides(parser, "a broker setting, which overrides the file; may be given several times")
    parser.add_argument(
        "--metrics",
        metavar="[HOST:]PORT",
        help=f"serve /metrics (for Prometheus), /health and /ready there; HOST is {DEFAULT_HOST} if it is not given",
    )
    parser.add_argument("--log-level", choices=LOG_LEVELS, default="info", help="(default info)")
    parser.add_argument(
        "--log-format",
        choices=LOG_FORMATS,
        default="text",
        help="how lines of the log are written; json has an object in each line (default text)",
    )
    return parser


def parse_listen_address(text: str) -> tuple[str, int]:
    """`:PORT` is refused: to some it means this machine only, to others every interface."""
    host, port = parse_address(text)
    if text.strip().rpartition("://")[2].startswith(":"):
        choice = f"{DEFAULT_HOST}:{port} for this machine only, 0.0.0.0:{port} for every interface"
        raise argparse.ArgumentTypeError(f"{text!r} has no host: use {choice}")
    return host, port


def command_line_form(error: ConfigError, options: argparse.Namespace) -> str:
    """If an address for clients is missing: how to give it without a properties file."""
    if error.key != "advertised.listeners":
        return ""
    port = DEFAULT_PORT if options.listen is None else options.listen[1]
    return f"; on the command line: --set advertised.listeners=PLAINTEXT://HOST:{port}"


def load_config(options: argparse.Namespace) -> tuple[BrokerConfig, list[str]]:
    """The node's configuration, and warnings. `--set` wins over `--listen` and `--data-dir`, and they over the file."""
    overrides = dict(options.overrides)
    if options.config is None:
        host, port = options.listen or parse_address(DEFAULT_BOOTSTRAP_SERVER)
        data_dir = options.data_dir or DEFAULT_DATA_DIR
        return BrokerConfig.for_single_node(data_dir=data_dir, host=host, port=port, overrides=overrides)
    properties = read_properties(options.config)
    words: dict[str, str] = {}
    if options.data_dir is not None:
        words["log.dirs"] = options.data_dir
    if options.listen is not None:
        words |= replace_broker_listeners(properties, *options.listen)
    if is_of_the_era(properties):
        from barnabas.cli.meeting import meet_at_connect

        return meet_at_connect({**properties, **words, **overrides})
    return BrokerConfig.from_properties(properties, words | overrides)


def read_properties(path: str) -> dict[str, str]:
    try:
        with open(path, encoding="utf-8") as file:
            return parse_properties(file.read())
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise CommandError(f"{path} is not UTF-8 text: {error}") from None
    except PropertiesError as error:
        raise CommandError(f"{path}, {error}") from None


def formatter(log_format: str) -> logging.Formatter:
    return JsonFormatter() if log_format == "json" else LineFormatter()


def set_up_log(level: str, log_format: str = "text") -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(log_format))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def serve(config: BrokerConfig, outside: Outside | None = None) -> int:
    """Runs the node until it is told to stop. An error that keeps it from starting becomes one line."""
    # Nothing of what is imported is garbage, so it is not looked through for any, neither now nor later.
    gc.disable()
    from barnabas.node import process
    from barnabas.node.start_errors import START_ERRORS

    gc.freeze()
    gc.enable()

    try:
        return process.run(config, on_ready=announce, on_broker_stopped=announce_broker_stopped, outside=outside)
    except OSError as error:
        raise CommandError(system_error_text(error)) from error
    except START_ERRORS as error:
        raise CommandError(str(error)) from error


def system_error_text(error: OSError) -> str:
    """The system's message without the error number, and the file that it is about."""
    text = error.strerror or str(error)
    return f"{error.filename}: {text}" if error.filename else text


def announce_broker_stopped() -> None:
    """The answer to SIGUSR1: the broker has left the cluster, the controller goes on."""
    print("barnabas broker stopped", flush=True, file=sys.stdout)


def announce(listeners: Iterable[Listener]) -> None:
    """Prints the one line on standard output, once clients can connect and are served."""
    print(f"barnabas ready: {','.join(map(str, listeners))}", flush=True, file=sys.stdout)
