"""`barnabas stop`: ends nodes of this machine cleanly, by their data folders, and waits until they have ended."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from barnabas.cli.command_line import EXIT_FAILED, EXIT_OK, CommandError, Parser, UsageError, seconds
from barnabas.cli.local.local_nodes import CLUSTER, LocalNode, holder_of, node_at, running_nodes
from barnabas.cli.local.status_command import require_data_folder
from barnabas.cli.output import print_json
from barnabas.cli.start_command import CLUSTER_PROPERTIES, DEFAULT_DATA_DIR

if TYPE_CHECKING:
    from collections.abc import Sequence

POLL_S = 0.05
EPILOG = f"""examples:
  barnabas stop                      # the node in {DEFAULT_DATA_DIR}
  barnabas stop /var/lib/barnabas
  barnabas stop --all                # every node of this machine that is yours

A node hands over what it leads, writes everything and ends; this waits until it has. A cluster of `barnabas start
--nodes` is stopped as a whole, by its folder. Apache Kafka's nodes are stopped too if their folder is named.
exit codes: 0 all have ended, 1 one did not run, or has not ended in time, 2 the command line is wrong
"""


def run(arguments: Sequence[str]) -> int:
    options = build_parser().parse(arguments)
    if options.all and options.folders:
        raise UsageError("--all is every node: name no folders beside it")
    nodes = all_nodes() if options.all else [node_in(folder) for folder in options.folders or [DEFAULT_DATA_DIR]]
    for node in nodes:
        terminate(node, signal.SIGTERM)
    deadline = time.monotonic() + options.timeout
    failed = False
    stopped = []
    for node in nodes:
        started = time.monotonic()
        if not has_ended(node, deadline):
            if not options.kill:
                failed = True
                print(
                    f"barnabas: {node.home} has not stopped within {options.timeout:g} s; process {node.pid} goes on "
                    "stopping (--kill ends it at once)",
                    file=sys.stderr,
                )
                continue
            terminate(node, signal.SIGKILL)
            has_ended(node, time.monotonic() + options.timeout)
        stopped.append(node)
        if not options.json:
            print(f"stopped {node.home} (process {node.pid}) in {time.monotonic() - started:.1f} s", flush=True)
    if options.json:
        print_json([{"pid": node.pid, "folders": list(node.folders)} for node in stopped])
    return EXIT_FAILED if failed else EXIT_OK


def build_parser() -> Parser:
    parser = Parser("barnabas stop", "Stop nodes that run on this machine, cleanly.", EPILOG)
    parser.add_argument(
        "folders", metavar="DIR", nargs="*", help=f"a data folder of a node (default {DEFAULT_DATA_DIR})"
    )
    parser.add_argument("--all", action="store_true", help="every node of Barnabas on this machine")
    parser.add_argument(
        "--timeout", type=seconds, default=60.0, metavar="SECONDS", help="how long to wait (default 60)"
    )
    parser.add_argument("--kill", action="store_true", help="kill what has not ended by then: its start recovers")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def node_in(folder: str) -> LocalNode:
    require_data_folder(folder)
    node = node_at(folder)
    if node is None:
        raise CommandError(f"no node runs in {folder}")
    refuse_one_of_several(folder)
    return node


def refuse_one_of_several(folder: str) -> None:
    """A node that `start --nodes` runs is started again when it ends."""
    home = os.path.dirname(os.path.realpath(folder))
    if os.path.exists(f"{home}/{CLUSTER_PROPERTIES}") and holder_of(home) is not None:
        raise CommandError(f"{folder} is one of the nodes of {home}, which starts it again: stop {home}")


def all_nodes() -> list[LocalNode]:
    """All but those of Apache Kafka, and those that go with their cluster."""
    nodes = [node for node in running_nodes() if not node.is_apache_kafka]
    homes = {node.home for node in nodes if node.kind == CLUSTER}
    chosen = [node for node in nodes if os.path.dirname(node.home) not in homes]
    if not chosen:
        raise CommandError("no node of Barnabas runs on this machine")
    return chosen


def terminate(node: LocalNode, number: signal.Signals) -> None:
    try:
        os.kill(node.pid, number)
    except ProcessLookupError:
        return
    except PermissionError:
        raise CommandError(f"process {node.pid}, which has {node.home} open, is somebody else's") from None


def has_ended(node: LocalNode, deadline: float) -> bool:
    """Whether the process has given its folder back by then. What becomes of its last breath is its parent's matter."""
    while holder_of(node.home) == node.pid:
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_S)
    return True
