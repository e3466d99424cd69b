"""A supervisor of pretended nodes: run_supervisor.py JOURNAL NAME[:WAY…]…; controllers have names that begin with c."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

from barnabas.cli.supervisor.console import Console
from barnabas.cli.supervisor.supervision import NodePlan, Supervisor

PRETEND_NODE = Path(__file__).with_name("pretend_node.py")


def main() -> int:
    logging.basicConfig(level="INFO", format="%(message)s")
    journal, *words = sys.argv[1:]
    plans = []
    for word in words:
        name, *ways = word.split(":")
        command = (sys.executable, str(PRETEND_NODE), journal, name, *ways)
        plans.append(NodePlan(name, command, name.startswith("c")))
    console = Console(sys.stderr, [plan.name for plan in plans])
    supervisor = Supervisor(
        plans,
        console,
        lambda: print("first ready", flush=True),
        lambda: print("all ready", flush=True),
        restart_pause_s=0.2,
    )
    return asyncio.run(supervisor.run())


if __name__ == "__main__":
    sys.exit(main())
