"""What goes wrong in a run, and when: drawn from the seed, injected, and healed after a while.

A network loses, doubles and reorders packets, and TCP hides that from its users: what they meet are delays, streams
that are reset, and, because they ask again after a reset, requests that arrive twice. So these are the faults here.

Acknowledged records are promised as long as fewer than `min.insync.replicas` replicas lose unsynced bytes at once. The
controller cannot know what a node has lost that did not stop cleanly, so to it every such stop is a loss: it takes the
node out of ISR and ELR, and where nobody is left in either, only the last leader may lead again. So any number of nodes
may be killed at once while none loses bytes; but while one that did is not back in sync, or while another that was
killed is not, power may fail nowhere else. Nor may it ever fail where a node has a partition whose records a single
node acknowledges, as a user's settings may have it. Where a fault must not happen now, a clean stop takes its place.

A process that ends by itself is started again after a moment, as a supervisor does.
"""

from __future__ import annotations

import errno
import random
from collections import Counter, deque
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.config.cluster_layout import NODES_FOR_MIN_ISR_OF_TWO
from barnabas.config.topic_config import resolve_topic_config
from barnabas.testing.network import Delay
from barnabas.testing.simulator.cluster import exposed_topics, is_exposed
from barnabas.testing.simulator.nodes import host_name
from barnabas.testing.simulator.protocols import Violation
from barnabas.testing.simulator.trace import NOBODY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from barnabas.metadata.image import MetadataImage
    from barnabas.testing.simulator.cluster import SimulatedCluster
    from barnabas.testing.simulator.nodes import SimulatedNode

    End = Callable[[], None]

FAULTS_MIN: Final = 5
FAULTS_MAX: Final = 9
RESTART_S: Final = 1.0
"""After so long a process that ended by itself is started again."""
RESET_EVERY_S: Final = 0.7
LOOK_EVERY_S: Final = 0.001
"""How often those look who wait for a moment: what is decided there takes as long to be heard of elsewhere."""
TURN_EVERY_S: Final = 0.05
"""How often it is looked whether the next node may be restarted."""
SLOW_DISK_S: Final = (0.05, 1.0)
CLOCK_OFF_MS_MAX: Final = 45 * 60 * 1000
"""Less than what a record may be ahead of its leader (`log.message.timestamp.after.max.ms`, an hour)."""
SPARE_BYTES_MAX: Final = 4096
"""What still fits on a disk that runs full."""

FAIL_WITH_DISKS: Final = "nodes fail only with their disks"


class Planned(NamedTuple):
    """A fault, as drawn. Whom it hits is decided when it happens, by a chance of its own."""

    kind: str
    at_s: float
    lasts_s: float
    draw: int


class Joined(NamedTuple):
    """That a replica has come to be in sync. The others are named by their ids, too."""

    partition: str
    replica: int
    leader: int
    controller: int


class Kind(NamedTuple):
    inject: Callable[[Faults, random.Random], End | None]
    """Makes it happen to somebody, and returns what ends it."""
    weight: int
    shortest_s: float
    longest_s: float


def plan(seed: int, seconds: float, kinds: Iterable[str] = ()) -> list[Planned]:
    """The faults of a run that has so many seconds for them; of all kinds, unless some are named."""
    chance = random.Random(f"{seed} faults")
    names = sorted(kinds) or list(KINDS)
    weights = [KINDS[name].weight for name in names]
    faults = []
    for name in chance.choices(names, weights, k=chance.randint(FAULTS_MIN, FAULTS_MAX)):
        lasts_s = min(chance.uniform(KINDS[name].shortest_s, KINDS[name].longest_s), seconds / 2)
        faults.append(Planned(name, chance.uniform(0, seconds - lasts_s), lasts_s, chance.getrandbits(64)))
    return sorted(faults, key=lambda fault: fault.at_s)


