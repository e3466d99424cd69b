"""What handlers keep between requests: one object for a broker, made and closed with it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from barnabas.broker.api.admin.metadata_answer import MetadataAnswers
from barnabas.broker.api.admin.topic_creations import TopicCreations
from barnabas.broker.api.api_versions import ApiVersionsAnswers
from barnabas.broker.api.fetch.fetch_sessions import FetchSessions
from barnabas.broker.api.produce.produce_lanes import Lanes

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker

BATCH_SEARCHES_MAX = 2
"""Batches that are opened at a time to find a record by its timestamp: more would only take time from each other."""


class ApiState:
    __slots__ = ("api_versions", "batch_searches", "fetch_sessions", "lanes", "metadata", "topic_creations")

    def __init__(self, broker: Broker) -> None:
        self.api_versions = ApiVersionsAnswers()
        self.batch_searches = asyncio.Semaphore(BATCH_SEARCHES_MAX)
        self.fetch_sessions = FetchSessions(
            broker.config.max_incremental_fetch_session_cache_slots, broker.purgatory, broker.random
        )
        self.lanes = Lanes()
        self.metadata = MetadataAnswers()
        self.topic_creations = TopicCreations(broker)

    async def close(self) -> None:
        """Ends what still runs in the background."""
        await self.topic_creations.close()
