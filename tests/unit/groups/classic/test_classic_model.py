"""Classic groups under random clients: they come, go, restart, fall silent and speak as zombies, and the coordinator
restarts under them. Whatever happens, no partition is granted twice, and nobody waits for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from barnabas.groups.classic.classic_group import ClassicGroupSettings, ClassicGroupState
from barnabas.groups.classic.classic_members import NEVER_MS
from barnabas.groups.classic.joining import NEW_MEMBER_JOIN_TIMEOUT_MS
from barnabas.protocol.errors import Error
from tests.unit.groups.classic.classic_driver import INITIAL_DELAY_MS, REBALANCE_MS, SESSION_MS, Driver

if TYPE_CHECKING:
    from barnabas.groups.classic.classic_members import ClassicMember
    from barnabas.protocol import messages as m
    from tests.unit.groups.classic.classic_driver import Call

SETTINGS = ClassicGroupSettings(group_max_size=6, group_initial_rebalance_delay_ms=INITIAL_DELAY_MS)
PARTITIONS = range(7)
INSTANCE_IDS = ["static-a", None, None, "static-b", "static-b", None]
"""Of six clients. Two of them were given the same instance id by mistake."""

CLIENTS = st.integers(0, len(INSTANCE_IDS) - 1)
VERSIONS = st.sampled_from([3, 4, 8, 9])
DURATIONS_MS = st.sampled_from([0, 1, 1_000, INITIAL_DELAY_MS, SESSION_MS - 1, SESSION_MS, REBALANCE_MS])


class Client:
    """A consumer as applications have it: it joins, syncs, then sends heartbeats, and begins again when told to."""

    def __init__(self, instance_id: str | None) -> None:
        self.instance_id = instance_id
        self.metadata = b"topics"
        self.restart()

    def restart(self) -> None:
        self.member_id = ""
        self.joining: Call[m.JoinGroupResponse] | None = None
        self.joined: m.JoinGroupResponse | None = None
        self.syncing: Call[m.SyncGroupResponse] | None = None
        self.is_settled = False

    def begin_again(self, error: Error) -> None:
        member_id = "" if error in (Error.UNKNOWN_MEMBER_ID, Error.FENCED_INSTANCE_ID) else self.member_id
        self.restart()
        self.member_id = member_id

    @property
    def protocols(self) -> list[tuple[str, bytes]]:
        return [("range", self.metadata), ("roundrobin", b"")]


class ClassicGroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver(SETTINGS)
        self.clients = [Client(instance_id) for instance_id in INSTANCE_IDS]
        self.granted: dict[tuple[str, int], frozenset[int]] = {}
        """What members were told is theirs, by member id and generation."""
        self.leaders: dict[int, str] = {}
        """Who was told that it leads, by generation."""

    @rule(index=CLIENTS, version=VERSIONS)
    def one_client_goes_on(self, index: int, version: int) -> None:
        self.client_goes_on(index, version)

    def client_goes_on(self, index: int, version: int) -> None:
        """The next thing that the client would do by itself."""
        client = self.clients[index]
        if client.joining is None and client.joined is None:
            version = max(version, 5) if client.instance_id else version
            client.joining = self.driver.join(
                client.member_id, instance_id=client.instance_id, protocols=client.protocols, version=version
            )
        elif client.joining is not None:
            self._hear_of_join(client, client.joining)
        elif client.syncing is not None:
            self._hear_of_sync(client, client.syncing)
        elif client.joined is not None and not client.is_settled:
            client.syncing = self._sync(client, client.joined, list(PARTITIONS))
        elif client.joined is not None:
            error = self.driver.heartbeat(client.member_id, client.joined.generation_id, client.instance_id)
            if error is not Error.NONE:
                client.begin_again(error)

    @rule(rounds=st.integers(1, 8), pause_ms=st.sampled_from([0, 1_000, INITIAL_DELAY_MS]), version=VERSIONS)
    def all_clients_go_on(self, rounds: int, pause_ms: int, version: int) -> None:
        for _ in range(rounds):
            for index in range(len(self.clients)):
                self.client_goes_on(index, version)
            self.driver.pass_time(pause_ms)

    @rule(index=CLIENTS)
    def client_restarts_without_saying_so(self, index: int) -> None:
        self.clients[index].restart()

    @rule(index=CLIENTS)
    def client_wants_other_topics(self, index: int) -> None:
        client = self.clients[index]
        client.metadata += b"+"
        client.joined, client.is_settled, client.syncing = None, False, None

    @rule(index=CLIENTS)
    def client_leaves(self, index: int) -> None:
        client = self.clients[index]
        self.driver.leave((client.member_id, client.instance_id))
        client.restart()

    @rule(index=CLIENTS)
    def leader_hands_in_another_assignment(self, index: int) -> None:
        client = self.clients[index]
        if client.joined is not None and client.is_settled:
            self._sync(client, client.joined, list(reversed(PARTITIONS)))

    @rule(index=CLIENTS, generations_off=st.sampled_from([-1, 1, 2]))
    def zombie_speaks(self, index: int, generations_off: int) -> None:
        client = self.clients[index]
        before = self._fingerprint()
        current = self.driver.group.generation
        generation = current + generations_off if current else 1
        for member_id in (client.member_id, "nobody"):
            assert self.driver.heartbeat(member_id, generation, client.instance_id) is not Error.NONE
            assert self.driver.group.check_commit(member_id, client.instance_id, generation) is not Error.NONE
        assert self._fingerprint() == before

    @rule(duration_ms=DURATIONS_MS)
    def time_passes(self, duration_ms: int) -> None:
        self.driver.pass_time(duration_ms)

    @rule()
    def coordinator_restarts(self) -> None:
        """A generation that was not written may come again. Requests that wait fail, and are made again."""
        for client in self.clients:
            if client.joining is not None:
                self._hear_of_join(client, client.joining)
            if client.syncing is not None:
                self._hear_of_sync(client, client.syncing)
            client.joining = client.syncing = None
        self.driver.restart()
        self.leaders.clear()

    def teardown(self) -> None:
        """When all clients are gone, everybody is answered in the end, and the group is empty."""
        self.driver.pass_time(2 * NEW_MEMBER_JOIN_TIMEOUT_MS)
        assert self.driver.unanswered == set()
        assert self.driver.group.is_empty
        assert self.driver.group.next_deadline_ms is None

    @invariant()
    def no_partition_is_granted_twice(self) -> None:
        """Of all grants that were ever made, those whose commits would be taken do not overlap."""
        taken: set[int] = set()
        for (member_id, generation), partitions in self.granted.items():
            member = self.driver.group.members.get(member_id)
            instance_id = None if member is None else member.instance_id
            if self.driver.group.check_commit(member_id, instance_id, generation) is Error.NONE:
                assert not taken & partitions
                taken |= partitions

    @invariant()
    def what_is_at_rest_is_written(self) -> None:
        group = self.driver.group
        if group.is_stable or (group.is_empty and self.driver.records):
            assert group.record() == self.driver.records[-1]

    @invariant()
    def members_fit_the_state(self) -> None:
        group = self.driver.group
        members = list(group.members)
        if group.state is not ClassicGroupState.PREPARING_REBALANCE:
            assert all(member.waiting_for_join is None for member in members)
        if group.state is not ClassicGroupState.COMPLETING_REBALANCE:
            assert all(member.waiting_for_sync is None for member in members)
        assert group.members.joined_count == sum(member.waiting_for_join is not None for member in members)
        ids = {member.member_id for member in members}
        assert group.members.leader_id in ids or (group.members.leader_id is None and not ids)
        assert group.unsynced <= ids
        if group.is_empty:
            assert members == []
        if group.state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE):
            assert members
            assert all(group.protocol_name in member.protocols for member in members)

    @invariant()
    def somebody_wakes_the_group_in_time(self) -> None:
        group = self.driver.group
        deadlines = [group.join_deadline_ms, group.sync_deadline_ms, *group.pending_deadlines_ms.values()]
        deadlines += [member.session_deadline_ms for member in group.members]
        next_ms = NEVER_MS if group.next_deadline_ms is None else group.next_deadline_ms
        assert next_ms <= min(deadlines)
        assert (group.join_deadline_ms != NEVER_MS) == (group.state is ClassicGroupState.PREPARING_REBALANCE)
        assert (group.sync_deadline_ms != NEVER_MS) == bool(group.unsynced)
        assert group.state is not ClassicGroupState.COMPLETING_REBALANCE or group.members.leader_id in group.unsynced
        assert all(member.session_deadline_ms != NEVER_MS or _waits(member) for member in group.members)

    def _hear_of_join(self, client: Client, joining: Call[m.JoinGroupResponse]) -> None:
        if joining.waits:
            return
        response = joining.response
        error = Error(response.error_code)
        if error is not Error.NONE:
            client.begin_again(error)
            if error is Error.MEMBER_ID_REQUIRED:
                client.member_id = response.member_id
            return
        client.joining, client.joined, client.member_id = None, response, response.member_id
        if response.leader == response.member_id and not response.skip_assignment:
            assert self.leaders.setdefault(response.generation_id, response.member_id) == response.member_id

    def _hear_of_sync(self, client: Client, syncing: Call[m.SyncGroupResponse]) -> None:
        if syncing.waits:
            return
        client.syncing = None
        error = Error(syncing.response.error_code)
        if error is not Error.NONE or client.joined is None:
            client.begin_again(error)
            return
        client.is_settled = True
        key = (client.member_id, client.joined.generation_id)
        partitions = frozenset(syncing.response.assignment)
        assert self.granted.setdefault(key, partitions) == partitions

    def _sync(self, client: Client, joined: m.JoinGroupResponse, partitions: list[int]) -> Call[m.SyncGroupResponse]:
        ids = [member.member_id for member in joined.members]
        assignments = {member_id: bytes(partitions[place :: len(ids)]) for place, member_id in enumerate(ids)}
        return self.driver.sync(joined, assignments=assignments, instance_id=client.instance_id)

    def _fingerprint(self) -> object:
        group = self.driver.group
        members = [(member.member_id, member.assignment, _waits(member)) for member in group.members]
        return group.state, group.generation, group.members.leader_id, members, len(self.driver.records)


def _waits(member: ClassicMember) -> bool:
    return member.waiting_for_join is not None or member.waiting_for_sync is not None


ClassicGroupMachine.TestCase.settings = settings(
    max_examples=120, stateful_step_count=60, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestClassicGroup = ClassicGroupMachine.TestCase
