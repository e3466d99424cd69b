"""What handlers keep between requests: one object for a broker, made and closed with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.api.api_versions import ApiVersionsAnswers
from barnabas.broker.api.fetch_sessions import FetchSessions
from barnabas.broker.api.metadata_answer import MetadataAnswers
from barnabas.broker.api.produce_lanes import Lanes
from barnabas.broker.api.producer_ids import ProducerIds
from barnabas.broker.api.topic_creations import TopicCreations

if TYPE_CHECKING:
    from barnabas.broker.server import Broker


class ApiState:
    __slots__ = ("api_versions", "fetch_sessions", "lanes", "metadata", "producer_ids", "topic_creations")

    def __init__(self, broker: Broker) -> None:
        self.api_versions = ApiVersionsAnswers()
        self.fetch_sessions = FetchSessions(broker.config.max_incremental_fetch_session_cache_slots, broker.random)
        self.lanes = Lanes()
        self.metadata = MetadataAnswers()
        self.producer_ids = ProducerIds(broker)
        self.topic_creations = TopicCreations(broker)

    async def close(self) -> None:
        """Ends what still runs in the background."""
        await self.producer_ids.close()
        await self.topic_creations.close()
