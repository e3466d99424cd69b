"""What can happen to a cluster: each kind of fault chooses its victims, begins, is held for a while, and is healed.

Every fault says by which line the logs must name it; those that the cluster need not notice say nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.chaos.cluster.nodes import LAG_S, SESSION_S

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from tests.chaos.cluster.nodes import Nodes

    Make = Callable[["Scene"], "Fault"]

GROUP_KEY, TRANSACTION_KEY = 0, 1
UNNOTICED_S = (0.5 * SESSION_S, 0.9 * SESSION_S)
BEYOND_SESSION_S = (3.0 * SESSION_S, 4.0 * SESSION_S)
"""Long enough for the fencing of a broker even if another controller must be elected first, which starts the
sessions anew."""
BEYOND_LAG_S = (1.5 * LAG_S + 1.0, 2.5 * LAG_S + 1.0)
DELAY_S = (0.02, 0.15)


@dataclass(frozen=True, slots=True)
class Sign:
    """A pattern that a line of one of these nodes' logs must have."""

    pattern: str
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    kind: str
    what: str
    nodes: tuple[int, ...]
    """Those that are not to be asked anything meanwhile."""
    begin: Callable[[], None]
    heal: Callable[[], None]
    hold_s: float
    signs: tuple[Sign, ...] = ()


@dataclass(frozen=True, slots=True)
class Scene:
    """Where a fault finds its victims, by chance."""

    nodes: Nodes
    chance: random.Random
    topic: str
    group: str
    transactional_id: str

    def any(self, *without: int) -> int:
        return self.chance.choice(self.nodes.others(*without))

    def leader(self) -> int:
        """Of some partition that is being written to."""
        view = self.nodes.view()
        led = [each.leader for each in view.partitions if each.topic == self.topic] if view is not None else []
        return self.chance.choice([each for each in led if each in self.nodes.ids] or self.nodes.ids)

    def leaders_and_followers(self) -> list[tuple[int, int]]:
        """Of all partitions: who leads, and who copies from it."""
        view = self.nodes.view()
        partitions = view.partitions if view is not None else ()
        return sorted(
            {
                (at.leader, copy)
                for at in partitions
                if at.leader in at.in_sync
                for copy in at.in_sync
                if copy != at.leader
            }
        )

    def controller(self) -> int:
        return self.nodes.quorum_leader() or self.any()

    def coordinator(self) -> int:
        keys = [(self.group, GROUP_KEY), (self.transactional_id, TRANSACTION_KEY)]
        return self.nodes.coordinator(*self.chance.choice(keys)) or self.any()

    def between(self, range_s: tuple[float, float]) -> float:
        return self.chance.uniform(*range_s)


def kill(scene: Scene, kind: str, victim: int) -> Fault:
    nodes = scene.nodes
    return Fault(
        kind,
        f"node {victim} is killed",
        (victim,),
        begin=lambda: nodes.cluster.kill(victim),
        heal=lambda: nodes.start_node(victim),
        hold_s=scene.between((0.2, 2 * SESSION_S)),
        signs=(Sign("was not closed cleanly", (victim,)),),
    )


def lose_machine(scene: Scene) -> Fault:
    """A kill of which nobody hears: connections stay half open until the machine is back."""
    nodes, victim = scene.nodes, scene.leader()
    ways = _around(nodes, victim)

    def begin() -> None:
        nodes.links.cut(*ways)
        nodes.cluster.kill(victim)

    def heal() -> None:
        nodes.links.heal(*ways)
        nodes.start_node(victim)

    hold_s = scene.between(BEYOND_SESSION_S)
    return Fault("machine lost", f"node {victim} is gone", (victim,), begin, heal, hold_s, _missed(nodes, victim))


