"""`python -m bench`: the table. `python -m bench clusters`: that of three nodes beside three of Kafka's.

`python -m bench upkeep`: compaction, recompression, ten thousand partitions and five thousand connections.
`python -m bench pipelines`: that of source and sink on Spark.
`python -m bench kit`: how soon the brokers of the test kit are ready.
`python -m bench profile CASE`: where the broker spends its time in one case.
`python -m bench publish [FILE …]`: puts the figures of finished runs into the documentation.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.console import Console

from bench import cases, family, kit, profiling
from bench.clusters import cases as cluster_cases
from bench.upkeep import cases as upkeep_cases

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    console = Console()
    match arguments[:1]:
        case ["profile"]:
            return profiling.main(arguments[1:], console)
        case ["clusters"]:
            return family.main(cluster_cases.CLUSTERS, arguments[1:], console)
        case ["upkeep"]:
            return family.main(upkeep_cases.UPKEEP, arguments[1:], console)
        case ["pipelines"]:
            from bench.pipelines import table  # here, as it needs Spark

            return table.main(arguments[1:], console)
        case ["kit"]:
            return kit.main(arguments[1:], console)
        case ["publish"]:
            from bench import publishing

            return publishing.main(arguments[1:], console)
        case _:
            return family.main(cases.BROKERS, arguments, console)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
