"""The same tool on two clusters: what it prints is the same but for what must differ between any two clusters.

Ports become the names of their listeners, ids of clusters, folders and topics become one word, and columns one space.
Replicas in sync are a set, which may be printed in any order. Where two clusters may differ, as in who leads the
quorum, a check has all numbers replaced by one word, too.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from interop import kafka_tools

if TYPE_CHECKING:
    from collections.abc import Sequence

    from interop.clusters import ThreeNodes

BROKERS, CONTROLLERS = "@brokers", "@controllers"
"""Words of a command that stand for the addresses of a cluster."""

ID = re.compile(r"(?<![\w-])[\w-]{22}(?![\w-])")
IN_SYNC = re.compile(r"(?<=Isr: )[\d,]+")
NUMBER = re.compile(r"(?<![\w.-])-?\d+(?![\w.])")


class Printed(NamedTuple):
    """What a tool printed, and how it ended."""

    code: int
    lines: list[str]


class Pair(NamedTuple):
    """Two clusters that were treated in the same way."""

    ours: ThreeNodes
    kafkas: ThreeNodes

    def print_of(self, script: str, *words: str, numbers: bool = True) -> tuple[Printed, Printed]:
        """What a tool prints of each, made comparable; `numbers` are compared as well."""
        with ThreadPoolExecutor(2) as threads:
            ours, kafkas = threads.map(lambda cluster: printed(cluster, script, words), self)
        return (ours, kafkas) if numbers else (without_numbers(ours), without_numbers(kafkas))


def printed(cluster: ThreeNodes, script: str, words: Sequence[str], *, input_text: str | None = None) -> Printed:
    addresses = {BROKERS: cluster.bootstrap, CONTROLLERS: cluster.bootstrap_controllers}
    done = kafka_tools.attempt(script, *(addresses.get(word, word) for word in words), input=input_text)
    text = done.stdout if done.returncode == 0 else done.stdout + last_cause(done.stderr)
    return Printed(done.returncode, [comparable(cluster, line) for line in text.splitlines() if line.strip()])


def last_cause(trace: str) -> str:
    """The first line of what a tool that failed said on standard error: the rest is where in the tool that was."""
    return next((line for line in trace.splitlines() if "Exception" in line), trace.partition("\n")[0])


def comparable(cluster: ThreeNodes, line: str) -> str:
    for node_id, node in cluster.nodes.items():
        line = re.sub(rf"\b{node.port}\b", f"broker-port-{node_id}", line)
    for node_id, address in enumerate(cluster.bootstrap_controllers.split(","), start=1):
        line = re.sub(rf"\b{address.rpartition(':')[2]}\b", f"controller-port-{node_id}", line)
    line = IN_SYNC.sub(lambda found: ",".join(sorted(found[0].split(","))), line)
    return " ".join(ID.sub("ID", line).split())


def without_numbers(shown: Printed) -> Printed:
    """Lines of a table come in another order if another node leads: so they are sorted."""
    return Printed(shown.code, sorted(NUMBER.sub("N", line) for line in shown.lines))
