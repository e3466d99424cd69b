"""Batches that are opened before they are appended, in worker processes, and their order in each partition.

Which topics ask for that, and what is done to their batches, is said in `log.batch_opening`. All batches of a request
make one trip to a worker. Meanwhile the request holds its connection, so that requests behind it wait, and it has its
place in the line of each partition that it writes to (`HostedPartition.openings`): requests append in the order in
which they came, however long each batch takes. What it holds counts as a request that is being handled
(`queued.max.request.bytes`).

A partition is looked up again when it is appended to: it may have another leader by then, or be gone.

A worker that dies fails no request. Its batches are tried again, each by itself; one that fails a worker once more is
refused.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.log.batch_opening import BatchToOpen, OpenedBatch, RefusedBatch, open_batches
from barnabas.log.batch_validation import check_batch_to_open
from barnabas.ports.processes import TaskTooLargeError
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from barnabas.broker.api.produce.produce_wire import ProduceRequest
    from barnabas.log.batch_opening import OpeningRules
    from barnabas.ports import Clock, Processes
    from barnabas.replication.hosted import HostedPartition

    FindPartition = Callable[[bytes, int, memoryview], HostedPartition]

logger = logging.getLogger("barnabas.produce")

TRIPS_MAX: Final = 4
"""Requests whose batches are on their way to a worker, in it, or on their way back: enough to keep the workers busy.
The others wait where they are, without a copy of their batches."""


class RecordsRefusedError(KafkaError):
    """A batch is refused because of what is in it."""

    def __init__(self, refused: RefusedBatch) -> None:
        super().__init__(refused.error, refused.message)
        self.record_errors = refused.record_errors


class GoodBatch(NamedTuple):
    """A batch that was opened, as it is to be appended."""

    hosted: HostedPartition
    """The partition that it was opened for."""
    data: memoryview
    max_timestamp: int


Verdict = GoodBatch | KafkaError | None
"""None: the batch was not opened."""


class _ToOpen(NamedTuple):
    number: int
    """Of the batch in its request."""
    hosted: HostedPartition
    batch: memoryview
    rules: OpeningRules


class _Opening:
    """A request in the lines of the partitions that it writes to."""

    __slots__ = ("_partitions", "_turn")

    def __init__(self) -> None:
        self._partitions: dict[HostedPartition, None] = {}
        self._turn: asyncio.Future[None] | None = None

    def line_up(self, hosted: HostedPartition) -> None:
        if hosted not in self._partitions:
            self._partitions[hosted] = None
            hosted.begin_opening(self)

    async def come_first(self) -> None:
        """Returns when it is first in every line. All its places were taken in one step, so that no two requests can
        wait for each other."""
        while not all(hosted.is_first(self) for hosted in self._partitions):
            self._turn = asyncio.get_running_loop().create_future()
            await self._turn

    def has_come_first(self) -> None:
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)

    def leave(self) -> None:
        for hosted in self._partitions:
            hosted.end_opening(self)


class BatchOpener:
    """Opens the batches of a broker's Produce requests."""

    __slots__ = ("_clock", "_processes", "_trips")

    def __init__(self, processes: Processes, clock: Clock) -> None:
        self._processes = processes
        self._clock = clock
        self._trips = asyncio.Semaphore(TRIPS_MAX)

    @asynccontextmanager
    async def opened(self, request: ProduceRequest, find: FindPartition) -> AsyncIterator[list[Verdict]]:
        """A verdict on each batch of a request, in their order. They are appended before the block ends, and in it
        nothing is awaited: while it lasts, it is this request's turn in all its partitions. `find` says where a batch
        goes, or raises the KafkaError that appending it will raise."""
        opening = _Opening()
        verdicts: list[Verdict] = []
        to_open: list[_ToOpen] = []
        try:
            for topic, batches in request.topics:
                for index, batch in batches:
                    verdicts.append(None)
                    try:
                        hosted = find(topic, index, batch)
                    except KafkaError:
                        continue
                    rules = hosted.opening_rules
                    if rules is None:
                        if hosted.openings:
                            opening.line_up(hosted)
                        continue
                    try:
                        whole = check_batch_to_open(batch, hosted.log.config, hosted.log.name)
                    except KafkaError as error:
                        verdicts[-1] = error
                        continue
                    opening.line_up(hosted)
                    to_open.append(_ToOpen(len(verdicts) - 1, hosted, whole, rules))
            if to_open:
                for number, verdict in await self._open(to_open):
                    verdicts[number] = verdict
            await opening.come_first()
            yield verdicts
        finally:
            opening.leave()

    async def _open(self, to_open: Sequence[_ToOpen]) -> list[tuple[int, Verdict]]:
        async with self._trips:
            now_ms = self._clock.now_ms()
            batches = [BatchToOpen(bytearray(each.batch), each.rules, now_ms, each.hosted.log.name) for each in to_open]
            outcomes = await self._outcomes(batches)
        return [
            (each.number, _verdict(each.hosted, batch, outcome))
            for each, batch, outcome in zip(to_open, batches, outcomes, strict=True)
        ]

    async def _outcomes(self, batches: list[BatchToOpen]) -> list[OpenedBatch | RefusedBatch]:
        try:
            return await self._processes.run(open_batches, batches)
        except Exception as error:
            partitions = ", ".join(dict.fromkeys(batch.partition for batch in batches))
            logger.warning("retrying the batches for %s one at a time: %s", partitions, _described(error))
        return [await self._outcome_once_more(batch) for batch in batches]

    async def _outcome_once_more(self, batch: BatchToOpen) -> OpenedBatch | RefusedBatch:
        try:
            (outcome,) = await self._processes.run(open_batches, [batch])
        except TaskTooLargeError as error:
            return RefusedBatch(Error.MESSAGE_TOO_LARGE, f"A batch for {batch.partition} cannot be opened: {error}", [])
        except Exception as error:
            reason = _described(error)
            logger.error(
                "rejecting a batch for %s: it could not be opened in two attempts: %s", batch.partition, reason
            )
            return RefusedBatch(
                Error.UNKNOWN_SERVER_ERROR, f"A batch for {batch.partition} cannot be opened: {reason}", []
            )
        return outcome


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _verdict(
    hosted: HostedPartition, batch: BatchToOpen, outcome: OpenedBatch | RefusedBatch
) -> GoodBatch | KafkaError:
    if isinstance(outcome, RefusedBatch):
        return RecordsRefusedError(outcome)
    data = batch.data if outcome.remade is None else outcome.remade
    return GoodBatch(hosted, memoryview(data), outcome.max_timestamp)
