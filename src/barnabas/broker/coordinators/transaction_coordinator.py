"""The transaction coordinator: the transactions in those partitions of `__transaction_state` that this node leads.

Which transaction may do what is decided in `transactions/`; decisions are carried out here. To end a transaction
(`WriteMarkers`), its partitions get their markers (`marker_delivery`), and the shard is told when all have them; only
the next transaction of the same producer waits for that.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.broker.coordinators.coordinator_spec import TRANSACTIONS_TOPIC, CoordinatorEnvironment, CoordinatorSpec
from barnabas.broker.coordinators.marker_delivery import MarkerOrder
from barnabas.broker.coordinators.sharded_coordinator import ShardedCoordinator
from barnabas.log.append_batches import EndMarker
from barnabas.log.producers.producer_state import NO_SEQUENCE
from barnabas.protocol.errors import Error, KafkaError
from barnabas.transactions import transaction_records
from barnabas.transactions.end_transaction import AllocateProducerId, WriteMarkers
from barnabas.transactions.transaction_shard import TransactionSettings, TransactionShard

if TYPE_CHECKING:
    from collections.abc import Collection

    from barnabas.broker.coordinators.led_shard import LedShard
    from barnabas.broker.coordinators.marker_delivery import MarkerDelivery
    from barnabas.broker.producer_ids import ProducerIds
    from barnabas.config.broker_config import BrokerConfig
    from barnabas.coordination.effects import Action, Producer, ProducerId
    from barnabas.protocol import messages as m
    from barnabas.transactions.transaction import TopicPartition

logger = logging.getLogger("barnabas.transactions")

TRANSACTION_VERSION_FEATURE = "transaction.version"


class TransactionCoordinator(ShardedCoordinator[TransactionShard]):
    def __init__(
        self, environment: CoordinatorEnvironment, delivery: MarkerDelivery, producer_ids: ProducerIds
    ) -> None:
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
        self._delivery = delivery
        self._producer_ids = producer_ids
        self._last_shards: dict[int, TransactionShard] = {}
        """The shard whose actions were last started, by partition."""

    @property
    def leaderless_marker_count(self) -> int:
        return self._delivery.leaderless_count

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

    # ── decisions carried out ────────────────────────────────────────────────────────────────────────────────

    def start_actions(self, led: LedShard[TransactionShard], actions: list[Action]) -> None:
        # A shard that was loaded again, because it could not be written, repeats its actions, and may fail to be
        # written again. Partitions must not fill up with markers meanwhile.
        is_reloaded = self._last_shards.get(led.hosted.index, led.shard) is not led.shard
        self._last_shards[led.hosted.index] = led.shard
        for action in actions:
            match action:
                case WriteMarkers() if is_reloaded:
                    self._delivery.start_later(self._order(led, led.shard, action))
                case WriteMarkers():
                    self._delivery.start(self._order(led, led.shard, action))
                case AllocateProducerId():
                    self.run_in_background(self._abort_with_new_id(led, led.shard, action))
                case _:
                    raise AssertionError(f"not an action of transactions: {action}")

    def _order(self, led: LedShard[TransactionShard], shard: TransactionShard, action: WriteMarkers) -> MarkerOrder:
        def on_written() -> None:
            led.step_unasked(lambda shard, now_ms: shard.markers_written(action, now_ms))

        return MarkerOrder(
            action.transactional_id, as_marker(action), action.partitions, lambda: led.is_serving(shard), on_written
        )

    def shards_resigned(self, partitions: Collection[int]) -> None:
        for partition in partitions:
            self._last_shards.pop(partition, None)
        self._delivery.forget_unwanted()

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
