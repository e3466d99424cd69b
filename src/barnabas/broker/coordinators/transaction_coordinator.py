"""The transaction coordinator: the transactions in those partitions of `__transaction_state` that this node leads.

Which transaction may do what is decided in `transactions/`; decisions are carried out here. To end a transaction
(`WriteMarkers`), its partitions get their markers, and the shard is told when all have them; only the next transaction
of the same producer waits for that.

Leaders of partitions ask here before they append the first batch of a transaction, so that no batch is left in a
transaction that its coordinator does not know of (`check_partitions`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from barnabas.broker.coordinators.coordinator_spec import TRANSACTIONS_TOPIC, CoordinatorEnvironment, CoordinatorSpec
from barnabas.broker.coordinators.sharded_coordinator import ShardedCoordinator
from barnabas.coordination.effects import Producer, ProducerId
from barnabas.log.append_batches import EndMarker
from barnabas.log.producers.producer_state import NO_SEQUENCE
from barnabas.protocol.errors import Error, KafkaError
from barnabas.transactions import transaction_records
from barnabas.transactions.end_transaction import AllocateProducerId, WriteMarkers
from barnabas.transactions.transaction import TRANSACTION_VERSION_2
from barnabas.transactions.transaction_shard import TransactionSettings, TransactionShard

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from barnabas.broker.coordinators.led_shard import LedShard
    from barnabas.broker.coordinators.transaction_markers import MarkerWriter
    from barnabas.broker.producer_ids import ProducerIds
    from barnabas.config.broker_config import BrokerConfig
    from barnabas.coordination.effects import Action
    from barnabas.protocol import messages as m
    from barnabas.transactions.transaction import TopicPartition

logger = logging.getLogger("barnabas.transactions")

MARKER_RETRY_SECONDS = 0.1
"""How long to wait after a partition could not take a marker, or the completion could not be written."""

TRANSACTION_VERSION_FEATURE = "transaction.version"

WRITTEN_OR_NOT_NEEDED = frozenset({Error.NONE, Error.UNKNOWN_TOPIC_OR_PARTITION, Error.INVALID_PRODUCER_EPOCH})
"""A partition that was deleted with its topic needs no marker. Nor does one that has seen a newer epoch of the
producer: anything open there is of that epoch, and the marker would be refused for ever, which would block the
transactional id."""


class TransactionCoordinator(ShardedCoordinator[TransactionShard]):
    def __init__(self, environment: CoordinatorEnvironment, markers: MarkerWriter, producer_ids: ProducerIds) -> None:
        spec = CoordinatorSpec(
            what="transactions",
            topic=TRANSACTIONS_TOPIC,
            partition_count=lambda: environment.config().transaction_state_log_num_partitions,
            make_shard=lambda epoch: TransactionShard(
                transaction_settings(environment.config()), epoch, self.transaction_version
            ),
            encode=transaction_records.encode,
            decode=transaction_records.decode,
            base_sequence=NO_SEQUENCE,
            load_buffer_bytes=lambda: environment.config().transaction_state_log_load_buffer_size,
            commit_timeout_ms=lambda: environment.config().request_timeout_ms,
        )
        super().__init__(environment, spec)
        self._markers = markers
        self._producer_ids = producer_ids
        self._last_shards: dict[int, TransactionShard] = {}
        """The shard whose actions were last started, by partition."""

    def transaction_version(self) -> int:
        """The level of the cluster's feature, which clients follow, and so do the coordinator's own decisions."""
        return self._environment.image().features.finalized.get(TRANSACTION_VERSION_FEATURE, 0)

    async def new_producer_id(
        self, request: m.InitProducerIdRequest | m.EndTxnRequest, version: int
    ) -> ProducerId | None:
        """An id for a request that will need one, None for others. KafkaError if the controller gives none."""
        shard = self.serving(self.partition_of(request.transactional_id or "")).shard
        if not shard.needs_producer_id(request, version):
            return None
        return await self._producer_ids.take()

    # ── partitions of transactions ───────────────────────────────────────────────────────────────────────────

    async def check_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Collection[TopicPartition],
        *,
        adds: bool,
    ) -> dict[TopicPartition, Error]:
        """Whether these partitions are part of the producer's transaction: NONE, or why not. With `adds` they are
        added, all or none, for producers that do not add them beforehand.

        Only for transactional ids that this node coordinates. Another coordinator would be sent AddPartitionsToTxn.
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
        """Adds partitions to the transaction, all or none. KafkaError if the coordinator is not available."""
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
        """Retries while the previous transaction is completing, which takes moments and need not trouble the client."""
        config, loop = self._environment.config(), self._environment.loop
        deadline = loop.time() + config.add_partitions_to_txn_retry_backoff_max_ms / 1000
        while True:
            errors = await self.add_partitions(transactional_id, producer, partitions, TRANSACTION_VERSION_2)
            if Error.CONCURRENT_TRANSACTIONS not in errors.values() or loop.time() >= deadline:
                return errors
            await asyncio.sleep(config.add_partitions_to_txn_retry_backoff_ms / 1000)

    # ── decisions carried out ────────────────────────────────────────────────────────────────────────────────

    def start_actions(self, led: LedShard[TransactionShard], actions: list[Action]) -> None:
        # A shard that was loaded again, because it could not be written, repeats its actions, and may fail to be
        # written again. Partitions must not fill up with markers meanwhile.
        is_reloaded = self._last_shards.get(led.hosted.index, led.shard) is not led.shard
        self._last_shards[led.hosted.index] = led.shard
        for action in actions:
            match action:
                case WriteMarkers() if is_reloaded:
                    self._write_markers_later(led, led.shard, action, action.partitions)
                case WriteMarkers():
                    self._write_markers(led, led.shard, action, action.partitions)
                case AllocateProducerId():
                    self.run_in_background(self._abort_with_new_id(led, led.shard, action))
                case _:
                    raise AssertionError(f"not an action of transactions: {action}")

    def _write_markers(
        self,
        led: LedShard[TransactionShard],
        shard: TransactionShard,
        action: WriteMarkers,
        partitions: Collection[TopicPartition],
    ) -> None:
        """Writes the markers of these partitions, and retries those that could not be written."""
        if not led.is_serving(shard):
            return

        def on_done(errors: Mapping[TopicPartition, Error]) -> None:
            self._markers_tried(led, shard, action, errors)

        # This node leads all partitions. Another leader would be sent a WriteTxnMarkers request.
        self._markers.write(as_marker(action), partitions, self._environment.config().request_timeout_ms, on_done)

    def _write_markers_later(
        self,
        led: LedShard[TransactionShard],
        shard: TransactionShard,
        action: WriteMarkers,
        partitions: Collection[TopicPartition],
    ) -> None:
        self._environment.loop.call_later(MARKER_RETRY_SECONDS, self._write_markers, led, shard, action, partitions)

    def _markers_tried(
        self,
        led: LedShard[TransactionShard],
        shard: TransactionShard,
        action: WriteMarkers,
        errors: Mapping[TopicPartition, Error],
    ) -> None:
        if not led.is_serving(shard):
            return
        failed = {partition: error for partition, error in errors.items() if error not in WRITTEN_OR_NOT_NEEDED}
        for partition, error in errors.items():
            if error is Error.INVALID_PRODUCER_EPOCH:
                logger.warning(
                    "%s-%d has seen a newer epoch of producer %d than %d, and needs no transaction marker of %s",
                    *partition,
                    action.producer_id,
                    action.producer_epoch,
                    action.transactional_id,
                )
        if not failed:
            led.step_unasked(lambda shard, now_ms: shard.markers_written(action, now_ms))
        elif Error.TRANSACTION_COORDINATOR_FENCED in failed.values():
            # A newer coordinator has written there: the transaction is its responsibility now.
            logger.error("giving up on the transaction markers of %s: %s", action.transactional_id, failed)
        else:
            self._write_markers_later(led, shard, action, tuple(failed))

    async def _abort_with_new_id(
        self, led: LedShard[TransactionShard], shard: TransactionShard, action: AllocateProducerId
    ) -> None:
        try:
            new_id = await self._producer_ids.take()
        except KafkaError as failed:
            logger.warning("cannot abort the transaction of %s yet: %s", action.transactional_id, failed)
            return
        if led.is_serving(shard):
            led.step_unasked(lambda shard, now_ms: shard.abort_timed_out(action, new_id, now_ms))


def transaction_settings(config: BrokerConfig) -> TransactionSettings:
    return TransactionSettings(
        transaction_max_timeout_ms=config.transaction_max_timeout_ms,
        transactional_id_expiration_ms=config.transactional_id_expiration_ms,
        abort_timed_out_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        remove_expired_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
    )


def as_marker(action: WriteMarkers) -> EndMarker:
    return EndMarker(
        producer_id=action.producer_id,
        producer_epoch=action.producer_epoch,
        coordinator_epoch=action.coordinator_epoch,
        is_commit=action.is_commit,
        transaction_version=action.transaction_version,
    )


def for_producers(error: Error) -> Error:
    """As produce requests put it: to them a fenced producer is one with an old epoch."""
    return Error.INVALID_PRODUCER_EPOCH if error is Error.PRODUCER_FENCED else error
