"""Groups of clients of both protocols that change between them, fall silent and restart, as does the coordinator.
Whatever happens, no partition has two readers in the group, and left alone all partitions are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from barnabas.groups.consumer.consumer_group import ConsumerGroup
from barnabas.groups.consumer.embedded_protocol import read_subscription
from barnabas.protocol.errors import Error
from tests.unit.groups.consumer_requests import assigned, beat, join, leave, topic_id
from tests.unit.groups.conversion.mixed_driver import GROUP, REBALANCE_MS, SESSION_MS, Driver, assignment, subscription

if TYPE_CHECKING:
    from barnabas.protocol import messages as m

PARTITIONS = frozenset(range(7))
INSTANCE_IDS = ["static-a", None, None, "static-b", None]
CLIENTS = st.integers(0, len(INSTANCE_IDS) - 1)
DURATIONS_MS = st.sampled_from([0, 1, 1_000, SESSION_MS - 1, SESSION_MS, REBALANCE_MS])

HAS_NO_PLACE = (Error.UNKNOWN_MEMBER_ID, Error.FENCED_INSTANCE_ID)


class ClassicClient:
    """A consumer with cooperative rebalancing: it reads on while it joins, and joins again when it has lost any."""

    def __init__(self, driver: Driver, instance_id: str | None) -> None:
        self.driver = driver
        self.instance_id = instance_id
        self.member_id = ""
        self.owned: frozenset[int] = frozenset()
        self.has_given_up = False
        self.rejoin()

    def rejoin(self) -> None:
        self.joining: int | None = None
        self.joined: m.JoinGroupResponse | None = None
        self.syncing: int | None = None
        self.is_settled = False

    @property
    def owes_a_join(self) -> bool:
        """Whether it has given partitions up, which another gets when it joins again, and it has not yet."""
        return self.has_given_up and self.joined is None

    def hear_of(self, error: Error) -> None:
        """Of a member that is told to rejoin the partitions stay; of one that is not in the group any more not."""
        if error is not Error.REBALANCE_IN_PROGRESS:
            self.owned = frozenset()
        if error in HAS_NO_PLACE:
            self.member_id = ""
        self.rejoin()

    def go_on(self) -> None:
        """The next thing that the client would do by itself."""
        driver = self.driver
        if self.joining is not None:
            self._hear_of_join(self.joining)
        elif self.syncing is not None:
            self._hear_of_sync(self.syncing)
        elif self.joined is None:
            metadata = subscription(["foo"], {"foo": self.owned})
            self.joining = driver.join(self.member_id, metadata=metadata, instance_id=self.instance_id)
        elif not self.is_settled:
            self.syncing = driver.sync(self.joined, self._assignments(self.joined), self.instance_id)
        else:
            error = driver.heartbeat(self.member_id, self.joined.generation_id, self.instance_id)
            if error is not Error.NONE:
                self.hear_of(error)

    def _hear_of_join(self, call: int) -> None:
        if call not in self.driver.answers:
            return
        response = self.driver.joined(call)
        self.joining = None
        if response.error_code == Error.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif response.error_code == Error.NONE:
            self.member_id = response.member_id
            self.joined = response
        else:
            self.hear_of(Error(response.error_code))

    def _hear_of_sync(self, call: int) -> None:
        if call not in self.driver.answers:
            return
        self.syncing = None
        error = Error(self.driver.answers[call].error_code)
        if error is not Error.NONE:
            self.hear_of(error)
            return
        new = self.driver.synced(call).get("foo", frozenset())
        has_lost = bool(self.owned - new)
        self.owned = new
        self.is_settled = True
        self.has_given_up = has_lost
        if has_lost:
            self.rejoin()

    def _assignments(self, joined: m.JoinGroupResponse) -> dict[str, bytes]:
        """As the leader of a classic group: nobody gets what another one has yet to give up."""
        owned = {
            member.member_id: {
                partition
                for each in read_subscription(bytes(member.metadata)).owned_partitions
                for partition in each.partitions
            }
            for member in joined.members
        }
        shares: dict[str, list[int]] = {member_id: [] for member_id in owned}
        for partition in PARTITIONS if shares else ():
            wanted = sorted(shares)[partition % len(shares)]
            if all(partition not in parts for member_id, parts in owned.items() if member_id != wanted):
                shares[wanted].append(partition)
        return {member_id: assignment({"foo": share}) for member_id, share in shares.items()}

    def lose_connection(self) -> None:
        self.rejoin()

    def leave(self) -> None:
        if self.member_id:
            self.driver.leave(self.member_id, self.instance_id)


class ConsumerClient:
    """A consumer of the newer protocol, which gives up what it has to a moment after it was told."""

    def __init__(self, driver: Driver, instance_id: str | None) -> None:
        self.driver = driver
        self.instance_id = instance_id
        driver.calls += 1
        self.member_id = f"consumer-{driver.calls}"
        self.epoch = 0
        self.owned: frozenset[int] = frozenset()
        self.target: frozenset[int] = frozenset()
        self.call: int | None = None
        """What it waits for an answer to."""

    def go_on(self) -> None:
        if self.call is None:
            self.owned = self.target
            self.call = self.driver.begin_to_beat(self._request())
        if self.call in self.driver.answers:
            response, self.call = self.driver.answered(self.call), None
            self._take(response)

    def _request(self) -> m.ConsumerGroupHeartbeatRequest:
        if self.epoch == 0:
            return join(GROUP, self.member_id, "foo", instance_id=self.instance_id)
        owned = {topic_id("foo"): self.owned} if self.owned else {}
        return beat(GROUP, self.member_id, self.epoch, owned, instance_id=self.instance_id)

    def _take(self, response: m.ConsumerGroupHeartbeatResponse) -> None:
        if response.error_code != Error.NONE:
            self.epoch = 0
            self.owned = self.target = frozenset()
            return
        self.epoch = response.member_epoch
        given = assigned(response)
        if given is not None:
            self.target = frozenset(given.get(topic_id("foo"), ()))
            self.owned |= self.target

    def lose_connection(self) -> None:
        self.call = None

    def leave(self) -> None:
        self.driver.beat(leave(GROUP, self.member_id, instance_id=self.instance_id))


class MigrationMachine(RuleBasedStateMachine):
    settings_of_groups: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver({"foo": len(PARTITIONS)}, **self.settings_of_groups)
        self.clients: list[ClassicClient | ConsumerClient | None] = [None] * len(INSTANCE_IDS)
        self.is_join_owed = False
        """Whether a static member crashed after it had given partitions up and before it joined again. Its successor
        takes its place in a stable group without a rebalance, so that nobody gets them before the next one. Apache
        Kafka does the same (`tests/wire/test_static_members.py`)."""

    @rule(index=CLIENTS, kind=st.sampled_from([ClassicClient, ConsumerClient]))
    def client_starts(self, index: int, kind: type[ClassicClient | ConsumerClient]) -> None:
        """A client that was there is gone without a word, as after a crash."""
        before = self.clients[index]
        is_in_classic_group = not isinstance(self.driver.shard._groups.get(GROUP), ConsumerGroup)
        if isinstance(before, ClassicClient) and before.instance_id is not None and kind is ClassicClient:
            self.is_join_owed |= before.owes_a_join and is_in_classic_group
        self.clients[index] = kind(self.driver, INSTANCE_IDS[index])

    @rule(index=CLIENTS, kind=st.sampled_from([ClassicClient, ConsumerClient]))
    def client_is_replaced(self, index: int, kind: type[ClassicClient | ConsumerClient]) -> None:
        """As in a rolling upgrade or downgrade of an application."""
        self.client_leaves(index)
        self.client_starts(index, kind)

    @rule(index=CLIENTS)
    def client_leaves(self, index: int) -> None:
        client = self.clients[index]
        if client is not None:
            client.leave()
            self.clients[index] = None

    @rule(index=CLIENTS, steps=st.integers(1, 3))
    def one_client_goes_on(self, index: int, steps: int) -> None:
        client = self.clients[index]
        for _ in range(steps):
            if client is not None:
                client.go_on()
                self.nobody_reads_what_another_reads()

    @rule(rounds=st.integers(1, 6), pause_ms=st.sampled_from([0, 1_000]))
    def all_clients_go_on(self, rounds: int, pause_ms: int) -> None:
        for _ in range(rounds):
            for index in range(len(self.clients)):
                self.one_client_goes_on(index, 1)
            self.driver.pass_time(pause_ms)

    @rule(duration_ms=DURATIONS_MS)
    def time_passes(self, duration_ms: int) -> None:
        self.driver.pass_time(duration_ms)

    @rule()
    def coordinator_restarts(self) -> None:
        self.driver.restart()
        for client in self.clients:
            if client is not None:
                client.lose_connection()

    @rule()
    def left_alone_the_group_settles(self) -> None:
        """Whoever is gone is missed at last, and whoever is there shares all partitions."""
        self._wait_until_everybody_is_missed_or_there()
        if self.is_join_owed:
            self.is_join_owed = False
            for client in self.clients:
                if isinstance(client, ClassicClient):
                    client.rejoin()
            self._wait_until_everybody_is_missed_or_there()
        present = [client for client in self.clients if client is not None]
        if present:
            assert sorted(partition for client in present for partition in client.owned) == sorted(PARTITIONS)

    def _wait_until_everybody_is_missed_or_there(self) -> None:
        for _ in range(2 * (REBALANCE_MS + SESSION_MS) // 2_000):
            self.all_clients_go_on(rounds=1, pause_ms=2_000)

    @invariant()
    def nobody_reads_what_another_reads(self) -> None:
        group = self.driver.shard._groups.get(GROUP)
        if group is None:
            return
        read: dict[int, str] = {}
        for client in self.clients:
            if client is not None and client.member_id in group.members:
                for partition in client.owned:
                    assert partition not in read, f"{read[partition]} and {client.member_id} read {partition}"
                    read[partition] = client.member_id

    @invariant()
    def no_partition_is_given_twice(self) -> None:
        group = self.driver.shard._groups.get(GROUP)
        if isinstance(group, ConsumerGroup):
            given = [
                partition
                for member in group.members.values()
                for part in (member.assigned, member.pending_revocation)
                for partition in part.get(topic_id("foo"), ())
            ]
            assert len(given) == len(set(given))

    @invariant()
    def whoever_is_in_a_group_is_missed_when_it_is_gone(self) -> None:
        group = self.driver.shard._groups.get(GROUP)
        if group is not None and len(group.members):
            assert group.next_deadline_ms is not None


class GatheringMigrationMachine(MigrationMachine):
    """The same where assignments have to wait, and members of the newer protocol for the answers to their joins."""

    settings_of_groups: ClassVar[dict[str, Any]] = {"assignment_interval_ms": 1_000, "gathering_ms": 50}


class UpgradeMachine(GatheringMigrationMachine):
    """The same where a consumer group stays one, also when all of its members are classic."""

    settings_of_groups: ClassVar[dict[str, Any]] = {
        **GatheringMigrationMachine.settings_of_groups,
        "migration_policy": "upgrade",
    }


for machine in (MigrationMachine, GatheringMigrationMachine, UpgradeMachine):
    machine.TestCase.settings = settings(
        max_examples=100, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
TestMigration = MigrationMachine.TestCase
TestGatheringMigration = GatheringMigrationMachine.TestCase
TestUpgrade = UpgradeMachine.TestCase


def test_a_group_that_comes_down_and_goes_up_again_knows_what_its_members_still_read() -> None:
    """The last member of the newer protocol goes before a classic one has given up what it was to give up."""
    machine = MigrationMachine()
    machine.client_starts(1, ClassicClient)
    machine.left_alone_the_group_settles()
    machine.client_starts(2, ConsumerClient)
    machine.one_client_goes_on(2, 1)
    machine.client_leaves(2)
    machine.client_starts(0, ConsumerClient)
    machine.one_client_goes_on(0, 1)
    machine.no_partition_is_given_twice()
    machine.left_alone_the_group_settles()


def test_what_a_static_member_gave_up_before_it_crashed_is_given_out_at_the_next_rebalance() -> None:
    machine = MigrationMachine()
    machine.client_starts(0, ClassicClient)
    machine.left_alone_the_group_settles()
    machine.client_starts(1, ClassicClient)
    static = machine.clients[0]
    assert isinstance(static, ClassicClient)
    for _ in range(50):
        if static.owes_a_join:
            break
        machine.all_clients_go_on(rounds=1, pause_ms=1_000)
    assert static.owes_a_join
    machine.client_starts(0, ClassicClient)
    assert machine.is_join_owed
    machine._wait_until_everybody_is_missed_or_there()
    owned = [partition for client in machine.clients if client is not None for partition in client.owned]
    assert len(owned) < len(PARTITIONS), "nobody has what the static member gave up"
    machine.left_alone_the_group_settles()
