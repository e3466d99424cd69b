"""What is measured of clusters, with what each row is to reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.case import Plan
from bench.clusters import failovers, lives, steady
from bench.clusters.nodes import APACHE_KAFKA, BARNABAS
from bench.family import Family

if TYPE_CHECKING:
    from bench.case import Case
    from bench.clusters.nodes import Cluster


WARM_UP_SECONDS = 10.0
"""Three Java machines on two processors have compiled what they need after about so long under load."""


def every(plan: Plan) -> list[Case[Cluster]]:
    return [*lives.every(plan), *steady.every(), *failovers.every()]


CLUSTERS = Family(
    command="python -m bench clusters",
    ours=BARNABAS,
    theirs=APACHE_KAFKA,
    standard_cases=every,
    full_cases=every,
    plan=Plan(warm_up_seconds=WARM_UP_SECONDS),
    rounds=3,
    table="clusters",
    cpu_note="CPU: seconds of all nodes per million records, until every replica has them.",
)
