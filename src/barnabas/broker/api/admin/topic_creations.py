"""Topics that are created because a client asked for them (`auto.create.topics.enable`).

The controller is asked in the background; the client is told that the topic is unknown, and retries. A topic that is
being created is not requested twice, however many clients ask for it in the meantime.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import TypeAlias

    from barnabas.broker.api.environments import CurrentConfig
    from barnabas.broker.controller_channel import ControllerChannel
    from barnabas.config.broker_config import BrokerConfig

    CreatableTopic: TypeAlias = m.CreateTopicsRequest.CreatableTopic

logger = logging.getLogger("barnabas.topics")

IN_FLIGHT_MAX = 1_000
"""Topics being created at a time. Beyond that, no creation is started: the client retries."""

CREATION_TIMEOUT_MS = 30_000

REFUSALS_MAX = 1_000
"""Topics of which it is remembered why they were not created; the oldest are forgotten."""

_TOO_FEW_BROKERS = Error.INVALID_REPLICATION_FACTOR
_REPLICATION_SETTINGS = {
    "__consumer_offsets": "offsets.topic.replication.factor",
    "__transaction_state": "transaction.state.log.replication.factor",
    "__share_group_state": "share.coordinator.state.topic.replication.factor",
}


class TopicCreations:
    __slots__ = ("_channel", "_in_flight", "_refusals", "_settings", "_tasks")

    def __init__(self, channel: ControllerChannel, settings: CurrentConfig) -> None:
        self._channel = channel
        self._settings = settings
        self._in_flight: set[str] = set()
        self._refusals: dict[str, str] = {}
        """Why topics were not created that somebody still asks for, as it was last logged."""
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, names: Iterable[str]) -> None:
        """Has the controller create these topics, except those that it is already creating."""
        wanted = [name for name in names if name not in self._in_flight][: IN_FLIGHT_MAX - len(self._in_flight)]
        if not wanted:
            return
        self._in_flight.update(wanted)
        task = asyncio.ensure_future(self._create(wanted))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _create(self, names: list[str]) -> None:
        request = m.CreateTopicsRequest(
            topics=[creatable_topic(name, self._settings.config) for name in names], timeout_ms=CREATION_TIMEOUT_MS
        )
        try:
            response: m.CreateTopicsResponse = await self._channel.send(request)
        finally:
            self._in_flight.difference_update(names)
        for topic in response.topics:
            if topic.error_code in (Error.NONE, Error.TOPIC_ALREADY_EXISTS):
                if self._refusals.pop(topic.name, None) is not None:
                    logger.info("topic %s has now been created", topic.name)
            else:
                self._complain(topic.name, Error(topic.error_code), topic.error_message or "")

    def _complain(self, name: str, error: Error, message: str) -> None:
        """Once, and again when the reason is another: clients ask for the same topic several times a second."""
        reason = f"{error.name}: {message}"
        if self._refusals.get(name) == reason:
            return
        self._refusals.pop(name, None)
        while len(self._refusals) >= REFUSALS_MAX:
            del self._refusals[next(iter(self._refusals))]
        self._refusals[name] = reason
        setting = _REPLICATION_SETTINGS.get(name)
        hint = f". Start more brokers, or lower {setting}" if error is _TOO_FEW_BROKERS and setting else ""
        logger.warning("topic %s was not created: %s%s", name, reason, hint)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


def creatable_topic(name: str, config: BrokerConfig) -> CreatableTopic:
    """A topic with the defaults of the broker: `num.partitions` and so on, or for internal topics settings of their
    own."""
    match name:
        case "__consumer_offsets":
            partition_count = config.offsets_topic_num_partitions
            replication_factor = config.offsets_topic_replication_factor
            configs = _offsets_configs(config)
        case "__transaction_state":
            partition_count = config.transaction_state_log_num_partitions
            replication_factor = config.transaction_state_log_replication_factor
            configs = _transactions_configs(config)
        case "__share_group_state":
            partition_count = config.share_coordinator_state_topic_num_partitions
            replication_factor = config.share_coordinator_state_topic_replication_factor
            configs = _share_configs(config)
        case _:
            partition_count, replication_factor = config.num_partitions, config.default_replication_factor
            configs = {}
    return m.CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partition_count,
        replication_factor=replication_factor,
        configs=[m.CreateTopicsRequest.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )


def _offsets_configs(config: BrokerConfig) -> Mapping[str, str]:
    configs = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(config.offsets_topic_segment_bytes),
    }
    if (min_isr := config.barnabas_offsets_topic_min_isr) is not None:
        configs["min.insync.replicas"] = str(min_isr)
    return configs


def _transactions_configs(config: BrokerConfig) -> Mapping[str, str]:
    return {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": str(config.transaction_state_log_min_isr),
        "segment.bytes": str(config.transaction_state_log_segment_bytes),
        "unclean.leader.election.enable": "false",
    }


def _share_configs(config: BrokerConfig) -> Mapping[str, str]:
    return {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "min.insync.replicas": str(config.share_coordinator_state_topic_min_isr),
        "retention.ms": "-1",
        "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
    }