def stop(scene: Scene, kind: str, range_s: tuple[float, float]) -> Fault:
    nodes = scene.nodes
    victim = scene.chance.choice([scene.leader, scene.controller, scene.any])()
    return Fault(
        kind,
        f"node {victim} is stopped",
        (victim,),
        begin=lambda: nodes.cluster.pause(victim),
        heal=lambda: nodes.cluster.resume(victim),
        hold_s=scene.between(range_s),
        signs=(Sign("was stalled", (victim,)), *(_missed(nodes, victim) if range_s is BEYOND_SESSION_S else ())),
    )


def cut_off(scene: Scene) -> Fault:
    victim = scene.chance.choice([scene.leader, scene.controller, scene.any])()
    return _cut(scene, "cut off", f"node {victim} and all others do not hear each other", victim, _around)


def mute(scene: Scene) -> Fault:
    victim = scene.chance.choice([scene.leader, scene.controller])()
    return _cut(scene, "cut one way: mute", f"no other node hears node {victim}", victim, _from)


def deafen(scene: Scene) -> Fault:
    victim = scene.chance.choice([scene.leader, scene.controller])()
    return _cut(scene, "cut one way: deaf", f"node {victim} hears no other node", victim, _towards)


def cut_from_controller(scene: Scene) -> Fault:
    """A broker that has lost the active controller only: it is fenced, while its peers still reach it."""
    nodes, controller = scene.nodes, scene.controller()
    victim = scene.any(controller)
    ways = ((victim, controller), (controller, victim))
    return Fault(
        "cut from the controller",
        f"node {victim} and the active controller, node {controller}, do not hear each other",
        (victim,),
        begin=lambda: nodes.links.cut(*ways),
        heal=lambda: nodes.links.heal(*ways),
        hold_s=scene.between(BEYOND_SESSION_S),
        signs=_missed(nodes, victim),
    )


def cut_replication(scene: Scene) -> Fault:
    """A leader and a follower that have lost each other, while both reach the controller. Two brokers of which neither
    copies from the other would not notice."""
    nodes, controller = scene.nodes, scene.controller()
    pairs = [pair for pair in scene.leaders_and_followers() if controller not in pair]
    one, two = scene.chance.choice(pairs) if pairs else scene.chance.sample(nodes.others(controller), 2)
    ways = ((one, two), (two, one))
    return Fault(
        "cut between two brokers",
        f"nodes {one} and {two} do not hear each other",
        (),
        begin=lambda: nodes.links.cut(*ways),
        heal=lambda: nodes.links.heal(*ways),
        hold_s=scene.between(BEYOND_LAG_S),
        signs=(Sign("not caught up for more than|failed, retrying|fencing broker", tuple(nodes.ids)),) if pairs else (),
    )


def slow_links(scene: Scene, *without: int) -> Fault:
    nodes, victim, delay_s = scene.nodes, scene.any(*without), scene.between(DELAY_S)
    ways = _around(nodes, victim)
    return Fault(
        "slow links",
        f"what node {victim} sends or is sent takes {delay_s * 1000:.0f} ms longer",
        (),
        begin=lambda: nodes.links.slow_down(delay_s, *ways),
        heal=lambda: nodes.links.heal(*ways),
        hold_s=scene.between(BEYOND_SESSION_S),
    )


def roll(scene: Scene) -> Fault:
    """Every node is stopped cleanly and started again, one after the other, each when the one before is in sync."""
    nodes = scene.nodes
    order = scene.chance.sample(nodes.ids, len(nodes.ids))

    def begin() -> None:
        for node_id in order:
            nodes.restart_node(node_id)
            nodes.await_whole(WHOLE_S_MAX)

    signs = tuple(Sign("SIGTERM: stopping", (node_id,)) for node_id in order)
    return Fault("rolling restart", f"nodes {order} are restarted in turn", (), begin, _nothing, 0.0, signs)


def fill_disk(scene: Scene) -> Fault:
    nodes = scene.nodes
    victim = scene.chance.choice([scene.leader, scene.controller, scene.any])()
    return Fault(
        "full disk",
        f"the disk of node {victim} is full",
        (victim,),
        begin=lambda: nodes.fill_disk(victim),
        heal=lambda: nodes.free_disk(victim),
        hold_s=scene.between(BEYOND_SESSION_S),
        signs=(Sign("No space left|File too large", (victim,)),),
    )


