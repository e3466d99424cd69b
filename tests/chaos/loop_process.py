"""A worker that reads records, makes one new record of each and commits both sides in one transaction.

    worker = LoopProcess(LoopOptions(bootstrap, group, source, sink, transactional_id))
    …
    worker.kill()

A process of its own, so that a test can kill it in the middle of a transaction. It is written as an application would
be: what can be retried is retried, what spoils a transaction has it aborted and read again, and what ends a producer
has the worker begin anew. It prints a line with the number of its records for every transaction that it commits.

Every record keeps its partition, and a record's output is a function of the record alone: so the test can say what the
sink must hold to the last record.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

GroupProtocol = Literal["classic", "consumer"]

RECORDS_AT_ONCE = 200
POLL_S = 0.1
ANSWER_S = 20.0
WATCH_S = 0.5
END_S = 90.0
ASK_AGAIN_S = 1.0
TURN_S_MAX = 15.0
"""librdkafka forgets a broker that is no longer in the cluster's metadata, and with it a request that waits for that
broker: send_offsets_to_transaction then never returns, whatever its timeout. A worker that hangs begins anew."""
TRANSACTION_TIMEOUT_MS = 10_000

_QUICK = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    # By default librdkafka forgets its brokers when the only one is down, and send_offsets_to_transaction may then wait
    # for minutes, whichever broker comes back.
    "metadata.recovery.strategy": "none",
    "log_level": 0,
}


_MEMBER: dict[GroupProtocol, dict[str, Any]] = {
    "classic": {
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": 3_000,
        "heartbeat.interval.ms": 300,
    },
    # The group's own settings say the same at the broker.
    "consumer": {"group.protocol": "consumer"},
}


@dataclass(frozen=True, slots=True)
class LoopOptions:
    bootstrap: str
    group: str
    source: str
    sink: str
    transactional_id: str
    protocol: GroupProtocol = "classic"
    """Of the group's members."""


