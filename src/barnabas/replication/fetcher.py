"""Copies partitions from one leader, over one connection and in one fetch session.

Theory of operation. A task asks the leader for what comes after the log ends of all its partitions, writes what comes
straight from the buffer that it was received in, and asks again. In the session a request names only the partitions
whose log end, epoch or log start changed since they were last named, and those that are new or no longer wanted.

Partitions come and go while a request is under way. Each is a `FollowedPartition`, made anew for each leader epoch;
what an answer says of a partition counts only if it is still the one that was asked for, at the offset that was asked
for. So whatever was decided meanwhile is never undone by an answer that is late. A log that was cut is not written
before the cut is settled, whatever cut it; what comes for it until then is asked for again.

A leader lets a request wait until it has news. A partition that comes meanwhile must not wait with it, for its leader
may have been elected a moment ago, and producers wait for this follower. So the next request of the session follows on
the heels of the one that waits, and the leader answers that one at once. Where records were on their way already, they
may come twice, and count once.

What fails for one partition concerns that one: it leaves the session and comes back after a pause. What fails for the
connection or the session begins anew with a full request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from barnabas.log.batch_validation import UnexpectedOffsetError
from barnabas.net.frames import WireError
from barnabas.net.large_requests import Breather
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import DecodeError, Error, KafkaError
from barnabas.replication import fetch_wire
from barnabas.replication.fetch_wire import INITIAL_EPOCH, NO_SESSION, AskedPartition, FetchLimits
from barnabas.replication.follower import EpochEnd, backoff_ms, restart, truncation_offset
from barnabas.replication.throttle import is_marked

if TYPE_CHECKING:
    from collections.abc import Awaitable, Collection, Iterable, Mapping

    from barnabas.net.peer import Peer
    from barnabas.net.peer_link import RawResponse
    from barnabas.ports import Clock
    from barnabas.replication.fetch_wire import FetchedPartition
    from barnabas.replication.hosted import HostedPartition
    from barnabas.replication.throttle import ReplicationThrottle

logger = logging.getLogger("barnabas.replicas")

EPOCH_MAX = 2**31 - 1
LATEST, EARLIEST = -1, -2
THROTTLED_PAUSE_MS = 100
COMPLAINT_S = 5.0

_SESSION_ERRORS = (
    Error.FETCH_SESSION_ID_NOT_FOUND,
    Error.INVALID_FETCH_SESSION_EPOCH,
    Error.FETCH_SESSION_TOPIC_ID_ERROR,
)

PartitionKey = tuple[bytes, int]
"""Topic id and index."""


Sync = Callable[["Collection[HostedPartition]"], "Awaitable[Mapping[HostedPartition, Exception]]"]
"""Brings logs to the device, and says for which of them that failed, and why."""


class FetcherSettings(NamedTuple):
    limits: FetchLimits
    backoff_ms: int
    timeout_s: float


class FetcherEnvironment(NamedTuple):
    """What all fetchers of a node have in common."""

    node_id: int
    loop: asyncio.AbstractEventLoop
    clock: Clock
    settings: Callable[[], FetcherSettings]
    broker_epoch: Callable[[], int]
    connect: Callable[[int, str], Peer | None]
    """A new connection to a broker, under a name; None while its address is not known."""
    throttle: ReplicationThrottle
    flush: Sync
    """What the topic wants on the device (`flush.messages`), a follower has only then."""
    settle_cuts: Sync
    """Makes sure that what was cut off logs does not come back when power fails: it would be taken for what the leader
    sent in its place."""


class FollowedPartition:
    """A partition that is copied, in one leader epoch."""

    __slots__ = (
        "failures",
        "hosted",
        "is_delayed",
        "is_failed_here",
        "key",
        "leader_epoch",
        "sent_log_start",
        "sent_offset",
    )

    def __init__(self, hosted: HostedPartition, leader_epoch: int) -> None:
        self.hosted = hosted
        self.key: PartitionKey = (hosted.topic_id, hosted.index)
        self.leader_epoch = leader_epoch
        self.sent_offset = -1
        """The offset that the session has of it."""
        self.sent_log_start = -1
        self.is_delayed = False
        self.failures = 0
        self.is_failed_here = False
        """Whether the last failure was a fault of this node, and not of the leader."""

    def succeeded(self) -> None:
        self.failures = 0
        self.is_failed_here = False

    def ask(self) -> AskedPartition:
        log = self.hosted.log
        self.sent_offset = log.log_end_offset
        self.sent_log_start = log.log_start_offset
        return AskedPartition(
            self.hosted.index, self.leader_epoch, self.sent_offset, log.latest_epoch, self.sent_log_start
        )

    @property
    def has_changed(self) -> bool:
        log = self.hosted.log
        return log.log_end_offset != self.sent_offset or log.log_start_offset != self.sent_log_start


def release_unused(asked: asyncio.Task[RawResponse]) -> None:
    """Nobody looks at the answer any more."""
    if not asked.cancelled() and asked.exception() is None:
        asked.result().release()


def fetcher_name(number: int) -> str:
    """What follows `broker-2-` in the client id of a broker that copies, as with Kafka's: the leader counts and times
    its fetches apart from those of consumers."""
    return f"fetcher-{number}"


class ReplicaFetcher:
    """One of the connections to one leader. `leader_id` and `number` tell it from others."""

    def __init__(self, leader_id: int, number: int, environment: FetcherEnvironment) -> None:
        self.leader_id = leader_id
        self.number = number
        self._environment = environment
        self._partitions: dict[PartitionKey, FollowedPartition] = {}
        self._in_session: dict[PartitionKey, FollowedPartition] = {}
        self._unsent: dict[FollowedPartition, None] = {}
        self._forgotten: dict[PartitionKey, None] = {}
        self._session_id = NO_SESSION
        self._session_epoch = INITIAL_EPOCH
        self._failures = 0
        self._next_complaint_s = 0.0
        self._news = asyncio.Event()
        self._waits_at: Peer | None = None
        """Where a request of the session waits for its answer."""
        self._second: asyncio.Task[RawResponse] | None = None
        """The request that followed on the heels of that one."""
        self._peer: Peer | None = None
        self._is_peer_stale = False
        self._is_closed = False
        self._task = environment.loop.create_task(self._run())
        self._task.add_done_callback(self._ended)

    def __str__(self) -> str:
        return f"replica fetcher {self.number} for broker {self.leader_id}"

    def __len__(self) -> int:
        return len(self._partitions)

    @property
    def failed_count(self) -> int:
        """Partitions that this node does not manage to write. Another thread may ask."""
        return sum(each.is_failed_here for each in list(self._partitions.values()))

    # ── which partitions ─────────────────────────────────────────────────────────────────────────────────────

    def add(self, hosted: HostedPartition, leader_epoch: int) -> None:
        """Copies a partition from now on, in a leader epoch in which it was not copied before."""
        followed = FollowedPartition(hosted, leader_epoch)
        known = self._partitions.get(followed.key)
        if known is not None:
            self._unsent.pop(known, None)
        self._partitions[followed.key] = followed
        self._unsent[followed] = None
        self._forgotten.pop(followed.key, None)
        self._wake()

    def remove(self, hosted: HostedPartition) -> None:
        """Copies a partition no longer. What is under way for it is dropped when it comes."""
        known = self._partitions.pop((hosted.topic_id, hosted.index), None)
        if known is not None:
            self._leave_session(known)

    def has(self, hosted: HostedPartition, leader_epoch: int) -> bool:
        known = self._partitions.get((hosted.topic_id, hosted.index))
        return known is not None and known.leader_epoch == leader_epoch and known.hosted is hosted

    def address_changed(self) -> None:
        """The leader is to be found elsewhere: the next request goes there."""
        self._is_peer_stale = True

    async def close(self) -> None:
        self._is_closed = True
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._peer is not None:
            await self._peer.close()

    def _leave_session(self, followed: FollowedPartition) -> None:
        self._unsent.pop(followed, None)
        if followed.key in self._in_session:
            self._forgotten[followed.key] = None

    def _delay(self, followed: FollowedPartition, pause_ms: int) -> None:
        """Leaves a partition out for a while."""
        followed.is_delayed = True
        self._leave_session(followed)
        self._environment.loop.call_later(pause_ms / 1000, self._resume, followed)

    def _delay_after(self, followed: FollowedPartition, error: Exception) -> None:
        """Something of what came could not be taken in."""
        is_storage_error = isinstance(error, KafkaError) and error.error is Error.KAFKA_STORAGE_ERROR
        if is_storage_error or isinstance(error, OSError):
            self._delay_failed_here(followed, error)
        else:
            self._delay_refused(followed, error)

    def _delay_refused(self, followed: FollowedPartition, error: Exception) -> None:
        """The leader does not send it, or sends what does not fit. Most often one side has merely heard of an election
        before the other."""
        followed.is_failed_here = False
        if followed.failures == 0:
            logger.info("not replicating %s for now: %s", followed.hosted, error)
        self._delay_failed(followed)

    def _delay_failed_here(self, followed: FollowedPartition, error: Exception) -> None:
        """This node does not manage to write it. That is told now and then, not for each of many partitions."""
        followed.is_failed_here = True
        now_s = self._environment.clock.monotonic()
        if now_s >= self._next_complaint_s:
            self._next_complaint_s = now_s + COMPLAINT_S
            others = sum(each.is_failed_here for each in self._partitions.values()) - 1
            more = f" and {others} other partition{'s' if others > 1 else ''}" if others else ""
            logger.warning("not replicating %s%s for now: %s", followed.hosted, more, error)
        self._delay_failed(followed)

    def _delay_failed(self, followed: FollowedPartition) -> None:
        followed.failures += 1
        self._delay(followed, backoff_ms(followed.failures, self._environment.settings().backoff_ms))

    def _resume(self, followed: FollowedPartition) -> None:
        followed.is_delayed = False
        if self._partitions.get(followed.key) is followed:
            self._unsent[followed] = None
            self._forgotten.pop(followed.key, None)
            self._wake()

    def _wake(self) -> None:
        self._news.set()
        if self._waits_at is not None and self._second is None:
            # What comes together is asked for together.
            self._environment.loop.call_soon(self._ask_second)

    # ── asking ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _run(self) -> None:
        while not self._is_closed:
            while all(followed.is_delayed for followed in self._partitions.values()):
                self._news.clear()
                await self._news.wait()
            try:
                await self._fetch()
            except (WireError, DecodeError, OSError) as error:
                self._begin_session_anew()
                self._failures += 1
                if self._failures == 1:
                    logger.warning("%s failed, retrying: %s", self, error)
                await asyncio.sleep(backoff_ms(self._failures, self._environment.settings().backoff_ms) / 1000)
            else:
                if self._failures:
                    logger.info("%s works again after %d failures", self, self._failures)
                self._failures = 0

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("%s failed with an internal error, restarting", self, exc_info=error)
            self._begin_session_anew()
            if not self._is_closed:
                self._task = self._environment.loop.create_task(self._run_later())
                self._task.add_done_callback(self._ended)

    async def _run_later(self) -> None:
        await asyncio.sleep(self._environment.settings().backoff_ms / 1000)
        await self._run()

    async def _fetch(self) -> None:
        peer = await self._connected_peer()
        is_in_session = self._session_epoch != INITIAL_EPOCH
        settings, body = self._request()
        try:
            self._waits_at = peer if is_in_session else None
            asked = peer.send_raw(ApiKey.FETCH, fetch_wire.VERSION, body, timeout_s=settings.timeout_s)
            with await asked as response:
                self._waits_at = None
                await self._take_answer(peer, response.body)
            if self._second is not None:
                with await self._second as response:
                    self._second = None
                    await self._take_answer(peer, response.body)
        finally:
            self._waits_at = None
            if self._second is not None:
                self._second.cancel()
                self._second.add_done_callback(release_unused)
                self._second = None

    def _ask_second(self) -> None:
        if self._waits_at is None or self._second is not None or not self._unsent:
            return
        settings, body = self._request()
        asked = self._waits_at.send_raw(ApiKey.FETCH, fetch_wire.VERSION, body, timeout_s=settings.timeout_s)
        self._second = self._environment.loop.create_task(asked)

    async def _take_answer(self, peer: Peer, body: memoryview) -> None:
        answer = fetch_wire.read_answer(body)
        if answer.error:
            self._begin_session_anew()
            error = Error(answer.error)
            if error not in _SESSION_ERRORS:
                raise DecodeError(f"broker {self.leader_id} refused a fetch: {error.name}")
            return
        if self._session_epoch == INITIAL_EPOCH and answer.session_id != NO_SESSION:
            self._session_id, self._session_epoch = answer.session_id, 1
        out_of_range = await self._take_all(answer.partitions)
        if out_of_range:
            await self._find_places(peer, out_of_range)

    async def _connected_peer(self) -> Peer:
        if self._is_peer_stale and self._peer is not None:
            peer, self._peer = self._peer, None
            await peer.close()
        self._is_peer_stale = False
        if self._peer is None:
            self._peer = self._environment.connect(self.leader_id, fetcher_name(self.number))
        if self._peer is None:
            raise WireError(f"the address of broker {self.leader_id} is not known")
        return self._peer

    def _request(self) -> tuple[FetcherSettings, bytes]:
        settings = self._environment.settings()
        if self._session_epoch == INITIAL_EPOCH:
            self._unsent = {each: None for each in self._partitions.values() if not each.is_delayed}
            self._in_session.clear()
            self._forgotten.clear()
        topics: dict[bytes, list[AskedPartition]] = {}
        for followed in self._unsent:
            topics.setdefault(followed.key[0], []).append(followed.ask())
            self._in_session[followed.key] = followed
        for key in self._forgotten:
            del self._in_session[key]
        forgotten = fetch_wire.by_topic(self._forgotten)
        self._unsent = {}
        self._forgotten = {}
        epoch = self._session_epoch
        if epoch != INITIAL_EPOCH:
            self._session_epoch = epoch + 1 if epoch < EPOCH_MAX else 1
        return settings, fetch_wire.write_request(
            settings.limits,
            self._session_id,
            epoch,
            topics,
            forgotten,
            self._environment.node_id,
            self._environment.broker_epoch(),
        )

    def _begin_session_anew(self) -> None:
        """The next request names all partitions. If the leader still has the old session, it is closed by that."""
        self._session_epoch = INITIAL_EPOCH

    # ── taking in ────────────────────────────────────────────────────────────────────────────────────────────

    async def _take_all(self, partitions: Iterable[FetchedPartition]) -> list[FollowedPartition]:
        """Writes what came. Those whose offset the leader does not have are returned."""
        out_of_range: list[FollowedPartition] = []
        to_flush: list[FollowedPartition] = []
        cut: list[FollowedPartition] = []
        breather = Breather()
        for fetched in partitions:
            followed = self._in_session.get((fetched.topic_id, fetched.partition))
            if followed is None or not self._is_as_asked(followed):
                continue
            if followed.hosted.has_unsettled_cut:
                self._unsent[followed] = None
            elif fetched.error == Error.OFFSET_OUT_OF_RANGE:
                out_of_range.append(followed)
                continue
            else:
                self._take(followed, fetched)
            if followed.hosted.has_unsettled_cut:
                cut.append(followed)
            elif followed.hosted.must_flush():
                to_flush.append(followed)
            await breather.pause_if_due()
        await self._sync(self._environment.flush, to_flush)
        await self._sync(self._environment.settle_cuts, cut)
        return out_of_range

    async def _sync(self, sync: Sync, partitions: list[FollowedPartition]) -> None:
        """Nothing more is copied to a partition before that is done."""
        if not partitions:
            return
        failed = await sync([followed.hosted for followed in partitions])
        for followed in partitions:
            error = failed.get(followed.hosted)
            # It may be copied in another leader epoch by now, and that has to find out by itself.
            if error is not None and self._partitions.get(followed.key) is followed:
                self._delay_failed_here(followed, error)

    def _is_as_asked(self, followed: FollowedPartition) -> bool:
        return (
            self._partitions.get(followed.key) is followed
            and not followed.is_delayed
            and followed.hosted.log.log_end_offset == followed.sent_offset
        )

    def _take(self, followed: FollowedPartition, fetched: FetchedPartition) -> None:
        hosted = followed.hosted
        if fetched.error:
            refusal = KafkaError(Error(fetched.error), f"broker {self.leader_id} refused to send {hosted}")
            self._delay_refused(followed, refusal)
            return
        try:
            if fetched.diverging is not None:
                self._truncate(followed, fetched.diverging)
            else:
                hosted.copy(fetched.records, fetched.high_watermark, fetched.log_start_offset)
                self._throttle(followed, fetched)
            followed.succeeded()
        except (KafkaError, UnexpectedOffsetError, OSError) as error:
            self._delay_after(followed, error)
        else:
            if followed.has_changed and not followed.is_delayed:
                self._unsent[followed] = None

    def _truncate(self, followed: FollowedPartition, leaders: EpochEnd) -> None:
        hosted = followed.hosted
        log = hosted.log
        offset = truncation_offset(leaders, EpochEnd(*log.end_offset_for_epoch(leaders.epoch)), log.log_end_offset)
        if offset < hosted.state.high_watermark.offset:
            logger.warning(
                "truncating %s to %d, below its high watermark %d: its leader, broker %d, does not have the rest",
                hosted,
                offset,
                hosted.state.high_watermark.offset,
                self.leader_id,
            )
        elif offset < log.log_end_offset:
            logger.info("truncating %s from %d to %d to match its leader", hosted, log.log_end_offset, offset)
        # Even where nothing is cut: the epoch of the last record may be another now.
        self._unsent[followed] = None
        hosted.truncate(offset)

    def _throttle(self, followed: FollowedPartition, fetched: FetchedPartition) -> None:
        environment = self._environment
        throttle, hosted = environment.throttle, followed.hosted
        if throttle.limit_bytes is None:
            return
        if not is_marked(hosted, hosted.log.config.follower_replication_throttled_replicas, environment.node_id):
            return
        now_s = environment.clock.monotonic()
        throttle.record(len(fetched.records), now_s)
        is_in_sync = hosted.log.log_end_offset >= fetched.high_watermark
        if not is_in_sync and throttle.is_exceeded(now_s):
            followed.is_delayed = True
            self._leave_session(followed)
            self._resume_when_allowed(followed)

    def _resume_when_allowed(self, followed: FollowedPartition) -> None:
        environment = self._environment
        if self._partitions.get(followed.key) is not followed:
            return
        if environment.throttle.is_exceeded(environment.clock.monotonic()):
            environment.loop.call_later(THROTTLED_PAUSE_MS / 1000, self._resume_when_allowed, followed)
        else:
            self._resume(followed)

    # ── offsets that the leader does not have ────────────────────────────────────────────────────────────────

    async def _find_places(self, peer: Peer, lost: list[FollowedPartition]) -> None:
        """Asks where the leader's logs end and begin, and goes on where that allows."""
        ends = await self._offsets(peer, lost, LATEST)
        starts = await self._offsets(peer, lost, EARLIEST)
        cut: list[FollowedPartition] = []
        for followed in lost:
            if not self._is_as_asked(followed):
                continue
            hosted = followed.hosted
            end, start = ends.get(followed.key), starts.get(followed.key)
            try:
                if isinstance(end, Error) or isinstance(start, Error) or end is None or start is None:
                    refused = end if isinstance(end, Error) else start if isinstance(start, Error) else "no answer"
                    raise KafkaError(
                        Error.OFFSET_OUT_OF_RANGE, f"where its leader's log begins is not known: {refused}"
                    )
                self._restart(hosted, start, end)
                followed.succeeded()
                self._unsent[followed] = None
                if hosted.has_unsettled_cut:
                    cut.append(followed)
            except (KafkaError, OSError) as error:
                self._delay_after(followed, error)
        await self._sync(self._environment.settle_cuts, cut)

    def _restart(self, hosted: HostedPartition, leader_start: int, leader_end: int) -> None:
        own_end = hosted.log.log_end_offset
        place = restart(leader_start, leader_end, own_end)
        if place is None:
            return
        logger.warning(
            "%s ends at offset %d here, its leader's log has %d to %d: resuming at offset %d",
            hosted,
            own_end,
            leader_start,
            leader_end,
            place.offset,
        )
        if place.is_from_nothing:
            hosted.start_anew(place.offset)
        else:
            hosted.truncate(place.offset)

    async def _offsets(
        self, peer: Peer, partitions: list[FollowedPartition], timestamp: int
    ) -> dict[PartitionKey, int | Error]:
        by_name: dict[str, m.ListOffsetsRequest.ListOffsetsTopic] = {}
        for followed in partitions:
            name = followed.hosted.topic
            if name not in by_name:
                by_name[name] = m.ListOffsetsRequest.ListOffsetsTopic(name=name)
            by_name[name].partitions.append(
                m.ListOffsetsRequest.ListOffsetsPartition(
                    partition_index=followed.hosted.index,
                    current_leader_epoch=followed.leader_epoch,
                    timestamp=timestamp,
                )
            )
        request = m.ListOffsetsRequest(replica_id=self._environment.node_id, topics=list(by_name.values()))
        response = await peer.send(request, timeout_s=self._environment.settings().timeout_s)
        found = {
            (topic.name, each.partition_index): each.offset if not each.error_code else Error(each.error_code)
            for topic in response.topics
            for each in topic.partitions
        }
        return {
            each.key: found[name_and_index]
            for each in partitions
            if (name_and_index := (each.hosted.topic, each.hosted.index)) in found
        }
