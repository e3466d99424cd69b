"""How long a cluster is without a node that was killed: a partition without its leader, the cluster without controller.

All times but the whole gap begin with a decision as the metadata log dates it: a leader's fencing, and the election of
a controller. What comes before is the broker's session and the quorum's fetch timeout, which are settings.
"""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING

from bench.case import Row, SteadyCase, run_load
from bench.clusters import questions
from bench.clusters.nodes import REPLICAS, Cluster, bootstrap
from bench.clusters.steady import MIN_ISR, PARTITIONS
from bench.loads.failover import ControllerLoad, LeaderLoad
from bench.stats import AtMost, Measure
from bench.topics import fresh_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.case import Context
    from bench.results import Figures

IN_SYNC_SECONDS_MAX = 90.0


def every() -> list[SteadyCase[Cluster]]:
    return [_LEADER, _CONTROLLER]


def _leader_killed(_context: Context, cluster: Cluster) -> Figures:
    controller_id = questions.active_controller(cluster)
    victim_id, *others = sorted(cluster.nodes, key=lambda each: each == controller_id)
    servers = bootstrap(cluster)
    probed = f"bench-probed-{uuid.uuid4().hex}"
    with fresh_topic(servers, PARTITIONS, replicas=REPLICAS, settings=MIN_ISR) as topic:
        questions.create_topic(cluster, probed, {0: [victim_id, *others]}, MIN_ISR)
        questions.leader_of(cluster, probed, 0)
        load = LeaderLoad(
            bootstrap=servers,
            victim_pid=cluster.nodes[victim_id].pid,
            victim_port=cluster.nodes[victim_id].port,
            survivor_ports=tuple(cluster.nodes[each].port for each in others),
            topic=topic.name,
            partitions=PARTITIONS,
            probed_topic=probed,
        )
        with _revived(cluster, victim_id):
            figures = run_load("leader-failover", load)
            cluster.kill(victim_id)  # it is dead, but has not been waited for
            fenced_at = questions.fenced_at(cluster, victim_id, after=figures["killed_at"])
    return {
        "gap_seconds": figures["writable_at"] - figures["killed_at"],
        "fenced_to_writable_ms": (figures["writable_at"] - fenced_at) * 1e3,
    }


def _controller_killed(_context: Context, cluster: Cluster) -> Figures:
    victim_id = questions.active_controller(cluster)
    with _revived(cluster, victim_id):
        return kill_controller(cluster, victim_id)


def kill_controller(cluster: Cluster, victim_id: int) -> Figures:
    load = ControllerLoad(
        victim_pid=cluster.nodes[victim_id].pid,
        survivor_ports=tuple(cluster.nodes[each].port for each in cluster.running if each != victim_id),
        topic=f"bench-{uuid.uuid4().hex}",
    )
    figures = run_load("controller-failover", load)
    cluster.kill(victim_id)  # it is dead, but has not been waited for
    elected_at = questions.elected_at(cluster, after=figures["killed_at"])
    return {
        "controller_gap_seconds": figures["decided_at"] - figures["killed_at"],
        "elected_to_decided_ms": (figures["decided_at"] - elected_at) * 1e3,
    }


@contextlib.contextmanager
def _revived(cluster: Cluster, victim_id: int) -> Iterator[None]:
    """The node that is killed meanwhile is back afterwards, with all its replicas in sync."""
    try:
        yield
    finally:
        cluster.kill(victim_id)
        asked = cluster.running[0]
        cluster.nodes[victim_id].launch()
        questions.await_serving(cluster, victim_id)
        questions.await_in_sync(cluster, asked, REPLICAS, IN_SYNC_SECONDS_MAX)


_LEADER = SteadyCase(
    "leader-killed",
    (
        Row("leader killed: fenced to writable", "ms", "fenced_to_writable_ms", targets=(AtMost(Measure.RATIO, 0.5),)),
        Row("leader killed: killed to writable", "s", "gap_seconds", targets=(AtMost(Measure.RATIO, 1.0),)),
    ),
    _leader_killed,
    kills_nodes=True,
)
_CONTROLLER = SteadyCase(
    "controller-killed",
    (
        Row(
            "controller killed: elected to topic created",
            "ms",
            "elected_to_decided_ms",
            targets=(AtMost(Measure.RATIO, 0.5),),
        ),
        Row("controller killed: killed to topic created", "s", "controller_gap_seconds"),
    ),
    _controller_killed,
    kills_nodes=True,
)