class Faults:
    """The faults of one run. `after_each` is called when one has begun, and when one has ended; `report` with what no
    fault explains."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        planned: Sequence[Planned],
        after_each: Callable[[], None],
        report: Callable[[Violation], None],
    ) -> None:
        self.cluster = cluster
        self._report = report
        self.injected: Counter[str] = Counter()
        self.is_over = False
        """Whether all of them have happened and are healed."""
        self._planned = planned
        self._after_each = after_each
        self._under_way: dict[int, End] = {}
        self._cuts: dict[object, set[tuple[str, str]]] = {}
        self._delays: dict[int, Delay] = {}
        self._losses: dict[int, float] = {}
        self._lost_bytes: set[int] = set()
        """Nodes that lost unsynced bytes, and have not been in sync with everything since."""
        self._unclean: set[int] = set()
        """The same for all that did not stop cleanly."""
        self._kept_down: Counter[int] = Counter()
        """By how many faults."""
        self._troubled: set[tuple[int, int]] = set()
        """Lives, by node and number, in which the disk failed or was full."""
        self._failing_disks: Counter[int] = Counter()
        """By how many faults, by node."""
        self._token = 0
        for node in cluster.nodes.values():
            node.on_ended = self._node_ended

    def start(self) -> None:
        """Faults happen at their times, counted from now."""
        for fault in self._planned:
            self.cluster.scheduler.call_later(fault.at_s, self._inject, fault)
        last_s = max(fault.at_s + fault.lasts_s for fault in self._planned)
        self.cluster.scheduler.call_later(last_s, self._finish)

    def _inject(self, fault: Planned) -> None:
        self._token += 1
        end = KINDS[fault.kind].inject(self, random.Random(fault.draw))
        self.injected[fault.kind] += 1
        if end is not None:
            self._under_way[self._token] = end
            self.cluster.scheduler.call_later(fault.lasts_s, self._end, self._token)
        self._after_each()

    def _end(self, token: int) -> None:
        end = self._under_way.pop(token, None)
        if end is not None:
            end()
            self._after_each()

    def _finish(self) -> None:
        for token in list(self._under_way):
            self._end(token)
        self.note("all faults are healed")
        self.is_over = True

    def note(self, text: str) -> None:
        self.cluster.trace.note("FAULT", text)

    # ── processes ────────────────────────────────────────────────────────────────────────────────────────────

    def some_node(self, chance: random.Random) -> SimulatedNode:
        """One that runs, if any does."""
        nodes = list(self.cluster.nodes.values())
        return chance.choice([node for node in nodes if node.is_up] or nodes)

    def down(self, node: SimulatedNode, how: Callable[[], None]) -> End:
        """Takes a node down, in some way, and keeps it there until the fault ends."""
        self._kept_down[node.id] += 1
        if node.is_up:
            how()

        def end() -> None:
            self._kept_down[node.id] -= 1
            self._start_if_free(node)

        return end

    def _start_if_free(self, node: SimulatedNode) -> None:
        if not node.is_up and not self._kept_down[node.id]:
            node.start()
            if self._failing_disks[node.id]:
                self._troubled.add((node.id, node.life))

    def _node_ended(self, node: SimulatedNode) -> None:
        """A process came to its end by itself, or because it was told to stop."""
        is_troubled = (node.id, node.life) in self._troubled
        if is_troubled and node.disk.is_failing:
            # What a sync could not write, the system has dropped.
            node.disk.crash()
        if node.failure is not None and not is_troubled:
            self._report(Violation(FAIL_WITH_DISKS, f"{node.name} failed: {node.failure!r}"))
        self.cluster.scheduler.call_later(RESTART_S, self._start_if_free, node)

    # ── who may lose what ────────────────────────────────────────────────────────────────────────────────────

    def may_lose_bytes(self, node: SimulatedNode) -> bool:
        self._forget_recovered()
        return (
            len(self.cluster.nodes) >= NODES_FOR_MIN_ISR_OF_TWO
            and self._unclean <= {node.id}
            and not has_exposed_partitions(self.cluster, node)
        )

    def may_end_uncleanly(self, node: SimulatedNode) -> bool:
        self._forget_recovered()
        return self._lost_bytes <= {node.id}

    def loses_bytes(self, node: SimulatedNode) -> None:
        self._lost_bytes.add(node.id)
        self._unclean.add(node.id)

    def ends_uncleanly(self, node: SimulatedNode) -> None:
        self._unclean.add(node.id)

    def _forget_recovered(self) -> None:
        # One whose disk fails may serve, and be in sync, until it next looks at the disk.
        for node_id in sorted(self._unclean):
            if not self._failing_disks[node_id] and is_in_sync(self.cluster, self.cluster.nodes[node_id]):
                self._unclean.discard(node_id)
                self._lost_bytes.discard(node_id)

    def disk_fails(self, node: SimulatedNode) -> None:
        self._failing_disks[node.id] += 1
        self._troubled.add((node.id, node.life))

    def disk_is_well(self, node: SimulatedNode) -> None:
        self._failing_disks[node.id] -= 1

    # ── the network ──────────────────────────────────────────────────────────────────────────────────────────

    def cut(self, pairs: Iterable[tuple[str, str]]) -> End:
        """Cuts directions between hosts. They stay cut while any fault wants them so."""
        token, network = object(), self.cluster.network
        self._cuts[token] = set(pairs)
        for source, target in sorted(self._cuts[token]):
            network.cut_one_way(source, target)

        def end() -> None:
            mine = self._cuts.pop(token)
            for pair in sorted(mine.difference(*self._cuts.values())):
                network.heal_one_way(*pair)

        return end

    def delay(self, delay: Delay) -> End:
        token, network = self._token, self.cluster.network
        self._delays[token] = network.delay = delay

        def end() -> None:
            del self._delays[token]
            network.delay = next(reversed(self._delays.values()), Delay())

        return end

    def lose(self, probability: float) -> End:
        token, network = self._token, self.cluster.network
        self._losses[token] = network.loss = probability

        def end() -> None:
            del self._losses[token]
            network.loss = next(reversed(self._losses.values()), 0.0)

        return end

    def again_and_again(self, what: Callable[[], None]) -> End:
        is_over = False

        def once() -> None:
            if not is_over:
                what()
                self.cluster.scheduler.call_later(RESET_EVERY_S, once)

        def end() -> None:
            nonlocal is_over
            is_over = True

        once()
        return end

    def restart_in_turn(self, nodes: Iterable[SimulatedNode]) -> End:
        """Stops nodes cleanly, each as soon as the one before has been started again and is in sync. Those that have
        not had their turn when the fault ends are left alone."""
        waiting = deque(nodes)
        is_over = False

        def go_on(last: SimulatedNode | None, last_life: int) -> None:
            if is_over:
                return
            if last is None or (last.life > last_life and is_in_sync(self.cluster, last)):
                if not waiting:
                    return
                last = waiting.popleft()
                last_life = last.life
                if last.is_up:
                    self.note(f"clean stop of {last.name}, whose turn it is")
                    last.stop()
                    self._after_each()
            self.cluster.scheduler.call_later(TURN_EVERY_S, go_on, last, last_life)

        def end() -> None:
            nonlocal is_over
            is_over = True

        go_on(None, 0)
        return end

    def once_a_replica_joins(self, then: Callable[[Joined], End]) -> End:
        """Has something happen in the moment in which a replica of a partition is in sync again, and its leader may not
        have heard of that yet; nothing if nobody joins before the end."""
        is_over = False
        end_what: End | None = None

        def look(before: MetadataImage | None) -> None:
            nonlocal end_what
            if is_over:
                return
            image = newest_image(self.cluster)
            joined = joined_since(before, image)
            if joined is None:
                self.cluster.scheduler.call_later(LOOK_EVERY_S, look, image)
            else:
                end_what = then(joined)
                self._after_each()

        def end() -> None:
            nonlocal is_over
            is_over = True
            if end_what is not None:
                end_what()

        look(newest_image(self.cluster))
        return end

    @property
    def hosts(self) -> list[str]:
        return [*(node.name for node in self.cluster.nodes.values()), *self.cluster.clients]

    def pair(self, chance: random.Random) -> tuple[str, str]:
        """A node, and another node or a client, mostly the former."""
        one = chance.choice([node.name for node in self.cluster.nodes.values()])
        nodes = [node.name for node in self.cluster.nodes.values() if node.name != one]
        clients = list(self.cluster.clients)
        others = clients if not nodes or (clients and chance.random() < 0.25) else nodes
        return one, chance.choice(others)


def newest_image(cluster: SimulatedCluster) -> MetadataImage | None:
    """What is committed, as far as any node knows."""
    images = [node.image for node in cluster.live_nodes if node.image is not None]
    return max(images, key=lambda image: image.offset, default=None)


def joined_since(before: MetadataImage | None, now: MetadataImage | None) -> Joined | None:
    """A replica that is in sync now and was not before, under the same leader, who is not the controller itself."""
    if before is None or now is None or before.topics is now.topics:
        return None
    for topic in now.topics:
        former = before.topics.get(topic.name)
        if former is None or former is topic:
            continue
        for index, (old, new) in enumerate(zip(former.partitions, topic.partitions, strict=False)):
            joined = sorted(set(new.isr) - set(old.isr))
            if joined and new.leader_epoch == old.leader_epoch and new.leader not in (NOBODY, now.controller_id):
                return Joined(f"{topic.name}-{index}", joined[0], new.leader, now.controller_id)
    return None


def has_exposed_partitions(cluster: SimulatedCluster, node: SimulatedNode) -> bool:
    """Whether a node has records that no other must have had when they were acknowledged, or may soon have some: an
    internal topic is created when somebody first needs it."""
    image = newest_image(cluster)
    exposed = exposed_topics(node.config)
    if image is None:
        return bool(exposed)
    return any(name not in image.topics for name in exposed) or any(
        node.id in partition.replicas
        and is_exposed(len(partition.replicas), resolve_topic_config(image.configs.of_topic(topic.name), node.config))
        for topic in image.topics
        for partition in topic.partitions
    )


def is_in_sync(cluster: SimulatedCluster, node: SimulatedNode) -> bool:
    """Whether a node serves, and is in the ISR of every partition that has a replica there."""
    image = newest_image(cluster)
    if image is None or not node.is_ready:
        return False
    broker = image.brokers.get(node.id)
    return (
        broker is not None
        and not broker.fenced
        and all(
            node.id in partition.isr
            for topic in image.topics
            for partition in topic.partitions
            if node.id in partition.replicas
        )
    )


# ── the kinds ────────────────────────────────────────────────────────────────────────────────────────────────────────


def kill(faults: Faults, chance: random.Random) -> End:
    node = faults.some_node(chance)
    if not faults.may_end_uncleanly(node):
        return stop_instead(faults, node)
    faults.note(f"kill {node.name}")
    faults.ends_uncleanly(node)
    return faults.down(node, node.kill)


def kill_all(faults: Faults, chance: random.Random) -> End:
    nodes = list(faults.cluster.nodes.values())
    if not all(map(faults.may_end_uncleanly, nodes)):
        return stop_instead(faults, faults.some_node(chance))
    faults.note("kill all nodes")
    for node in nodes:
        faults.ends_uncleanly(node)
    ends = [faults.down(node, node.kill) for node in nodes]
    chance.shuffle(ends)

    def end() -> None:
        for number, each in enumerate(ends):
            faults.cluster.scheduler.call_later(number * chance.random(), each)

    return end


def lose_power(faults: Faults, chance: random.Random) -> End:
    node = faults.some_node(chance)
    if not node.is_up or not faults.may_lose_bytes(node):
        return stop_instead(faults, node)
    faults.note(f"power fails at {node.name}")
    faults.loses_bytes(node)
    return faults.down(node, node.lose_power)


def stop_instead(faults: Faults, node: SimulatedNode) -> End:
    faults.note(f"clean stop of {node.name}, for nothing worse may happen now")
    return faults.down(node, node.stop)


def pause(faults: Faults, chance: random.Random) -> End:
    node = faults.some_node(chance)
    faults.note(f"pause {node.name}")
    life = node.life
    node.pause()

    def end() -> None:
        if node.is_up and node.life == life:
            node.resume()

    return end


def stop(faults: Faults, chance: random.Random) -> End:
    node = faults.some_node(chance)
    faults.note(f"clean stop of {node.name}")
    return faults.down(node, node.stop)


def roll(faults: Faults, chance: random.Random) -> End:
    nodes = list(faults.cluster.nodes.values())
    chance.shuffle(nodes)
    faults.note(f"rolling restart of {', '.join(node.name for node in nodes)}")
    return faults.restart_in_turn(nodes)


def slow_disk(faults: Faults, chance: random.Random) -> End:
    node = faults.some_node(chance)
    faults.note(f"slow disk at {node.name}")
    usual = node.disk_latency_s
    node.disk_latency_s = SLOW_DISK_S

    def end() -> None:
        node.disk_latency_s = usual

    return end


def full_disk(faults: Faults, chance: random.Random) -> End:
    node = faults.some_node(chance)
    if not faults.may_end_uncleanly(node):
        return stop_instead(faults, node)
    faults.note(f"full disk at {node.name}")
    faults.ends_uncleanly(node)
    faults.disk_fails(node)
    node.disk.capacity_bytes = node.disk.used_bytes + chance.randrange(SPARE_BYTES_MAX)
    life = node.life

    def end() -> None:
        faults.disk_is_well(node)
        node.disk.capacity_bytes = None
        if node.is_up and node.life != life:
            # It has started since: a log that it could not repair for lack of space is offline until the next start.
            faults.note(f"{node.name} is restarted, for its disk has space again")
            node.stop()

    return end


def failed_sync(faults: Faults, chance: random.Random) -> End:
    node = faults.some_node(chance)
    if not node.is_up or not faults.may_lose_bytes(node):
        return stop_instead(faults, node)
    faults.note(f"syncs fail at {node.name}")
    faults.disk_fails(node)
    faults.loses_bytes(node)
    node.disk.fail("fsync", errno.EIO)
    life = node.life

    def end() -> None:
        if node.is_up and node.life == life:
            # Nothing was synced meanwhile, or it has not come to its end yet: it never learns that the disk is well.
            node.lose_power()
            faults.cluster.scheduler.call_later(RESTART_S, faults.down(node, lambda: None))
        faults.disk_is_well(node)
        node.disk.heal_operation("fsync")

    return end


def clock_jump(faults: Faults, chance: random.Random) -> None:
    node = faults.some_node(chance)
    scale = chance.choice([1_000, 60_000, CLOCK_OFF_MS_MAX])
    off_ms = chance.randint(-scale, scale)
    faults.note(f"the clock of {node.name} jumps by {off_ms - node.clock.off_ms} ms")
    node.clock.jump_ms(off_ms - node.clock.off_ms)


def slow_network(faults: Faults, chance: random.Random) -> End:
    longest_s = chance.choice([0.05, 0.2, 0.8])
    faults.note(f"pieces are under way for up to {longest_s} s")
    return faults.delay(Delay(0.001, longest_s))


def lossy_network(faults: Faults, chance: random.Random) -> End:
    probability = chance.choice([0.02, 0.1, 0.3])
    faults.note(f"{probability:.0%} of all pieces are lost, and sent again")
    return faults.lose(probability)


def cut(faults: Faults, chance: random.Random) -> End:
    one, other = faults.pair(chance)
    faults.note(f"cut {one} ↔ {other}")
    return faults.cut([(one, other), (other, one)])


def cut_one_way(faults: Faults, chance: random.Random) -> End:
    pair = list(faults.pair(chance))
    chance.shuffle(pair)
    faults.note(f"cut {pair[0]} → {pair[1]}")
    return faults.cut([(pair[0], pair[1])])


def cut_at_join(faults: Faults, chance: random.Random) -> End:  # noqa: ARG001 (whoever joins decides whom it hits)
    def cut_leader(joined: Joined) -> End:
        leader = host_name(joined.leader)
        others = sorted(host_name(other) for other in {joined.replica, joined.controller} if other != NOBODY)
        faults.note(f"node {joined.replica} joins {joined.partition}: cut {leader} off from {', '.join(others)}")
        return faults.cut([*((leader, other) for other in others), *((other, leader) for other in others)])

    faults.note("the next leader whose follower joins is to be cut off from it and from the controller")
    return faults.once_a_replica_joins(cut_leader)


def isolate(faults: Faults, chance: random.Random) -> End:
    node = faults.some_node(chance)
    others = [host for host in faults.hosts if host != node.name]
    if chance.random() < 0.5:
        # Its clients still reach it: the more dangerous half.
        others = [each.name for each in faults.cluster.nodes.values() if each is not node]
    faults.note(f"cut {node.name} off from {', '.join(others)}")
    return faults.cut([*((node.name, other) for other in others), *((other, node.name) for other in others)])


def resets(faults: Faults, chance: random.Random) -> End:
    one, other = faults.pair(chance)
    faults.note(f"reset {one} ↔ {other}, again and again")
    return faults.again_and_again(lambda: faults.cluster.network.reset(one, other))


def silence(faults: Faults, chance: random.Random) -> None:
    one, other = faults.pair(chance)
    faults.note(f"silence {one} ↔ {other}")
    faults.cluster.network.silence(one, other)


KINDS: Final[dict[str, Kind]] = {
    "kill": Kind(kill, 3, 0.5, 12),
    "kill all": Kind(kill_all, 1, 0.5, 6),
    "power loss": Kind(lose_power, 4, 0.5, 12),
    "pause": Kind(pause, 3, 0.5, 12),
    "clean stop": Kind(stop, 2, 1, 10),
    "rolling restart": Kind(roll, 2, 8, 30),
    "slow disk": Kind(slow_disk, 2, 2, 12),
    "full disk": Kind(full_disk, 2, 1, 8),
    "failed sync": Kind(failed_sync, 1, 1, 6),
    "clock jump": Kind(clock_jump, 2, 0, 0),
    "slow network": Kind(slow_network, 2, 1, 8),
    "lossy network": Kind(lossy_network, 2, 2, 10),
    "cut": Kind(cut, 3, 1, 15),
    "one-way cut": Kind(cut_one_way, 3, 1, 15),
    "cut at a join": Kind(cut_at_join, 2, 8, 25),
    "isolation": Kind(isolate, 3, 1, 15),
    "resets": Kind(resets, 2, 1, 6),
    "silence": Kind(silence, 2, 0, 0),
}
