"""The transactions that this node coordinates: those in the partitions of `__transaction_state` that it leads.

What a shard decides is carried out here. A decision (`WriteMarkers`) is written to the partitions of the transaction,
and the shard is told when all have it; nobody waits for that but the next transaction of the same producer.

Leaders of partitions ask here before a transaction's first write reaches them, so that no write is left behind in a
transaction that its coordinator does not know of (`check_partitions`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from barnabas.broker.coordination.coordinator import ShardedCoordinator
from barnabas.broker.coordination.kinds import Kind
from barnabas.broker.coordination.partitioning import TRANSACTIONS_TOPIC
from barnabas.broker.transactions.markers import Attempt
from barnabas.coordination.effects import Producer, ProducerId
from barnabas.log.markers import EndMarker
from barnabas.log.producer_state import NO_SEQUENCE
from barnabas.protocol.errors import Error, KafkaError
from barnabas.transactions import records
from barnabas.transactions.orders import NeedProducerId, WriteMarkers
from barnabas.transactions.shard import TransactionShard
from barnabas.transactions.state import TRANSACTION_VERSION_2, TransactionSettings

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from barnabas.broker.coordination.led_shard import LedShard
    from barnabas.broker.server import Broker
    from barnabas.config.broker import BrokerConfig
    from barnabas.protocol import messages as m
    from barnabas.transactions.state import TopicPartition

logger = logging.getLogger("barnabas.transactions")

MARKER_RETRY_SECONDS = 0.1
"""After a partition could not take a marker, or a shard could not write that all have it, until the next try."""

TRANSACTION_VERSION_FEATURE = "transaction.version"

WRITTEN_OR_NEEDLESS = frozenset({Error.NONE, Error.UNKNOWN_TOPIC_OR_PARTITION, Error.INVALID_PRODUCER_EPOCH})
"""A partition that went with its topic needs no marker. Nor does one that has seen a newer epoch of the producer: what
is open there, if anything, is of that epoch, and the marker would never be taken. To wait for it would leave the
transactional id without use for ever."""


class TransactionCoordinator(ShardedCoordinator[TransactionShard]):
    def __init__(self, broker: Broker) -> None:
        kind = Kind(
            what="transactions",
            topic=TRANSACTIONS_TOPIC,
            partition_count=lambda: broker.config.transaction_state_log_num_partitions,
            make_shard=lambda epoch: TransactionShard(
                transaction_settings(broker.config), epoch, self.transaction_version
            ),
            encode=records.encode,
            decode=records.decode,
            base_sequence=NO_SEQUENCE,
            load_buffer_bytes=lambda: broker.config.transaction_state_log_load_buffer_size,
            commit_timeout_ms=lambda: broker.config.request_timeout_ms,
        )
        super().__init__(broker, kind)
        self._ordered_last: dict[int, TransactionShard] = {}
        """Who gave the last orders in each partition."""

    def transaction_version(self) -> int:
        """The level of the cluster: clients follow it, and so do decisions that the coordinator makes by itself."""
        return self._broker.image.features.finalized.get(TRANSACTION_VERSION_FEATURE, 0)

    async def new_producer_id(
        self, request: m.InitProducerIdRequest | m.EndTxnRequest, version: int
    ) -> ProducerId | None:
        """An id for a request whose step will take one, None for others. KafkaError if there is none to be had."""
        shard = self.serving(self.partition_of(request.transactional_id or "")).shard
        if not shard.needs_producer_id(request, version):
            return None
        return ProducerId(await self._broker.api.producer_ids.take())

    # ── what leaders of partitions ask ───────────────────────────────────────────────────────────────────────

    async def check_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Collection[TopicPartition],
        *,
        adds: bool,
    ) -> dict[TopicPartition, Error]:
        """Whether these partitions are in the producer's transaction, each with NONE or why not. With `adds` they join
        it, all or none, as they do for producers that do not name them before.

        The coordinator is this node's own. One on another node would be asked with AddPartitionsToTxn.
        """
        producer = Producer(ProducerId(producer_id), epoch)
        try:
            if adds:
                errors = await self._add_when_free(transactional_id, producer, partitions)
            else:
                errors = await self.read(
                    transactional_id, lambda shard: shard.verify_partitions(transactional_id, producer, partitions)
                )
        except KafkaError as failed:
            return dict.fromkeys(partitions, failed.error)
        return {partition: for_producers(error) for partition, error in errors.items()}

    async def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        transaction_version: int,
    ) -> dict[TopicPartition, Error]:
        """Makes the partitions part of the transaction, all or none. KafkaError if the coordinator cannot be asked."""
        response: m.AddPartitionsToTxnResponse = await self.step(
            transactional_id,
            lambda shard, reply_to, now_ms: shard.add_partitions(
                transactional_id, producer, partitions, transaction_version, reply_to, now_ms
            ),
        )
        (result,) = response.results_by_transaction
        return {
            (topic.name, each.partition_index): Error(each.partition_error_code)
            for topic in result.topic_results
            for each in topic.results_by_partition
        }

    async def _add_when_free(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, Error]:
        """The transaction before may not be over yet. That is a matter of moments, and the client need not know."""
        config = self._broker.config
        deadline = self._broker.loop.time() + config.add_partitions_to_txn_retry_backoff_max_ms / 1000
        while True:
            errors = await self.add_partitions(transactional_id, producer, partitions, TRANSACTION_VERSION_2)
            if Error.CONCURRENT_TRANSACTIONS not in errors.values() or self._broker.loop.time() >= deadline:
                return errors
            await asyncio.sleep(config.add_partitions_to_txn_retry_backoff_ms / 1000)

    # ── what transactions have decided ───────────────────────────────────────────────────────────────────────

    def carry_out(self, led: LedShard[TransactionShard], orders: list[object]) -> None:
        # Of a shard that was read again, because it could not be written: perhaps it cannot be written now either, and
        # gives the same orders once more. Partitions must not fill up with markers meanwhile.
        is_again = self._ordered_last.get(led.hosted.index, led.shard) is not led.shard
        self._ordered_last[led.hosted.index] = led.shard
        for order in orders:
            match order:
                case WriteMarkers() if is_again:
                    self._write_markers_later(led, led.shard, order, order.partitions)
                case WriteMarkers():
                    self._write_markers(led, led.shard, order, order.partitions)
                case NeedProducerId():
                    self.run_aside(self._abort_with_new_id(led, led.shard, order))
                case _:
                    raise AssertionError(f"transactions do not order {order}")

    def _write_markers(
        self,
        led: LedShard[TransactionShard],
        shard: TransactionShard,
        order: WriteMarkers,
        partitions: Collection[TopicPartition],
    ) -> None:
        """Writes what is left of an order, and comes back to what could not be written."""
        if not led.is_serving(shard):
            return

        def on_done(errors: Mapping[TopicPartition, Error]) -> None:
            self._markers_tried(led, shard, order, errors)

        # All partitions are led here. Those of another leader would be sent to it in a WriteTxnMarkers request.
        Attempt(self._broker, as_marker(order), on_done).start(partitions, self._broker.config.request_timeout_ms)

    def _write_markers_later(
        self,
        led: LedShard[TransactionShard],
        shard: TransactionShard,
        order: WriteMarkers,
        partitions: Collection[TopicPartition],
    ) -> None:
        self._broker.loop.call_later(MARKER_RETRY_SECONDS, self._write_markers, led, shard, order, partitions)

    def _markers_tried(
        self,
        led: LedShard[TransactionShard],
        shard: TransactionShard,
        order: WriteMarkers,
        errors: Mapping[TopicPartition, Error],
    ) -> None:
        if not led.is_serving(shard):
            return
        failed = {partition: error for partition, error in errors.items() if error not in WRITTEN_OR_NEEDLESS}
        for partition, error in errors.items():
            if error is Error.INVALID_PRODUCER_EPOCH:
                logger.warning(
                    "%s-%d has seen a newer epoch of producer %d than %d, and needs no end of a transaction of %s",
                    *partition,
                    order.producer_id,
                    order.producer_epoch,
                    order.transactional_id,
                )
        if not failed:
            led.step_unasked(lambda shard, now_ms: shard.markers_written(order, now_ms))
        elif Error.TRANSACTION_COORDINATOR_FENCED in failed.values():
            # A newer coordinator has been there: it is in charge of the transaction, and ends it.
            logger.error("the end of a transaction of %s is given up: %s", order.transactional_id, failed)
        else:
            self._write_markers_later(led, shard, order, tuple(failed))

    async def _abort_with_new_id(
        self, led: LedShard[TransactionShard], shard: TransactionShard, order: NeedProducerId
    ) -> None:
        try:
            new_id = ProducerId(await self._broker.api.producer_ids.take())
        except KafkaError as failed:
            logger.warning("the transaction of %s is aborted later: %s", order.transactional_id, failed)
            return
        if led.is_serving(shard):
            led.step_unasked(lambda shard, now_ms: shard.abort_timed_out(order, new_id, now_ms))


def transaction_settings(config: BrokerConfig) -> TransactionSettings:
    return TransactionSettings(
        transaction_max_timeout_ms=config.transaction_max_timeout_ms,
        transactional_id_expiration_ms=config.transactional_id_expiration_ms,
        abort_timed_out_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        remove_expired_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
    )


def as_marker(order: WriteMarkers) -> EndMarker:
    return EndMarker(
        producer_id=order.producer_id,
        producer_epoch=order.producer_epoch,
        coordinator_epoch=order.coordinator_epoch,
        is_commit=order.is_commit,
        transaction_version=order.transaction_version,
    )


def for_producers(error: Error) -> Error:
    """In words that those know who write: to them a fenced producer is one with an old epoch."""
    return Error.INVALID_PRODUCER_EPOCH if error is Error.PRODUCER_FENCED else error