class LoopProcess:
    """The test's side. The process ends when it is told to or killed, and at the latest with the test's own."""

    def __init__(self, options: LoopOptions) -> None:
        self.committed = 0
        """How many records the worker says it has committed."""
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-X",
                "faulthandler",
                "-m",
                "tests.chaos.loop_process",
                json.dumps(dataclasses.asdict(options)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.kill()
        self._wait()

    def end(self) -> int:
        """Ask it to end after the transaction it is in; its exit code. One that does not shows where it hangs.

        It is asked more than once, because a worker that was about to begin anew has forgotten it.
        """
        deadline = time.monotonic() + END_S
        while self.is_running() and time.monotonic() < deadline:
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(ASK_AGAIN_S)
        if self.is_running():
            self._process.send_signal(signal.SIGABRT)
        return self._wait()

    def _wait(self) -> int:
        code = self._process.wait(END_S)
        self._reader.join()
        assert self._process.stdin is not None
        self._process.stdin.close()
        return code

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self.committed += int(line)


def output_of(value: bytes) -> bytes:
    """What the loop makes of a record: the number doubled, so that a record copied as it is would be seen."""
    return b"%d" % (2 * int(value))


class _BeginAnewError(Exception):
    """The producer or the consumer is of no more use."""


class _Worker:
    def __init__(self, options: LoopOptions) -> None:
        self._options = options
        self.is_over = False
        self._turn_began = time.monotonic()

    def is_hanging(self) -> bool:
        return time.monotonic() - self._turn_began > TURN_S_MAX

    def end(self, _: int, __: FrameType | None) -> None:
        self.is_over = True

    def run(self) -> None:
        """Until it is told to end. `_BeginAnewError` is for the caller, after the group has been left."""
        consumer = Consumer(_consumer_config(self._options))
        try:
            self._loop(Producer(_producer_config(self._options)), consumer)
        finally:
            # A consumer that was thrown out of its group has nothing left to leave.
            with contextlib.suppress(KafkaException):
                consumer.close()

    def _loop(self, producer: Producer, consumer: Consumer) -> None:
        _repeat(lambda: producer.init_transactions(ANSWER_S))
        consumer.subscribe([self._options.source])
        while not self.is_over:
            self._turn_began = time.monotonic()
            messages = [each for each in consumer.consume(RECORDS_AT_ONCE, POLL_S) if each.error() is None]
            if not messages:
                continue
            if self._transact(producer, consumer, messages):
                print(len(messages), flush=True)
            else:
                _rewind(consumer)

    def _transact(self, producer: Producer, consumer: Consumer, messages: list[Any]) -> bool:
        """Whether the transaction was committed; if not, it was aborted."""
        _repeat(producer.begin_transaction)
        try:
            for each in messages:
                producer.produce(self._options.sink, output_of(each.value()), partition=each.partition())
            positions = _after(messages)
            # Who is a member of the group is asked now: a member that has been replaced since must not commit.
            membership = consumer.consumer_group_metadata()
            _repeat(lambda: producer.send_offsets_to_transaction(positions, membership, ANSWER_S))
            _repeat(lambda: producer.commit_transaction(ANSWER_S))
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise _BeginAnewError from failure
            _repeat(lambda: producer.abort_transaction(ANSWER_S))
            return False
        return True


def _repeat(step: Callable[[], object]) -> None:
    """Until it is done: what may be repeated is, an abort is for the caller, all else ends this producer."""
    while True:
        try:
            step()
            return
        except KafkaException as failure:
            error = failure.args[0]
            if error.txn_requires_abort():
                raise
            if not error.retriable():
                raise _BeginAnewError from failure


def _after(messages: list[Any]) -> list[TopicPartition]:
    """Where the group goes on once these have been processed."""
    last = {(each.topic(), each.partition()): each.offset() for each in messages}
    return [TopicPartition(topic, partition, offset + 1) for (topic, partition), offset in last.items()]


def _rewind(consumer: Consumer) -> None:
    """Back to what is committed. Where that fails, a new consumer begins there anyway."""
    try:
        for each in consumer.committed(consumer.assignment(), ANSWER_S):
            if each.error is not None:
                raise KafkaException(each.error)  # not known is not the same as none
            each.offset = each.offset if each.offset >= 0 else OFFSET_BEGINNING
            consumer.seek(each)
    except KafkaException as failure:
        raise _BeginAnewError from failure


def _producer_config(options: LoopOptions) -> dict[str, Any]:
    return {
        "bootstrap.servers": options.bootstrap,
        "transactional.id": options.transactional_id,
        "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
        "message.timeout.ms": TRANSACTION_TIMEOUT_MS,
        "linger.ms": 1,
        **_QUICK,
    }


def _consumer_config(options: LoopOptions) -> dict[str, Any]:
    return {
        "bootstrap.servers": options.bootstrap,
        "group.id": options.group,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 50,
        **_MEMBER[options.protocol],
        **_QUICK,
    }


def _go_with_the_test() -> None:
    """Standard input ends when the test's process does, however that comes about."""
    sys.stdin.read()
    os._exit(1)


def _begin_anew(argument: str) -> NoReturn:
    """The same process with another program, as nothing else is sure to end a producer's threads.

    SIGTERM waits until that program can take it: by default it would end the process, as if by a failure.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    os.execv(sys.executable, [sys.executable, "-X", "faulthandler", "-m", "tests.chaos.loop_process", argument])


def _watch(worker: _Worker, argument: str) -> None:
    while not worker.is_hanging():
        time.sleep(WATCH_S)
    if worker.is_over:
        os._exit(0)  # the transaction that it hangs in runs out
    _begin_anew(argument)


def main(argument: str) -> None:
    threading.Thread(target=_go_with_the_test, daemon=True).start()
    worker = _Worker(LoopOptions(**json.loads(argument)))
    signal.signal(signal.SIGTERM, worker.end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    threading.Thread(target=_watch, args=(worker, argument), daemon=True).start()
    try:
        worker.run()
    except _BeginAnewError:
        _begin_anew(argument)


if __name__ == "__main__":
    main(sys.argv[1])
