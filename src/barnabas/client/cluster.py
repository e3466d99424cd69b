"""A cluster as a client sees it: brokers found from the bootstrap servers, and the right one asked for each thing.

    with Cluster.connect(ClientSettings.from_options({"bootstrap.servers": "localhost:9092"})) as cluster:
        response = cluster.ask_leader("orders", 0, Call(ApiKey.LIST_OFFSETS, make_request, error_code))

Connections are kept, one per address, and made when first needed. Metadata is kept per topic until something says
that it is old: an error about leadership, or a broken connection. Then the call drops it, waits a little and tries
again, up to its deadline, so that a broker that restarts or hands over leadership is only a delay. What comes out of a
call is an answer without such an error, or a `KafkaError` that says what failed, where, and what to do.

Blocking, without threads of its own; not for use by several threads at once. A connection that is handed out stays the
cluster's: a caller that sends on it without waiting receives all answers before it calls the cluster again.
"""

from __future__ import annotations

import functools
import random
import ssl
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from barnabas.client import sasl, tls
from barnabas.client.broker_connection import (
    TRANSIENT,
    AuthenticationError,
    ConnectError,
    Connection,
    ConnectionLostError,
    WireError,
    api_name,
)
from barnabas.client.client_settings import Address, ClientSettings
from barnabas.client.retries import (
    COORDINATOR_ERRORS,
    LEADERSHIP_ERRORS,
    RETRIED,
    Attempts,
    RetriableError,
    failure_of,
    retrying,
)
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error, KafkaError
from barnabas.protocol.uuids import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType

    from barnabas.protocol.messages import Message

    Topic = m.MetadataResponse.MetadataResponseTopic

TopicPartition = tuple[str, int]

GROUP_COORDINATOR: Final = 0
TRANSACTION_COORDINATOR: Final = 1
_COORDINATED: Final = {GROUP_COORDINATOR: "group", TRANSACTION_COORDINATOR: "transactional id"}

COORDINATORS_MAX: Final = 1_024
"""How many are remembered: a process that lives on, and has each write under a name of its own, asks for ever more."""

_NO_LEADER: Final = -1
_NO_CONTROLLER: Final = -1
_CONTROLLERS: Final = 2
"""The type of endpoints that DescribeCluster is asked for."""
_OF_CONTROLLERS: Final = frozenset({Error.NOT_CONTROLLER})
_UNTIL_IT_IS_THERE: Final = frozenset({Error.BROKER_NOT_AVAILABLE})
_KEYS_IN_A_LIST: Final = 4
"""The first version of FindCoordinator that asks for several keys."""


class Fault(NamedTuple):
    """An error in a part of an answer, with the topic-partition that it is about."""

    code: int
    where: str


class Call(NamedTuple):
    """A request to be made in whatever version the broker that is found speaks, and how to read its outcome."""

    api_key: ApiKey
    make_request: Callable[[int], Message]
    """The request in a version."""
    error_code: Callable[[Any], int | Fault] = lambda response: int(response.error_code)
    """The error in the answer that decides whether it counts."""
    version_max: int | None = None
    """The newest version that the two functions above can use, where that is not the newest there is."""
    retried: frozenset[Error] = frozenset()
    """Further errors, of this API only, after which the same broker is asked again."""


class Coordinator(NamedTuple):
    """The broker that coordinates a group or a transactional id."""

    node_id: int
    address: Address


class KeyAnswer(NamedTuple):
    """What an answer to a question about several groups or transactional ids says of one of them."""

    key: str
    error_code: int
    content: Any


class Coordinated(NamedTuple):
    """What the coordinator of a group or a transactional id says of it."""

    error: Error
    content: Any
    """The part of the answer that is about it; None if it has no coordinator, for which `error` is the reason."""
    coordinator: Coordinator | None


class _Found(NamedTuple):
    """The coordinator of a key, or why it has none."""

    key: str
    coordinator: Coordinator | KafkaError


class PartitionMetadata(NamedTuple):
    leader_id: int
    leader_epoch: int