def kill_among_slow(scene: Scene) -> Fault:
    """Several at once, with a majority and enough replicas left: a kill while the links of some node are slow."""
    victim = scene.leader()
    return _both(kill(scene, "", victim), slow_links(scene, victim), "kill, and slow links")


def two_of_five(scene: Scene) -> Fault:
    """A majority of the voters is left; partitions that have both among their replicas wait for one of them."""
    first = scene.leader()
    nodes, second = scene.nodes, scene.any(first)
    killed = kill(scene, "", first)
    ways = _around(nodes, second)
    cut = Fault(
        "",
        f"node {second} is cut off",
        (second,),
        begin=lambda: nodes.links.cut(*ways),
        heal=lambda: nodes.links.heal(*ways),
        hold_s=scene.between(BEYOND_SESSION_S),
        signs=_missed(nodes, second),
    )
    return _both(killed, cut, "two at once: kill, cut off")


WHOLE_S_MAX = 180.0

KINDS: Mapping[str, Make] = {
    "kill of a leader": lambda scene: kill(scene, "kill of a leader", scene.leader()),
    "kill of a coordinator": lambda scene: kill(scene, "kill of a coordinator", scene.coordinator()),
    "kill of the controller": lambda scene: kill(scene, "kill of the controller", scene.controller()),
    "kill of any node": lambda scene: kill(scene, "kill of any node", scene.any()),
    "machine lost": lose_machine,
    "stop, shorter than the session": lambda scene: stop(scene, "stop, shorter than the session", UNNOTICED_S),
    "stop, longer than the session": lambda scene: stop(scene, "stop, longer than the session", BEYOND_SESSION_S),
    "cut off": cut_off,
    "cut one way: mute": mute,
    "cut one way: deaf": deafen,
    "cut from the controller": cut_from_controller,
    "cut between two brokers": cut_replication,
    "slow links": slow_links,
    "rolling restart": roll,
    "full disk": fill_disk,
    "kill, and slow links": kill_among_slow,
    "two at once: kill, cut off": two_of_five,
}
NODES_MIN: Mapping[str, int] = {"two at once: kill, cut off": 5}


def _cut(
    scene: Scene, kind: str, what: str, victim: int, ways_of: Callable[[Nodes, int], list[tuple[int, int]]]
) -> Fault:
    nodes = scene.nodes
    ways = ways_of(nodes, victim)
    return Fault(
        kind,
        what,
        (victim,),
        begin=lambda: nodes.links.cut(*ways),
        heal=lambda: nodes.links.heal(*ways),
        hold_s=scene.between(BEYOND_SESSION_S),
        signs=_missed(nodes, victim),
    )


def _both(one: Fault, two: Fault, kind: str) -> Fault:
    def begin() -> None:
        two.begin()
        one.begin()

    def heal() -> None:
        two.heal()
        one.heal()

    return Fault(
        kind,
        f"{one.what}, and {two.what}",
        (*one.nodes, *two.nodes),
        begin,
        heal,
        max(one.hold_s, two.hold_s),
        (*one.signs, *two.signs),
    )


def _from(nodes: Nodes, victim: int) -> list[tuple[int, int]]:
    return [(victim, other) for other in nodes.others(victim)]


def _towards(nodes: Nodes, victim: int) -> list[tuple[int, int]]:
    return [(other, victim) for other in nodes.others(victim)]


def _around(nodes: Nodes, victim: int) -> list[tuple[int, int]]:
    return _from(nodes, victim) + _towards(nodes, victim)


def _missed(nodes: Nodes, victim: int) -> tuple[Sign, ...]:
    """The controller fences a broker that it does not hear; and after the loss of a controller another is elected."""
    pattern = f"fencing broker {victim}:|is the leader of the metadata quorum"
    return (Sign(pattern, tuple(nodes.ids)),)


def _nothing() -> None:
    """A fault that is over by itself."""
