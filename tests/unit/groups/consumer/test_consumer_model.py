"""Members come, go, fall silent and miss answers, topics come and go, the coordinator restarts: whatever the order, no
partition has two owners, all have one in the end, and the log tells the same as the state."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.groups import group_records
from barnabas.groups.consumer.consumer_group import ConsumerGroup
from barnabas.groups.consumer.consumer_member import STATIC_LEAVE_EPOCH
from barnabas.groups.consumer.step_context import ConsumerGroupSettings
from barnabas.protocol.errors import Error
from barnabas.protocol.uuids import Uuid
from tests.unit.groups.consumer.consumer_driver import GROUP, Driver, Member
from tests.unit.groups.consumer_requests import REBALANCE_TIMEOUT_MS, beat, topic

INTERVAL_MS = 1_000
SESSION_MS = 45_000
NAMES = ("foo", "bar", "baz")
CLIENTS = 4

subscriptions = st.sets(st.sampled_from(NAMES), min_size=1).map(sorted)
clients = st.integers(0, CLIENTS - 1)
regexes = st.sampled_from(["ba.", "foo|baz", ".*", "nothing"])


class Client(Member):
    """A process that may join as one member after the other."""

    def __init__(self, number: int) -> None:
        super().__init__(f"{number}.0", instance_id=f"i{number}" if number == 0 else None)
        self.number = number
        self.lives = 0
        self.subscription: dict[str, Any] = {}
        self.has_missed_an_answer = False

    def news(self, **changed: Any) -> dict[str, Any]:
        """What its next heartbeat tells beside what it owns: all, if it does not know what it was last told."""
        if not self.has_missed_an_answer:
            return changed
        self.has_missed_an_answer = False
        return {"rebalance_timeout_ms": REBALANCE_TIMEOUT_MS, **self.subscription}

    def be_born_again(self) -> None:
        self.lives += 1
        self.member_id = f"{self.number}.{self.lives}"
        self.drop()


class ConsumerGroupMachine(RuleBasedStateMachine):
    gathering_ms = 0

    def __init__(self) -> None:
        super().__init__()
        settings = ConsumerGroupSettings(assignment_interval_ms=INTERVAL_MS, gathering_ms=self.gathering_ms)
        self.driver = Driver(settings=settings)
        self.clients = [Client(number) for number in range(CLIENTS)]
        self.partitions: dict[str, int] = {}
        self.lives: dict[str, int] = {}
        self.epochs: dict[str, int] = {}

    @property
    def group(self) -> ConsumerGroup | None:
        group = self.driver.shard._groups.get(GROUP)
        assert group is None or isinstance(group, ConsumerGroup)
        return group

    @initialize()
    def begin_with_topics(self) -> None:
        self.partitions = {"foo": 3, "bar": 2}
        self._publish()

    def _publish(self) -> None:
        self.driver.set_topics(*(topic(name, count, self._id(name)) for name, count in self.partitions.items()))

    def _id(self, name: str) -> Uuid:
        return Uuid(f"{name} {self.lives.get(name, 0)}".encode().ljust(16))

    # What happens to the cluster.

    @rule(name=st.sampled_from(NAMES), more=st.integers(1, 3))
    def make_or_enlarge_a_topic(self, name: str, more: int) -> None:
        self.partitions[name] = min(self.partitions.get(name, 0) + more, 8)
        self._publish()

    @rule(name=st.sampled_from(NAMES))
    def delete_a_topic(self, name: str) -> None:
        if self.partitions.pop(name, None) is not None:
            self.lives[name] = self.lives.get(name, 0) + 1
            self._publish()

    @rule(duration_ms=st.sampled_from([10, INTERVAL_MS, 11_000, SESSION_MS // 2, SESSION_MS]))
    def let_time_pass(self, duration_ms: int) -> None:
        self.driver.pass_ms(duration_ms)

    @rule()
    def restart_the_coordinator(self) -> None:
        self.driver.restart()

    # What clients do.

    @rule(number=clients, topics=subscriptions)
    def join(self, number: int, topics: list[str]) -> None:
        self._join(self.clients[number], subscribed_topic_names=topics, subscribed_topic_regex="")

    @rule(number=clients, regex=regexes)
    def join_by_regex(self, number: int, regex: str) -> None:
        self._join(self.clients[number], subscribed_topic_names=[], subscribed_topic_regex=regex)

    def _join(self, client: Client, **subscription: Any) -> None:
        """As who it is if it is in the group, or else as somebody new."""
        if client.is_in and not self._is_member(client):
            client.be_born_again()
        client.subscription = subscription
        names = subscription["subscribed_topic_names"]
        response = self.driver.join(client, *names, regex=subscription["subscribed_topic_regex"])
        assert response.error_code in (Error.NONE, Error.UNRELEASED_INSTANCE_ID)

    @rule(number=clients)
    def beat(self, number: int) -> None:
        client = self.clients[number]
        if client.is_in:
            response = self.driver.beat(client, **client.news())
            allowed = (Error.NONE, Error.FENCED_MEMBER_EPOCH, Error.UNKNOWN_MEMBER_ID, Error.FENCED_INSTANCE_ID)
            assert response.error_code in (*allowed, Error.GROUP_ID_NOT_FOUND)
            if response.error_code not in (Error.NONE, Error.FENCED_MEMBER_EPOCH):
                client.be_born_again()

    @rule(number=clients)
    def beat_and_say_nothing_of_what_is_owned(self, number: int) -> None:
        client = self.clients[number]
        if client.is_in:
            client.take(self.driver.ask(beat(GROUP, client.member_id, client.epoch, instance_id=client.instance_id)))

    @rule(number=clients)
    def beat_and_miss_the_answer(self, number: int) -> None:
        client = self.clients[number]
        if client.is_in:
            fields = {"instance_id": client.instance_id}
            self.driver.ask(beat(GROUP, client.member_id, client.epoch, client.owned, **fields))
            client.has_missed_an_answer = True

    @rule(number=clients, topics=subscriptions)
    def change_the_subscription(self, number: int, topics: list[str]) -> None:
        client = self.clients[number]
        if client.is_in and self._is_member(client):
            client.subscription = {"subscribed_topic_names": topics, "subscribed_topic_regex": ""}
            self.driver.beat(client, **client.news(**client.subscription))

    @rule(number=clients)
    def leave(self, number: int) -> None:
        client = self.clients[number]
        if client.is_in:
            self.driver.leave(client)
            client.be_born_again()

    @rule()
    def go_away_for_a_while(self) -> None:
        client = self.clients[0]
        if client.is_in:
            self.driver.leave(client, epoch=STATIC_LEAVE_EPOCH)
            client.be_born_again()

    @rule(number=clients)
    def die(self, number: int) -> None:
        self.clients[number].be_born_again()

    def _is_member(self, client: Client) -> bool:
        return self.group is not None and client.member_id in self.group.members

    # What holds.

    @precondition(lambda self: any(client.is_in for client in self.clients))
    @rule()
    def settle(self) -> None:
        """The living beat until the dead are gone and all that is left to do is done."""
        for _ in range(2 * SESSION_MS // 15_000):
            self.driver.pass_ms(15_000)
            self._all_beat()
        for _ in range(8):
            self.driver.pass_ms(INTERVAL_MS)
            self._all_beat()
        living = [client for client in self.clients if client.is_in]
        group = self.group
        assert group is not None
        assert set(group.members) == {client.member_id for client in living}
        assert group.state.value == "Stable"
        owned = sorted(
            (topic_id, each)
            for client in living
            for topic_id, partitions in client.owned.items()
            for each in partitions
        )
        wanted = group.subscribed_topics() & self.partitions.keys()
        assert owned == sorted((self._id(name), each) for name in wanted for each in range(self.partitions[name]))
        for client in living:
            mine = {self._id(name) for name in group.topics_of(group.members[client.member_id])}
            assert client.owned.keys() <= mine

    def _all_beat(self) -> None:
        for client in [each for each in self.clients if each.is_in]:
            self.beat(client.number)
            if not client.is_in:
                self._join(client, **client.subscription)

    @invariant()
    def no_client_reads_what_the_group_has_not_given_it(self) -> None:
        """And as the group gives nothing to two members, no two clients read the same."""
        group = self.group
        for client in self.clients:
            if client.is_in and group is not None and client.member_id in group.members:
                for topic_id, partitions in client.owned.items():
                    for partition in partitions:
                        assert group.owner_of(topic_id, partition) == client.member_id

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        seen = set()
        for member in () if self.group is None else self.group.members.values():
            for owned in (member.assigned, member.pending_revocation):
                for topic_id, partitions in owned.items():
                    for partition in partitions:
                        assert (topic_id, partition) not in seen
                        seen.add((topic_id, partition))

    @invariant()
    def epochs_do_not_fall(self) -> None:
        group = self.group
        now: dict[str, int] = {}
        if group is not None:
            now = {member.member_id: member.epoch for member in group.members.values() if member.epoch >= 0}
            now |= {"of the group": group.epoch, "of the assignment": group.assignment_epoch}
        for whose, epoch in now.items():
            assert epoch >= self.epochs.get(whose, epoch)
        self.epochs = now

    @invariant()
    def the_log_tells_the_same(self) -> None:
        read: ConsumerGroup | None = None
        for record in self.driver.log:
            decoded = group_records.decode(*group_records.encode(record))
            assert decoded is not None
            if read is None or read.is_dead:
                read = ConsumerGroup(GROUP)
            read.replay(decoded)
        assert told(None if read is None or read.is_dead else read) == told(self.group)


def told(group: ConsumerGroup | None) -> dict[str, Any] | None:
    """All of a group but its deadlines, and the last look at its topics."""
    forgotten = {"session_deadlines_ms", "rebalance_deadlines", "_earliest_deadline_ms"}
    forgotten |= {"hashed_at_change", "is_resolving_regexes", "first_change_ms", "last_change_ms", "waiting_joins"}
    forgotten |= {"has_lost_members"}
    if group is None:
        return None
    return {name: getattr(group, name) for name in ConsumerGroup.__slots__ if name not in forgotten}


class GatheringMachine(ConsumerGroupMachine):
    """The same of a group whose members may wait for the answer to their join, and do something else meanwhile."""

    gathering_ms = 50

    @rule(number=clients, topics=subscriptions)
    def begin_to_join(self, number: int, topics: list[str]) -> None:
        client = self.clients[number]
        if client.is_in and not self._is_member(client):
            client.be_born_again()
        client.subscription = {"subscribed_topic_names": topics, "subscribed_topic_regex": ""}
        self.driver.begin_to_join(client, *topics)

    @rule(number=clients)
    def leave_while_joining(self, number: int) -> None:
        client = self.clients[number]
        if not client.is_in and self._is_member(client):
            self.driver.leave(client)
            client.be_born_again()

    @rule()
    def let_a_moment_pass(self) -> None:
        self.driver.pass_ms(self.gathering_ms)

    @invariant()
    def nobody_waits_for_an_assignment_that_is_made(self) -> None:
        assert self.group is None or not (self.group.waiting_joins and self.group.is_assigned)


for machine in (ConsumerGroupMachine, GatheringMachine):
    machine.TestCase.settings = settings(
        max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
TestConsumerGroup = ConsumerGroupMachine.TestCase
TestGatheringConsumerGroup = GatheringMachine.TestCase