class TopicMetadata(NamedTuple):
    name: str
    topic_id: Uuid
    is_internal: bool
    partitions: dict[int, PartitionMetadata]


class Cluster:
    """Connections to the brokers of one cluster, and what is known of who does what."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._connections: dict[Address, Connection] = {}
        self._brokers: dict[int, Address] = {}
        self._controller_id = _NO_CONTROLLER
        self._topics: dict[str, TopicMetadata] = {}
        self._old: set[str] = set()
        """Topics of which the metadata in hand is not to be relied on any more."""
        self._coordinators: dict[tuple[str, int], Coordinator] = {}

    @classmethod
    def connect(cls, settings: ClientSettings) -> Cluster:
        """A cluster that has answered once."""
        cluster = cls(settings)
        try:
            cluster.nodes()
        except BaseException:
            cluster.close()
            raise
        return cluster

    def close(self) -> None:
        """Close all connections. Later calls make new ones."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def close_busy(self) -> None:
        """Close the connections on which an answer is still to come, that nobody will wait for any more."""
        for connection in self._connections.values():
            if connection.in_flight:
                connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def any(self, *, timeout_ms: int | None = None) -> Connection:
        """A connection to some broker."""
        return retrying(self.settings, self._any, timeout_ms)

    def leader(self, topic: str, partition: int, *, timeout_ms: int | None = None) -> Connection:
        """A connection to the broker that leads a partition, as far as is known; it may have to be asked to be sure."""
        return retrying(self.settings, lambda attempts: self._leader(topic, partition, attempts), timeout_ms)

    def leader_at_hand(self, topic: str, partition: int) -> Connection | None:
        """What `leader` would return, if nobody has to be asked for it: to be had while answers are due."""
        known = self._topics.get(topic)
        if known is None or topic in self._old or partition not in known.partitions:
            return None
        address = self._brokers.get(known.partitions[partition].leader_id)
        connection = None if address is None else self._connections.get(address)
        return connection if connection is not None and connection.is_usable() else None

    def coordinator(self, key: str, key_type: int = GROUP_COORDINATOR, *, timeout_ms: int | None = None) -> Connection:
        """A connection to the coordinator of a group or of a transactional id."""
        return retrying(self.settings, lambda attempts: self._coordinator(key, key_type, attempts), timeout_ms)

    def ask_any(self, call: Call, *, timeout_ms: int | None = None) -> Any:
        """The answer of some broker."""

        def attempt(attempts: Attempts) -> Any:
            return self.ask(self._any(attempts), call, attempts, "the cluster")

        return retrying(self.settings, attempt, timeout_ms)

    def ask_broker(self, broker_id: int, call: Call, *, timeout_ms: int | None = None) -> Any:
        """The answer of one broker, or of one controller where `at_controllers` is set."""

        def attempt(attempts: Attempts) -> Any:
            if broker_id not in self._brokers:
                self._find_nodes(attempts)
            address = self._brokers.get(broker_id)
            if address is None:
                raise failure_of(Error.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not there", _UNTIL_IT_IS_THERE)
            try:
                return self.ask(self._connection(address, attempts), call, attempts, f"broker {broker_id}")
            except WireError:
                self._brokers.pop(broker_id, None)
                raise

        return retrying(self.settings, attempt, timeout_ms)

    def ask_controller(self, call: Call, *, timeout_ms: int | None = None) -> Any:
        """The answer of the active controller, or of the broker that is named in its place and asks it."""

        def attempt(attempts: Attempts) -> Any:
            if self._controller_id not in self._brokers:
                self._find_nodes(attempts)
            address = self._brokers.get(self._controller_id)
            if address is None:
                raise failure_of(Error.NOT_CONTROLLER, "the cluster has no active controller", _OF_CONTROLLERS)
            try:
                return self.ask(self._connection(address, attempts), call, attempts, "the controller")
            except (WireError, KafkaError):
                self._controller_id = _NO_CONTROLLER
                raise

        call = call._replace(retried=call.retried | _OF_CONTROLLERS)
        return retrying(self.settings, attempt, timeout_ms)

    def nodes(self, *, timeout_ms: int | None = None) -> dict[int, Address]:
        """The brokers that are alive, or the controllers where `at_controllers` is set, by their ids."""

        def attempt(attempts: Attempts) -> dict[int, Address]:
            self._find_nodes(attempts)
            return dict(self._brokers)

        return retrying(self.settings, attempt, timeout_ms)

    def ask_leader(self, topic: str, partition: int, call: Call, *, timeout_ms: int | None = None) -> Any:
        """The answer of the broker that leads a partition, wherever that is in the end."""

        def attempt(attempts: Attempts) -> Any:
            connection = self._leader(topic, partition, attempts)
            try:
                return self.ask(connection, call, attempts, f"{topic}-{partition}")
            except WireError:
                self.forget_topic(topic)
                raise
            except KafkaError as failure:
                if failure.error in LEADERSHIP_ERRORS:
                    self.forget_topic(topic)
                raise

        return retrying(self.settings, attempt, timeout_ms)

    def ask_coordinator(
        self, key: str, call: Call, *, key_type: int = GROUP_COORDINATOR, timeout_ms: int | None = None
    ) -> Any:
        """The answer of the coordinator of a group or a transactional id."""

        def attempt(attempts: Attempts) -> Any:
            connection = self._coordinator(key, key_type, attempts)
            try:
                return self.ask(connection, call, attempts, f"{_COORDINATED[key_type]} {key!r}")
            except WireError:
                self.forget_coordinator(key, key_type)
                raise
            except KafkaError as failure:
                if failure.error in COORDINATOR_ERRORS:
                    self.forget_coordinator(key, key_type)
                if failure.error is Error.UNKNOWN_TOPIC_OR_PARTITION:
                    raise _absence(failure, attempts) from failure
                raise

        return retrying(self.settings, attempt, timeout_ms)

    def ask_coordinators(
        self,
        keys: Iterable[str],
        call_for: Callable[[list[str]], Call],
        read: Callable[[Any], Iterable[KeyAnswer]],
        *,
        key_type: int = GROUP_COORDINATOR,
        timeout_ms: int | None = None,
    ) -> dict[str, Coordinated]:
        """What the coordinators of groups or transactional ids say of each, where each broker is asked once.

        Those that are being loaded or coordinated by somebody else by now are asked about again. Errors of any other
        kind are part of what comes back.
        """
        wanted = list(dict.fromkeys(keys))
        found: dict[str, Coordinated] = {}

        def attempt(attempts: Attempts) -> dict[str, Coordinated]:
            failures: list[KafkaError] = []
            for coordinator, group in self._asked(wanted, key_type, found, attempts).items():
                subject = ", ".join(f"{_COORDINATED[key_type]} {key!r}" for key in group)
                try:
                    connection = self._connection(coordinator.address, attempts)
                    response = self.ask(connection, call_for(group), attempts, subject)
                except TRANSIENT:
                    for key in group:
                        self.forget_coordinator(key, key_type)
                    raise
                for answer in read(response):
                    error = Error(answer.error_code)
                    if error in COORDINATOR_ERRORS:
                        self.forget_coordinator(answer.key, key_type)
                    if error in RETRIED:
                        failures.append(failure_of(error, f"{_COORDINATED[key_type]} {answer.key!r}"))
                    else:
                        found[answer.key] = Coordinated(error, answer.content, coordinator)
            if failures:
                raise failures[0]
            return {key: found[key] for key in wanted}

        return retrying(self.settings, attempt, timeout_ms)

    def _asked(
        self, keys: Sequence[str], key_type: int, found: dict[str, Coordinated], attempts: Attempts
    ) -> dict[Coordinator, list[str]]:
        """The keys of which nothing is found yet, by their coordinator. That a key has none is something found."""
        missing = [key for key in keys if key not in found]
        known = {key: self._coordinators[key, key_type] for key in missing if (key, key_type) in self._coordinators}
        unknown = [key for key in missing if key not in known]
        for key, coordinator in self._find_coordinators(unknown, key_type, attempts) if unknown else []:
            if isinstance(coordinator, RetriableError):
                raise coordinator
            if isinstance(coordinator, KafkaError):
                found[key] = Coordinated(coordinator.error, None, None)
            else:
                known[key] = coordinator
                self._remember_coordinator(key, key_type, coordinator)
        grouped: dict[Coordinator, list[str]] = {}
        for key, broker in known.items():
            grouped.setdefault(broker, []).append(key)
        return grouped

    def ask(self, connection: Connection, call: Call, attempts: Attempts, subject: str) -> Any:
        """Ask one broker once. An error in its answer is raised, with the subject that it is about."""
        version = connection.newest_version(call.api_key, call.version_max)
        response = connection.send(call.make_request(version), version, timeout_s=attempts.request_timeout_s)
        fault = call.error_code(response)
        code, where = (fault.code, f"{subject}: {fault.where}") if isinstance(fault, Fault) else (fault, subject)
        error = Error(code)
        if error is not Error.NONE:
            raise failure_of(error, f"{where}: {api_name(call.api_key)} at {connection.address}", call.retried)
        return response

    def metadata(self, names: Iterable[str] | None, *, timeout_ms: int | None = None) -> dict[str, TopicMetadata]:
        """What the cluster says now of these topics, or of all. A topic that does not exist is an error."""
        wanted = None if names is None else sorted(set(names))
        return retrying(self.settings, lambda attempts: self._fetch_metadata(wanted, attempts), timeout_ms)

    def leaders(
        self, partitions: Iterable[TopicPartition], attempts: Attempts
    ) -> dict[Connection, list[TopicPartition]]:
        """Partitions by the connection to their leader, so that each broker is asked once for all of its own."""
        partitions = list(partitions)
        topics = {topic for topic, _ in partitions}
        unknown = topics - (self._topics.keys() - self._old)
        if unknown:
            self._fetch_metadata(sorted(unknown), attempts)
        by_leader: dict[Connection, list[TopicPartition]] = {}
        for topic, partition in partitions:
            by_leader.setdefault(self._leader(topic, partition, attempts), []).append((topic, partition))
        return by_leader

    def leader_epoch(self, topic: str, partition: int) -> int:
        """The epoch of the leader that `leader` last connected to, for requests that carry it; -1 if unknown."""
        known = self._topics.get(topic)
        return known.partitions[partition].leader_epoch if known and partition in known.partitions else -1

    def topic_id(self, topic: str) -> Uuid:
        """The id of a topic that has been asked about; zero where the cluster is too old to have ids."""
        known = self._topics.get(topic)
        return known.topic_id if known else ZERO_UUID

    def forget_topic(self, topic: str) -> None:
        """What is known of this topic is old."""
        self._old.add(topic)

    def forget_coordinator(self, key: str, key_type: int) -> None:
        """Somebody else may coordinate this by now."""
        self._coordinators.pop((key, key_type), None)

    def _any(self, attempts: Attempts) -> Connection:
        if attempts.failures == 0:
            for connection in self._connections.values():
                if not connection.in_flight and connection.is_usable():
                    return connection
        # After a failure everybody is asked in turn: a broker that is cut off from the others knows old things only.
        failures = []
        for address in self._places_to_try():
            try:
                return self._connection(address, attempts)
            except TRANSIENT as failure:
                failures.append(str(failure))
        raise ConnectError("; ".join(failures))

    def _places_to_try(self) -> Sequence[Address]:
        """Brokers that are known, in any order, then the bootstrap servers: all known ones may have moved."""
        known = list(self._brokers.values())
        random.shuffle(known)
        return [*known, *(each for each in self.settings.bootstrap_servers if each not in known)]

    def _leader(self, topic: str, partition: int, attempts: Attempts) -> Connection:
        known = self._topics.get(topic)
        if known is None or topic in self._old:
            known = self._fetch_metadata([topic], attempts)[topic]
        try:
            address = self._leader_address(known, partition, attempts)
            return self._connection(address, attempts)
        except (KafkaError, *TRANSIENT):
            self.forget_topic(topic)
            raise

    def _leader_address(self, topic: TopicMetadata, partition: int, attempts: Attempts) -> Address:
        name = f"{topic.name}-{partition}"
        if partition not in topic.partitions:
            raise _absence(
                failure_of(Error.UNKNOWN_TOPIC_OR_PARTITION, f"{name} does not exist{_count(topic)}"), attempts
            )
        leader_id = topic.partitions[partition].leader_id
        if leader_id == _NO_LEADER or leader_id not in self._brokers:
            raise failure_of(Error.LEADER_NOT_AVAILABLE, name)
        return self._brokers[leader_id]

    def _coordinator(self, key: str, key_type: int, attempts: Attempts) -> Connection:
        known = self._coordinators.get((key, key_type))
        if known is None:
            (found,) = self._find_coordinators([key], key_type, attempts)
            if isinstance(found.coordinator, KafkaError):
                raise found.coordinator
            known = found.coordinator
        try:
            connection = self._connection(known.address, attempts)
        except TRANSIENT:
            self.forget_coordinator(key, key_type)
            raise
        self._remember_coordinator(key, key_type, known)
        return connection

    def _remember_coordinator(self, key: str, key_type: int, coordinator: Coordinator) -> None:
        if (key, key_type) not in self._coordinators and len(self._coordinators) >= COORDINATORS_MAX:
            self._coordinators.pop(next(iter(self._coordinators)))
        self._coordinators[key, key_type] = coordinator

    def _find_coordinators(self, keys: Sequence[str], key_type: int, attempts: Attempts) -> list[_Found]:
        """Who coordinates each key, as some broker has it."""
        connection = self._any(attempts)

        def ask(request: m.FindCoordinatorRequest) -> m.FindCoordinatorResponse:
            call = Call(ApiKey.FIND_COORDINATOR, lambda _: request, lambda _: Error.NONE)
            response: m.FindCoordinatorResponse = self.ask(connection, call, attempts, "the cluster")
            return response

        if connection.newest_version(ApiKey.FIND_COORDINATOR) >= _KEYS_IN_A_LIST:
            answers = ask(m.FindCoordinatorRequest(coordinator_keys=list(keys), key_type=key_type)).coordinators
            return [_found(each.key, key_type, each, connection) for each in answers]
        requests = [(key, m.FindCoordinatorRequest(key=key, key_type=key_type)) for key in keys]
        return [_found(key, key_type, ask(request), connection) for key, request in requests]

    def _fetch_metadata(self, names: list[str] | None, attempts: Attempts) -> dict[str, TopicMetadata]:
        struct = m.MetadataRequest.MetadataRequestTopic
        request = m.MetadataRequest(
            topics=None if names is None else [struct(name=name) for name in names], allow_auto_topic_creation=False
        )
        call = Call(ApiKey.METADATA, lambda _: request)
        response: m.MetadataResponse = self.ask(self._any(attempts), call, attempts, "the cluster's metadata")
        self._brokers = {broker.node_id: Address(broker.host, broker.port) for broker in response.brokers}
        self._controller_id = response.controller_id
        found: dict[str, TopicMetadata] = {}
        for topic in response.topics:
            if names is None and topic.error_code != Error.NONE:
                continue  # deleted, or not for this user to see, between being listed and being described
            _check_topic(topic, attempts)
            assert topic.name is not None  # only null where a request asks by id
            found[topic.name] = self._topics[topic.name] = self._newer(_read_topic(topic))
            self._old.discard(topic.name)
        return found

    def _find_nodes(self, attempts: Attempts) -> None:
        """Learn who is there and who controls, without a word about topics."""
        if not self.settings.at_controllers:
            self._fetch_metadata([], attempts)
            return
        call = Call(
            ApiKey.DESCRIBE_CLUSTER, lambda _: m.DescribeClusterRequest(endpoint_type=_CONTROLLERS), _unless_a_broker
        )
        response: m.DescribeClusterResponse = self.ask(self._any(attempts), call, attempts, "the controllers")
        if response.error_code == Error.MISMATCHED_ENDPOINT_TYPE:
            raise KafkaError(Error.MISMATCHED_ENDPOINT_TYPE, response.error_message or "")
        self._brokers = {each.broker_id: Address(each.host, each.port) for each in response.brokers}
        self._controller_id = response.controller_id

    def _newer(self, topic: TopicMetadata) -> TopicMetadata:
        """Metadata in which no partition goes back to an older leader, as a broker that lags behind would have it."""
        known = self._topics.get(topic.name)
        if known is None or known.topic_id != topic.topic_id or topic.topic_id == ZERO_UUID:
            return topic
        partitions = {
            number: max(partition, known.partitions.get(number, partition), key=lambda each: each.leader_epoch)
            for number, partition in topic.partitions.items()
        }
        return topic._replace(partitions=partitions)

    def _connection(self, address: Address, attempts: Attempts) -> Connection:
        connection = self._connections.get(address)
        if connection is not None and connection.is_usable():
            return connection
        connection = self._connections[address] = dial(self.settings, address, attempts.connect_timeout_s)
        return connection


def dial(settings: ClientSettings, address: Address, timeout_s: float) -> Connection:
    """Connect as the settings say. Whatever a step of it takes, it takes no longer than the timeout."""
    security = settings.security
    secure = None
    if security.tls is not None:
        secure = functools.partial(tls.secure, host=address.host, context=tls.client_context(security.tls))
    connection = Connection(
        address.host, address.port, client_id=settings.client_id, timeout_s=timeout_s, secure=secure
    )
    try:
        connection.versions()
        if security.sasl is not None:
            sasl.authenticate(connection, security.sasl)
    except ConnectionLostError as error:
        connection.close()
        # In TLS 1.3 a broker that wants another certificate says so after the handshake.
        if isinstance(error.__cause__, ssl.SSLError) and not isinstance(error.__cause__, ssl.SSLEOFError):
            raise AuthenticationError(f"TLS handshake with {address} failed: {tls.refusal(error.__cause__)}") from error
        raise
    except BaseException:
        connection.close()
        raise
    connection.timeout_s = settings.request_timeout_ms / 1000
    return connection


def _unless_a_broker(response: m.DescribeClusterResponse) -> int:
    """A broker that is taken for a controller says so itself, better than we could."""
    code = response.error_code
    return Error.NONE if code == Error.MISMATCHED_ENDPOINT_TYPE else code


def _found(
    key: str,
    key_type: int,
    answer: m.FindCoordinatorResponse | m.FindCoordinatorResponse.Coordinator,
    connection: Connection,
) -> _Found:
    error = Error(answer.error_code)
    if error is not Error.NONE:
        return _Found(
            key, failure_of(error, f"{_COORDINATED[key_type]} {key!r}: FindCoordinator at {connection.address}")
        )
    return _Found(key, Coordinator(answer.node_id, Address(answer.host, answer.port)))


def _check_topic(topic: Topic, attempts: Attempts) -> None:
    error = Error(topic.error_code)
    if error is Error.NONE:
        return
    if error is Error.UNKNOWN_TOPIC_OR_PARTITION:
        raise _absence(failure_of(error, f"topic {topic.name!r} does not exist"), attempts)
    raise failure_of(error, f"topic {topic.name!r}")


def _absence(failure: KafkaError, attempts: Attempts) -> KafkaError:
    """Something that does not exist, as far as this broker knows; in the end it is believed."""
    return KafkaError(failure.error, failure.message) if attempts.is_absent_for_good() else failure


def _read_topic(topic: Topic) -> TopicMetadata:
    partitions = {
        each.partition_index: PartitionMetadata(each.leader_id, each.leader_epoch)
        for each in sorted(topic.partitions, key=lambda each: each.partition_index)
    }
    return TopicMetadata(topic.name or "", topic.topic_id, topic.is_internal, partitions)


def _count(topic: TopicMetadata) -> str:
    return f" ({topic.name} has {len(topic.partitions)} partition{'s' * (len(topic.partitions) != 1)})"
