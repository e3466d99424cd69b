"""A node of a cluster is killed, and the load says when the others do again what only that one did.

Leader: an idempotent producer writes to a topic at a steady rate all the time. When the node that leads a partition of
another topic is killed, the others are asked in turn, a millisecond apart, to take a record there, to be acknowledged
by all replicas in sync, until one does. That is what the cluster takes; what a client takes to find out is not in it.
Afterwards every record that the producer has written must be there once.

Controller: right after the active one was killed, a topic is to be created through each of the other nodes, again and
again, until one of them says that it exists.

Moments are in seconds of the clock on the wall, which the nodes date their decisions by as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import threading
import time
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from bench import wire
from bench.loads import payload
from bench.loads.channel import Channel
from bench.nodes import HOST
from bench.topics import Topic

RECORD_BYTES = 100
RECORDS_PER_SECOND = 500
STEADY_SECONDS = 1.0
"""How long the load runs before the node is killed, and after others have taken over."""
RETRY_SECONDS = 0.001
FAILOVER_SECONDS_MAX = 60.0
FLUSH_SECONDS_MAX = 60.0
CREATE_TOPICS_VERSION = 7

_NOT_YET = frozenset(
    {
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.LEADER_NOT_AVAILABLE,
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.NOT_ENOUGH_REPLICAS,
        Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Error.REQUEST_TIMED_OUT,
    }
)
_NO_CONTROLLER = frozenset({Error.NOT_CONTROLLER, Error.REQUEST_TIMED_OUT, Error.UNKNOWN_SERVER_ERROR})


@dataclass(frozen=True, slots=True)
class LeaderLoad:
    bootstrap: str
    victim_pid: int
    victim_port: int
    survivor_ports: tuple[int, ...]
    topic: str
    partitions: int
    probed_topic: str
    """Its partition 0 is led by the victim."""


@dataclass(frozen=True, slots=True)
class ControllerLoad:
    victim_pid: int
    survivor_ports: tuple[int, ...]
    topic: str


class LostRecordsError(RuntimeError):
    """What a producer wrote and what the cluster has are not the same."""


def run_leader(load: LeaderLoad) -> dict[str, float]:
    batch = wire.record_batch([b"probe"], int(time.time() * 1000))
    probe = wire.produce_frame(load.probed_topic, [0], batch, wire.ACKS_ALL)
    with _SteadyProducer(load) as producer:
        with wire.connect(HOST, load.victim_port) as connection:
            _require(Error.NONE, _error(load.probed_topic, wire.exchange(connection, probe)))
        time.sleep(STEADY_SECONDS)
        os.kill(load.victim_pid, signal.SIGKILL)
        killed_at = time.time()
        writable_at = _first_acknowledged(load, probe)
        time.sleep(STEADY_SECONDS)
    written = producer.finish()
    if (found := Topic.of(load.bootstrap, load.topic, load.partitions).record_count()) != written:
        raise LostRecordsError(f"{load.topic} has {found} records, but {written} were acknowledged")
    return {"killed_at": killed_at, "writable_at": writable_at, "records": written}


def _first_acknowledged(load: LeaderLoad, probe: bytes) -> float:
    deadline = time.monotonic() + FAILOVER_SECONDS_MAX
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(wire.connect(HOST, port)) for port in load.survivor_ports]
        for connection in itertools.cycle(connections):
            error = _error(load.probed_topic, wire.exchange(connection, probe))
            if error is Error.NONE:
                return time.time()
            if error not in _NOT_YET or time.monotonic() > deadline:
                raise wire.WireError(f"{load.probed_topic}-0 takes no record: {error.name}")
            time.sleep(RETRY_SECONDS)
    raise AssertionError("there are no survivors")


def _error(topic: str, answer: bytes) -> Error:
    return Error(wire.ProduceReply.of(topic).first_error(answer))


def _require(expected: Error, found: Error) -> None:
    if found is not expected:
        raise wire.WireError(f"{found.name} where there should be {expected.name}")


class _SteadyProducer:
    """An idempotent producer in a thread of its own, at a rate that no cluster has trouble with."""

    def __init__(self, load: LeaderLoad) -> None:
        self._load = load
        self._producer = Producer({"bootstrap.servers": load.bootstrap, "enable.idempotence": True, "log_level": 2})
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._produce)
        self._acknowledged = 0
        self._failure: KafkaError | None = None

    def __enter__(self) -> _SteadyProducer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def finish(self) -> int:
        """How many records were acknowledged, which are all that were written."""
        left = self._producer.flush(FLUSH_SECONDS_MAX)
        if self._failure is not None:
            raise KafkaException(self._failure)
        if left:
            raise LostRecordsError(f"{left} records were not acknowledged within {FLUSH_SECONDS_MAX:.0f} s")
        return self._acknowledged

    def _produce(self) -> None:
        value = payload.values(1, RECORD_BYTES)[0]
        partitions = itertools.cycle(range(self._load.partitions))
        while not self._is_over.wait(1 / RECORDS_PER_SECOND):
            self._producer.produce(self._load.topic, value, partition=next(partitions), on_delivery=self._note)
            self._producer.poll(0)

    def _note(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self._acknowledged += 1
        else:
            self._failure = error


def run_controller(load: ControllerLoad) -> dict[str, float]:
    return asyncio.run(_first_decision(load))


async def _first_decision(load: ControllerLoad) -> dict[str, float]:
    channels = [await Channel.open(HOST, port) for port in load.survivor_ports]
    os.kill(load.victim_pid, signal.SIGKILL)
    killed_at = time.time()
    attempts = [asyncio.create_task(_create(channel, f"{load.topic}-{n}")) for n, channel in enumerate(channels)]
    async with asyncio.timeout(FAILOVER_SECONDS_MAX):
        await asyncio.wait(attempts, return_when=asyncio.FIRST_COMPLETED)
        decided_at = time.time()
        await asyncio.gather(*attempts)
    for channel in channels:
        await channel.close()
    return {"killed_at": killed_at, "decided_at": decided_at}


async def _create(channel: Channel, topic: str) -> None:
    struct = m.CreateTopicsRequest
    new = struct.CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
    request = struct(topics=[new], timeout_ms=int(FAILOVER_SECONDS_MAX * 1e3))
    while True:
        answer = (await channel.send(request, CREATE_TOPICS_VERSION)).topics[0]
        # The answer of an attempt before may have been lost with its controller.
        if answer.error_code in (Error.NONE, Error.TOPIC_ALREADY_EXISTS):
            return
        if answer.error_code not in _NO_CONTROLLER:
            raise wire.WireError(f"{topic} was not created: {Error(answer.error_code).name}, {answer.error_message}")
        await asyncio.sleep(RETRY_SECONDS)
