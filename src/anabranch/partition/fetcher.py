"""Replica fetchers: one for each leader that this broker follows, fetching all of its partitions together.

    image: broker 2 leads orders-3, this one has a replica   ─> Followers ─> ReplicaFetcher(2) ─> Following
    image: another leader, or another epoch                  ─> the one of before drops it

With `num.replica.fetchers` there are several of them for a leader, each with a share of its partitions.
Fetches are Kafka's, with the follower's id and in a session, so that they name what has changed only.  What
is fetched is in the log, and flushed if `flush.messages` asks for it, before the next fetch tells the leader
so: that is what the leader's high watermark goes by.

What fails for one partition is tried again later, and does not hold up the others.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

from anabranch.base.backoff import Backoff
from anabranch.base.clock import Clock
from anabranch.base.disk import Disk
from anabranch.base.errors import AnabranchError, DiskFailed, Unavailable
from anabranch.base.ids import BrokerId
from anabranch.base.network import Network
from anabranch.base.seldom import Seldom
from anabranch.client.aio import AsyncClient
from anabranch.client.answers import check
from anabranch.client.destinations import Address
from anabranch.client.requests import FETCH, LIST_OFFSETS, Request
from anabranch.client.settings import Settings
from anabranch.log.flusher import is_due
from anabranch.log.segment import Segment
from anabranch.meta.image import NO_BROKER, PartitionImage
from anabranch.partition.config import ReplicationConfig
from anabranch.partition.follower_session import FollowerSession
from anabranch.partition.following import Following
from anabranch.partition.host import PartitionHost
from anabranch.partition.served_topic import ServedTopic
from anabranch.partition.throttling import FOLLOWER, is_throttled
from anabranch.wire.kafka.schema import ErrorCode

log = logging.getLogger(__name__)
_trouble = Seldom(log, 10.0)

_NEWEST_FETCH = 17  # by topic ids
_EARLIEST, _LATEST = -2, -1
_FIRST_RETRY_S = 0.02
_LEADER_IS_BEHIND = {ErrorCode.unknown_topic_id, ErrorCode.unknown_leader_epoch}
"""Its image is older than ours: for some milliseconds, when a topic was made or a leader elected."""
_OPENED_A_TURN = 16  # logs; half a millisecond each, if they are new

Place = tuple[UUID, int]
Truncated = Callable[[Following, list[Segment]], Awaitable[None]]


class Surroundings(NamedTuple):
    """What fetchers share."""

    broker: BrokerId
    host: PartitionHost
    disk: Disk
    network: Network
    clock: Clock
    random: Random
    config: ReplicationConfig
    address_of: Callable[[BrokerId], Address | None]
    """Where a broker is reached, None if it is not there."""
    own_epoch: Callable[[], int | None]
    """In which this broker is registered, None if it is not."""
    truncated: Truncated
    """Segments were cut off; returns when that is written down."""


class Followed(NamedTuple):
    """A partition to be followed, whose log need not be open yet."""

    topic: ServedTopic
    state: PartitionImage

    def __str__(self) -> str:
        return f"{self.topic.name.kafka}-{self.state.index}"


class Followers:
    """The partitions that this broker follows."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._fetchers: dict[tuple[BrokerId, int], ReplicaFetcher] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.failed: asyncio.Future[None] | None = None

    def follow(self, topic: ServedTopic, state: PartitionImage) -> None:
        """The partition has this state from now on."""
        place = (topic.topic_id, state.index)
        for each in self._fetchers.values():
            each.drop(place)
        me = self._around.broker
        if state.leader in (me, NO_BROKER) or me not in state.replicas:
            return
        which = (state.leader, hash(place) % self._around.config.num_fetchers)
        fetcher = self._fetchers.get(which)
        if fetcher is None:
            fetcher = self._fetchers[which] = ReplicaFetcher(state.leader, self._around)
            if self.failed is not None:
                self._start(fetcher)
        fetcher.add(place, Followed(topic, state))

    def fetchers(self) -> Iterator[tuple[BrokerId, int, "ReplicaFetcher"]]:
        """All that there are, with the leader and the number among those of that leader."""
        for (leader, number), fetcher in self._fetchers.items():
            yield leader, number, fetcher

    def _start(self, fetcher: "ReplicaFetcher") -> None:
        task = asyncio.ensure_future(fetcher.run())
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None and self.failed and not self.failed.done():
            self.failed.set_exception(task.exception())  # type: ignore[arg-type]

    async def run(self) -> None:
        """Fetch for as long as the node lives."""
        self.failed = asyncio.get_running_loop().create_future()
        for fetcher in self._fetchers.values():
            self._start(fetcher)
        try:
            await self.failed
        finally:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for fetcher in self._fetchers.values():
                fetcher.close()


