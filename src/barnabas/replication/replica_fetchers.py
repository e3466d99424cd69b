"""Which connection copies which partition: for each leader there are `num.replica.fetchers`, and a partition always
goes to the same of them. A connection lives as long as there is something to copy over it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from barnabas.replication.fetcher import ReplicaFetcher

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.replication.fetcher import FetcherEnvironment
    from barnabas.replication.hosted import HostedPartition

logger = logging.getLogger("barnabas.replicas")


class ReplicaFetchers:
    """All of a node."""

    def __init__(self, environment: FetcherEnvironment) -> None:
        self.fetchers_per_leader = 1
        self._environment = environment
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        self._of: dict[HostedPartition, ReplicaFetcher] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._fetchers)

    @property
    def failed_count(self) -> int:
        return sum(fetcher.failed_count for fetcher in list(self._fetchers.values()))

    def follow(self, hosted: HostedPartition, leader_id: int, leader_epoch: int) -> None:
        """Copies a partition from this leader from now on. Nothing changes if that is what is done already."""
        if self._is_closed:
            return
        number = (int.from_bytes(hosted.topic_id[-4:], "big") + hosted.index) % self.fetchers_per_leader
        known = self._of.get(hosted)
        if known is not None:
            if (known.leader_id, known.number) == (leader_id, number) and known.has(hosted, leader_epoch):
                return
            if (known.leader_id, known.number) != (leader_id, number):
                self.stop(hosted)
        fetcher = self._fetchers.get((leader_id, number))
        if fetcher is None:
            fetcher = self._fetchers[leader_id, number] = ReplicaFetcher(leader_id, number, self._environment)
        self._of[hosted] = fetcher
        fetcher.add(hosted, leader_epoch)

    def stop(self, hosted: HostedPartition) -> None:
        """Copies a partition no longer. What comes for it from now on is dropped."""
        fetcher = self._of.pop(hosted, None)
        if fetcher is not None:
            fetcher.remove(hosted)

    def close_idle(self) -> None:
        """Ends connections that nothing is copied over any more. Not at once: a partition may be on its way from one
        epoch to the next."""
        for key, fetcher in list(self._fetchers.items()):
            if not len(fetcher):
                del self._fetchers[key]
                closing = self._environment.loop.create_task(fetcher.close())
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)

    def addresses_changed(self, broker_ids: Iterable[int]) -> None:
        changed = set(broker_ids)
        for (leader_id, _), fetcher in self._fetchers.items():
            if leader_id in changed:
                fetcher.address_changed()

    async def close(self) -> None:
        self._is_closed = True
        fetchers = list(self._fetchers.values())
        self._fetchers.clear()
        self._of.clear()
        await asyncio.gather(*self._closing, *(fetcher.close() for fetcher in fetchers))