class ReplicaFetcher:
    """Fetches from one leader."""

    def __init__(self, leader: BrokerId, around: Surroundings) -> None:
        self._leader = leader
        self._around = around
        self._followed: dict[Place, Followed] = {}
        self._following: dict[Place, Following] = {}  # of these, those whose logs are open
        self._unsynced: dict[Place, Following] = {}  # of these, those to sync before the leader is asked
        self._later: dict[Place, float] = {}  # when those are due that failed
        self._ahead: dict[Place, Backoff] = {}  # of them, those whose leader is behind
        self._backoff = Backoff(_FIRST_RETRY_S, around.config.fetch_backoff_ms / 1000, around.random)
        self._work = asyncio.Event()
        self._session = FollowerSession(around.config.fetch_max_bytes)
        settings = Settings("", f"broker-{around.broker}-fetcher")
        self._client = AsyncClient(settings, around.network, around.clock, around.random)

    def add(self, place: Place, followed: Followed) -> None:
        self._followed[place] = followed
        self._work.set()

    def drop(self, place: Place) -> None:
        self._followed.pop(place, None)
        following = self._following.pop(place, None)
        if following is not None:
            self._around.host.traffic.past.replication_bytes_in += following.fetched_bytes
        self._later.pop(place, None)
        self._ahead.pop(place, None)

    @property
    def lag(self) -> int:
        """How many messages the replica lacks that lacks most of what its leader has told is safe."""
        return max([following.lag for following in self._following.values()], default=0)

    @property
    def fetched_bytes(self) -> int:
        """For the replicas that it has now."""
        return sum([following.fetched_bytes for following in self._following.values()])

    def close(self) -> None:
        self._client.close()

    async def run(self) -> None:
        while True:
            self._work.clear()
            await self._open_logs()
            due = self._due()
            if not due:
                await self._rest()
                continue
            try:
                await self._fetch(due)
            except DiskFailed:
                raise
            except (AnabranchError, OSError) as error:
                pause_s = self._backoff.next_s()
                _trouble.warning("broker %d: fetching from it failed: %s", self._leader, error)
                await asyncio.sleep(pause_s)

    def _due(self) -> dict[Place, Following]:
        now = self._around.clock.monotonic()
        for place in [place for place, following in self._following.items() if following.replica.is_closed]:
            self.drop(place)  # the topic was deleted
        due: dict[Place, Following] = {}
        for place, followed in list(self._followed.items()):
            following = self._following.get(place) if self._later.get(place, now) <= now else None
            if following is not None and not self._is_held_back(place, following, followed.topic, now):
                due[place] = following
        return due

    async def _open_logs(self) -> None:
        """Of the partitions that are new here, a few at a time: after a start these are all."""
        now, opened = self._around.clock.monotonic(), 0
        for place, followed in list(self._followed.items()):
            is_new = place not in self._following and self._followed.get(place) is followed
            if is_new and self._later.get(place, now) <= now:
                self._open(place, followed)
                opened += 1
                if opened % _OPENED_A_TURN == 0:
                    await asyncio.sleep(0)

    def _is_held_back(self, place: Place, following: Following, topic: ServedTopic, now: float) -> bool:
        """By the throttle; it is due again when that lets it through."""
        throttle = self._around.host.replication.follower_throttle
        if following.is_in_step or not throttle.is_exceeded or not self._is_throttled(topic, following):
            return False
        self._later[place] = now + throttle.wait_s
        return True

    def _is_throttled(self, topic: ServedTopic, following: Following) -> bool:
        return is_throttled(topic.image.config, FOLLOWER, following.replica.index, self._around.broker)

    def _open(self, place: Place, followed: Followed) -> None:
        """If its log cannot be opened now it is tried again later."""
        topic, state = followed
        if self._around.host.topic_by_id(topic.topic_id) is not topic:
            self.drop(place)
            return
        try:
            replica = self._around.host.replica_of(topic, state.index)
        except (AnabranchError, OSError) as error:
            self._failed(place, str(followed), error)
            return
        log.info("%s: follows broker %d in epoch %d", replica, state.leader, state.leader_epoch)
        following = self._following[place] = Following(replica, state.leader_epoch, self._around.disk)
        self._unsynced[place] = following

    def _is_followed(self, place: Place, following: Following) -> bool:
        """Whether it still is: its folder may be that of another topic of the name by now."""
        return self._following.get(place) is following and not following.replica.is_closed

    def _failed(self, place: Place, name: str, error: Exception, code: int = 0) -> None:
        pause_s = self._around.config.fetch_backoff_ms / 1000
        if code in _LEADER_IS_BEHIND:
            first = Backoff(_FIRST_RETRY_S, pause_s, self._around.random)
            pause_s = self._ahead.setdefault(place, first).next_s()
        if place in self._followed:  # else what is never due would end each rest at once
            self._later[place] = self._around.clock.monotonic() + pause_s
        _trouble.warning(
            "%s: following broker %d failed, again in %.1f s: %s", name, self._leader, pause_s, error
        )

    async def _rest(self) -> None:
        """Until there is something to fetch."""
        wait_s = None
        if self._later:
            wait_s = max(0.001, min(self._later.values()) - self._around.clock.monotonic())
        try:
            async with asyncio.timeout(wait_s):
                await self._work.wait()
        except TimeoutError:
            return

    async def _fetch(self, due: dict[Place, Following]) -> None:
        config = self._around.config
        timeout_s = (config.fetch_max_wait_ms + config.socket_timeout_ms) / 1000
        await self._sync(due)
        request = self._request(due)
        try:
            answer = await self._ask(request, timeout_s)
        except BaseException:
            self._session.failed()
            raise
        if self._session.is_over(answer.error_code):
            return
        check(answer.error_code, f"broker {self._leader}")
        self._session.answered(answer.session_id)
        self._backoff.reset()
        settling: list[asyncio.Task[None]] = []
        try:
            for topic in answer.responses:
                for part in topic.partitions:
                    place = (topic.topic_id, part.partition_index)
                    following = due.get(place)
                    if following is not None and self._is_followed(place, following):
                        await self._take(place, following, part, settling)
                        await asyncio.sleep(0)
        finally:  # before the leader hears of it, and before anything more is appended
            await asyncio.gather(*settling)

    async def _sync(self, due: dict[Place, Following]) -> None:
        """What we ask a leader for says what we have: with `flush.messages`, on the disk.

        What an earlier process had written and not synced is there after a kill, and not after a power cut.
        A cut that the disk refused, or the checkpoint of it, is done first: the log has less than it says.
        One that cannot be synced now is due no more, and tried again when it is due.
        """
        unsynced, self._unsynced = self._unsynced, {}
        settling: list[asyncio.Task[None]] = []
        try:
            for place, following in unsynced.items():
                if not self._is_followed(place, following):
                    continue
                if place not in due:
                    self._unsynced[place] = following
                    continue
                try:
                    written = self._owed(following)
                except (AnabranchError, OSError) as error:
                    self._put_off(place, following, error)
                    continue
                if written is not None:
                    settling.append(asyncio.ensure_future(self._settle(place, following, written)))
                    await asyncio.sleep(0)
        finally:
            await asyncio.gather(*settling)
        for place in self._unsynced:
            due.pop(place, None)

    def _owed(self, following: Following) -> Awaitable[None] | None:
        """What is to be waited for before the leader is asked."""
        replica = following.replica
        if not replica.is_settled:
            return self._around.truncated(following, replica.finish_cut(self._around.disk))
        if is_due(replica.log):
            return self._around.host.flusher.flush(replica.log, replica.log.log_end)
        return None

    async def _ask(self, request: Request, timeout_s: float) -> Any:
        address = self._around.address_of(self._leader)
        if address is None:
            raise AnabranchError("it is not registered")
        return await self._client.ask(address, request, timeout_s)

    def _request(self, due: dict[Place, Following]) -> Request:
        config = self._around.config
        epoch = self._around.own_epoch()
        values = {
            "cluster_id": None,
            "replica_state": {
                "replica_id": self._around.broker,
                "replica_epoch": -1 if epoch is None else epoch,
            },
            "max_wait": config.fetch_max_wait_ms,
            "min_bytes": config.fetch_min_bytes,
            "max_bytes": config.fetch_response_max_bytes,
            "isolation_level": 0,
            "rack_id": "",
            **self._session.asked(due),
        }
        return Request(FETCH, values, newest=_NEWEST_FETCH)

    # --- one partition

    async def _take(
        self, place: Place, following: Following, part: Any, settling: "list[asyncio.Task[None]]"
    ) -> None:
        """Take what the leader gave; what is to be waited for before it is asked again goes to `settling`."""
        opened = following.replica.log
        before = following.replica.high_watermark, opened.log_start
        try:
            if part.error_code == ErrorCode.offset_out_of_range:
                start, end = await self._bounds(following)
                if not self._is_followed(place, following):
                    return
                dropped = following.begin_within(start, end)
                if dropped is None:  # not to be asked at once again
                    raise Unavailable(f"offset {following.replica.log.log_end} is out of the leader's range")
            else:
                check(part.error_code, str(following.replica))
                self._count(place, following, part)
                dropped = following.answered(part)
        except DiskFailed:
            raise
        except (AnabranchError, OSError) as error:
            if following.replica.is_settled:
                self._failed(place, str(following.replica), error, part.error_code)
            else:
                self._put_off(place, following, error)
            return
        self._ahead.pop(place, None)
        moved = (following.replica.high_watermark, opened.log_start) != before
        if dropped is not None or part.records or moved:
            self._around.host.touched.add(following.replica)
        if part.records and place in self._followed:  # next time the others are first
            self._followed[place] = self._followed.pop(place)
        self._later.pop(place, None)
        if dropped is not None:
            log.info("%s: cut at offset %d, as its leader has it", following.replica, opened.log_end)
            written = self._around.truncated(following, dropped)
        elif is_due(opened):
            written = self._around.host.flusher.flush(opened, opened.log_end)
        else:
            return
        settling.append(asyncio.ensure_future(self._settle(place, following, written)))

    async def _settle(self, place: Place, following: Following, written: Awaitable[None]) -> None:
        try:
            await written
        except DiskFailed:
            raise
        except (AnabranchError, OSError) as error:
            self._put_off(place, following, error)

    def _put_off(self, place: Place, following: Following, error: Exception) -> None:
        """The leader is not asked before what failed is done."""
        self._failed(place, str(following.replica), error)
        self._unsynced[place] = following

    def _count(self, place: Place, following: Following, part: Any) -> None:
        """Of what is throttled, so that all together are held to the rate."""
        throttle, followed = self._around.host.replication.follower_throttle, self._followed.get(place)
        if not part.records or not throttle.is_on or followed is None:
            return
        if self._is_throttled(followed.topic, following):
            throttle.let_through(len(part.records))

    async def _bounds(self, following: Following) -> tuple[int, int]:
        """Where the leader's log begins and ends."""
        start, end = [await self._offset(following, timestamp) for timestamp in (_EARLIEST, _LATEST)]
        return start, end

    async def _offset(self, following: Following, timestamp: int) -> int:
        replica = following.replica
        one = {
            "partition_index": replica.index,
            "current_leader_epoch": following.leader_epoch,
            "timestamp": timestamp,
        }
        values = {
            "replica_id": self._around.broker,
            "isolation_level": 0,
            "topics": [{"name": replica.topic.kafka, "partitions": [one]}],
        }
        answer = await self._ask(Request(LIST_OFFSETS, values), self._around.config.socket_timeout_ms / 1000)
        part = answer.topics[0].partitions[0]
        check(part.error_code, str(replica))
        return int(part.offset)
