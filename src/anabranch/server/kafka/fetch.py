"""Fetch (1): whole batches out of partitions, waiting for them if there are too few.

Versions 4 to 18; `fetch_sessions` explains the session id and epoch of 7 and later.  The answer's
records are ranges of log files (`wire/kafka/fetch.py`); they are never read here, except where Pulsar
producers write, too: what these wrote is translated (`partition/kafka_part.py`), for which a fetch that has
nothing else to give waits, whatever its `max_wait`.

A fetch answers at once when it has `min_bytes`, when `max_wait` is 0, or when there is an error to
tell.  Else it waits to be woken by one of its partitions or by its deadline, and looks again: at what has
moved, and at everything once that is enough, so that a fetch of thousands of partitions costs those who
write to one of them no more than a fetch of one.

From v11 on a consumer may read from a follower, too (KIP-392), as far as that one knows what is safe; the
leader may send it there (`preferred_replica`).

Byte limits (KIP-74): each partition gives at most its own and what is left of the request's; only the
first batch of the whole answer may exceed them, so that a consumer always makes progress.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from functools import partial
from uuid import UUID

from anabranch.base.errors import AnabranchError, NotOwner, OffsetOutOfRange, UnknownTopicId
from anabranch.base.ids import BrokerId
from anabranch.base.network import Chunk, FileRange
from anabranch.base.waiters import Waiter
from anabranch.log.compacted import CompactedLog
from anabranch.meta.image import NO_BROKER
from anabranch.partition.compacted_part import compacted_part
from anabranch.partition.config import RACK_AWARE
from anabranch.partition.followed import Followed
from anabranch.partition.kafka_part import kafka_part
from anabranch.partition.partition import Partition
from anabranch.partition.partition_log import Isolation
from anabranch.server.fetch_sessions import NO_SESSION, FetchSession, Wanted
from anabranch.server.handover_records import passed, unacked_part
from anabranch.server.kafka.current_leaders import not_fetched
from anabranch.server.kafka.errors import code_of
from anabranch.server.kafka.preferred_replica import preferred_replica
from anabranch.server.kafka.registry import Deferred, Reply, RequestContext, ToldAtOnce, Waiting, api
from anabranch.server.kafka.replica_fetch import gave_replica, read_for_replica
from anabranch.subscriptions.cursor import Cursor
from anabranch.wire.kafka.fetch import COMPACTED, DESCRIBED, Fetched, read_fetch, write_fetched

_OPENED_A_TURN = 16  # half a millisecond each, if they are new
_RETRY_S = 0.1
_TRANSLATED_S = 5.0
_FIRST_FROM_FOLLOWERS = 11
_MOST_BYTES = 1 << 30  # with the oversized batch and the headers, what the length of an answer can say


@api(1, versions=(4, 18), raw=True)
def fetch(frame: memoryview, at: int, ctx: RequestContext) -> Reply | Waiting | Coroutine[None, None, Reply]:
    request = read_fetch(frame, at, ctx.version)
    services = ctx.services
    try:
        session, wanted, whole = services.fetch_sessions.open(request, ctx.version)
    except AnabranchError as error:
        return write_fetched(ctx.version, code_of(error), NO_SESSION, ())
    max_bytes = min(request.max_bytes, services.config.current.fetch.max_bytes, _MOST_BYTES)
    if request.replica_id >= 0:
        ctx.times = services.requests.fetch_follower  # from now on: such connections are brokers' own
    work = Fetch(
        ctx,
        session,
        wanted,
        whole=whole,
        min_bytes=min(request.min_bytes, max_bytes),
        max_bytes=max_bytes,
        isolation=Isolation.COMMITTED if request.isolation_level == 1 else Isolation.UNCOMMITTED,
        wishes=request.wishes,
        replica=request.replica_id,
        replica_epoch=request.replica_epoch,
        rack=request.rack if services.config.current.replication.selector_class == RACK_AWARE else "",
    )
    if len(wanted) > _OPENED_A_TURN and work.opens_many():
        return work.open_and_answer()
    work.look()
    if work.is_satisfied or not wanted:
        return work.answer()
    if request.max_wait_ms <= 0:
        if not work.is_translating:
            return work.answer()
        work.settle_for_anything()
    work.wait(max(request.max_wait_ms / 1000, _TRANSLATED_S if work.is_translating else 0.0))
    return work


class Fetch(ToldAtOnce):
    """One fetch request, looked at once or several times."""

    __slots__ = (
        "_ctx",
        "_deadline",
        "_failed",
        "_found",
        "_has_looked",
        "_isolation",
        "_loop",
        "_max_bytes",
        "_min_bytes",
        "_moved",
        "_partitions",
        "_rack",
        "_replica",
        "_replica_epoch",
        "_scheduled",
        "_services",
        "_session",
        "_size",
        "_translating",
        "_wanted",
        "_watched",
        "_whole",
        "_wishes",
    )

    def __init__(
        self,
        ctx: RequestContext,
        session: FetchSession | None,
        wanted: list[Wanted],
        *,
        whole: bool,
        min_bytes: int,
        max_bytes: int,
        isolation: Isolation,
        wishes: int,
        replica: int,
        replica_epoch: int,
        rack: str,
    ) -> None:
        super().__init__()
        self._ctx = ctx
        self._services = ctx.services
        self._session = session
        self._wanted = wanted
        self._whole = whole
        self._min_bytes = min_bytes
        self._max_bytes = max_bytes
        self._isolation = isolation
        self._wishes = wishes
        self._replica = BrokerId(replica)
        self._replica_epoch = replica_epoch
        self._rack = rack
        """Empty unless there may be a nearer replica than the leader."""
        self._partitions: list[Partition | Followed | None] = []
        self._found: list[Fetched] = []
        self._size = 0
        self._failed = False
        self._scheduled = False
        self._has_looked = False
        self._translating: list[tuple[int, asyncio.Future[None]]] = []

    @property
    def is_satisfied(self) -> bool:
        return self._size >= self._min_bytes or self._failed

    @property
    def is_translating(self) -> bool:
        """Whether something is made ready that the last look could not give yet."""
        return bool(self._translating)

    def settle_for_anything(self) -> None:
        """The client does not wait for more than there is."""
        self._min_bytes = min(self._min_bytes, 1)

    # --- looking

    def look(self) -> None:
        """Read every partition as it stands now."""
        left = self._max_bytes
        found: list[Fetched] = []
        partitions: list[Partition | Followed | None] = []
        self._failed = False
        self._translating.clear()
        for i, wanted in enumerate(self._wanted):
            partition: Partition | Followed | None = None
            try:
                partition = self._partition(wanted)
                one = self._read(partition, i, left)
            except (AnabranchError, OSError) as error:
                self._failed = True
                one = not_fetched(error, wanted, self._services.partitions)
            partitions.append(partition)
            if one.diverging is not None or one.preferred_replica >= 0:
                self._failed = True
            left -= one.size_bytes
            found.append(one)
        self._has_looked = True
        self._found = found
        self._partitions = partitions
        self._size = self._max_bytes - left

    def opens_many(self) -> bool:
        """Whether a look would open more logs than the loop should wait for."""
        host, closed = self._services.partitions, 0
        for wanted in self._wanted:
            closed += not host.is_open(host.find(wanted.topic), wanted.index)
        return closed > _OPENED_A_TURN

    async def open_and_answer(self) -> Reply:
        """Open the logs a few at a time, then answer with what there is."""
        for number, wanted in enumerate(self._wanted):
            with suppress(AnabranchError, OSError):  # it is told when they are read
                self._partition(wanted)
            if number % _OPENED_A_TURN == 0:
                await asyncio.sleep(0)
        self.look()
        return self.answer()

    def _partition(self, wanted: Wanted) -> Partition | Followed:
        host = self._services.partitions
        if isinstance(wanted.topic, UUID):
            topic = host.topic_by_id(wanted.topic)
            if topic is None:
                raise UnknownTopicId(f"there is no topic with the id {wanted.topic}")
        else:
            topic = host.topic(wanted.topic)
        try:
            return host.partition_of(topic, wanted.index, wanted.leader_epoch)
        except NotOwner:
            if self._replica >= 0 or self._wishes or self._ctx.version < _FIRST_FROM_FOLLOWERS:
                raise
            return host.followed(topic, wanted.index)

    def _read(self, partition: Partition | Followed, i: int, left: int) -> Fetched:
        wanted = self._wanted[i]
        partition.check_leads()
        partition.check_leader_epoch(wanted.leader_epoch)
        if self._rack and (nearer := self._nearer(partition, wanted)) is not None:
            return nearer
        if wanted.last_fetched_epoch >= 0:
            diverging = self._divergence(partition, wanted)
            if diverging is not None:
                return Fetched(wanted.index, 0, *_ends(partition), None, None, diverging)
        if isinstance(partition, Followed):
            return self._read_here(partition, wanted, wanted.fetch_offset, left)
        if self._replica >= 0:
            most = min(wanted.max_bytes, max(left, 0))
            whole_first = left == self._max_bytes
            return read_for_replica(
                self._services.partitions,
                partition,
                wanted,
                self._replica,
                self._replica_epoch,
                most,
                whole_first=whole_first,
                is_repeated=self._has_looked,
            )
        offset = wanted.fetch_offset
        view = partition.view if self._wishes & COMPACTED else None
        if view is not None and 0 <= offset < view.horizon:
            return self._of_view(partition, view, i, left)
        ahead: Cursor | None = None
        if not self._services.handovers.are_none:
            ahead = self._services.handovers.ahead_of(self._ctx.peer, self._ctx.client_id, partition, offset)
            offset = offset if ahead is None else ahead.next_unacked(offset)
        found = self._read_here(partition, wanted, offset, left)
        records = found.records
        if isinstance(records, FileRange) and (partition.has_entries or ahead is not None):
            return found._replace(records=self._prepared(partition, i, records, ahead))
        if offset > wanted.fetch_offset:
            return found._replace(records=passed(wanted.fetch_offset, offset, partition.leader_epoch))
        return found

    def _nearer(self, partition: Partition | Followed, wanted: Wanted) -> Fetched | None:
        """The replica that a consumer should read from instead."""
        if self._replica >= 0 or isinstance(partition, Followed):
            return None
        brokers = self._services.cluster.image.brokers
        preferred = preferred_replica(partition, self._rack, wanted.fetch_offset, brokers)
        if preferred == NO_BROKER:
            return None
        return Fetched(wanted.index, 0, *_ends(partition), None, None, preferred_replica=preferred)

    def _read_here(self, partition: Partition | Followed, wanted: Wanted, offset: int, left: int) -> Fetched:
        """What is stored from `offset` on."""
        records = partition.read(
            offset,
            min(wanted.max_bytes, max(left, 0)),
            self._isolation,
            whole_first=left == self._max_bytes,
        )
        aborted = partition.aborted(offset, self._isolation, records)
        left_out = None if aborted is None else [(one.producer_id, one.first_offset) for one in aborted]
        return Fetched(wanted.index, 0, *_ends(partition), left_out, records)

    def _of_view(self, partition: Partition, view: CompactedLog, i: int, left: int) -> Fetched:
        wanted = self._wanted[i]
        described = bool(self._wishes & DESCRIBED)
        most = min(wanted.max_bytes, max(left, 0))
        part = compacted_part(partition, view, wanted.fetch_offset, most, described=described)
        given: bytes | None = None
        if isinstance(part, asyncio.Future):
            self._translating.append((i, part))
        else:
            given = part
        return Fetched(wanted.index, 0, *_ends(partition), [], given)

    def _prepared(
        self, partition: Partition, i: int, records: FileRange, ahead: Cursor | None
    ) -> Chunk | None:
        """In Kafka's form, without what is acknowledged `ahead`; None if that has to be made first."""
        part: FileRange | bytes | asyncio.Future[None] = records
        if partition.has_entries:
            part = kafka_part(partition, records, described=bool(self._wishes & DESCRIBED))
        if ahead is not None and not isinstance(part, asyncio.Future):
            part = unacked_part(partition, part, ahead)
        if isinstance(part, asyncio.Future):
            self._translating.append((i, part))
            return None
        return part

    def _divergence(self, partition: Partition | Followed, wanted: Wanted) -> tuple[int, int] | None:
        """Where the reader's history left ours, None if it did not."""
        epoch, end = partition.epoch_end(wanted.last_fetched_epoch)
        if epoch < 0:
            raise OffsetOutOfRange(f"leader epoch {wanted.last_fetched_epoch} is not in the log")
        if epoch < wanted.last_fetched_epoch or end < wanted.fetch_offset:
            return epoch, end
        return None

    # --- answering

    def answer(self) -> list[Chunk]:
        tells_where = self._failed and self._replica < 0  # followers know
        session, brokers = self._session, self._services.cluster.image.brokers if tells_where else None
        self._count()
        if session is None:
            found = self._by_topic(range(len(self._found)))
            return write_fetched(self._ctx.version, 0, NO_SESSION, found, brokers)
        told = [i for i in range(len(self._found)) if self._has_news(i) or self._whole]
        chunks = write_fetched(self._ctx.version, 0, session.session_id, self._by_topic(told), brokers)
        for i in told:
            if self._found[i].records is not None:
                session.gave_records(self._wanted[i])
        return chunks

    def _count(self) -> None:
        """Note what is given, where it was found."""
        if not self._size:
            return
        for partition, one in zip(self._partitions, self._found, strict=True):
            if partition is None or not one.size_bytes:
                continue
            if isinstance(partition, Followed):
                self._services.partitions.traffic.past.bytes_out += one.size_bytes
            elif self._replica < 0:
                partition.bytes_out += one.size_bytes
            else:
                gave_replica(self._services.partitions, partition, self._replica, one.size_bytes)

    def _has_news(self, i: int) -> bool:
        """Whether a partition has something that the session was not told yet."""
        wanted, one = self._wanted[i], self._found[i]
        news = (
            one.records is not None
            or one.error_code != 0
            or one.diverging is not None
            or one.preferred_replica >= 0
            or one.high_watermark != wanted.high_watermark
            or one.log_start != wanted.log_start
        )
        wanted.high_watermark, wanted.log_start = one.high_watermark, one.log_start
        return news

    def _by_topic(self, chosen: "range | list[int]") -> Iterator[tuple[str | UUID, list[Fetched]]]:
        topics: dict[str | UUID, list[Fetched]] = {}
        for i in chosen:
            topics.setdefault(self._wanted[i].topic, []).append(self._found[i])
        return iter(topics.items())

    # --- waiting

    def wait(self, seconds: float) -> None:
        """Have `answered` filled in when there is enough or `seconds` have passed."""
        self._loop = asyncio.get_running_loop()
        self.answered = self._loop.create_future()
        self.answered.add_done_callback(self._leave)
        self._deadline = self._loop.call_later(seconds, self.expire)
        self._moved: set[int] = set()
        self._watched: list[tuple[Partition | Followed, Waiter]] = [
            (partition, partial(self._wake, i))
            for i, partition in enumerate(self._partitions)
            if partition is not None  # there is none only where something has failed, which waits for nothing
        ]
        isolation = Isolation.UNCOMMITTED if self._replica < 0 else Isolation.LOG_END
        for partition, waiter in self._watched:
            partition.wait(waiter, isolation)
        self._await_translations()

    def _await_translations(self) -> None:
        for i, translated in self._translating:
            translated.add_done_callback(partial(self._translated, i))
        self._translating.clear()

    def _translated(self, i: int, done: "asyncio.Future[None]") -> None:
        if done.cancelled():
            return
        if done.exception() is None:
            self._wake(i)
        else:  # a disk that fails, usually: not at once again
            self._loop.call_later(_RETRY_S, self._wake, i)

    def _wake(self, i: int) -> None:
        """A partition has moved on.  Several may in one turn of the loop: look once, afterwards."""
        self._moved.add(i)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._look_again)

    def _look_again(self) -> None:
        self._scheduled = False
        moved, self._moved = self._moved, set()
        if self.answered.done():
            return
        try:
            if len(moved) < len(self._wanted):
                self._look_at(moved)  # which fails for one that has resigned
                if not self.is_satisfied:
                    self._await_translations()
                    return
            is_over = any(self._watched[i][0].retired for i in moved)  # nobody wakes it any more
            self.look()
            if not self.is_satisfied and not is_over:
                self._await_translations()
                return
            self.answered.set_result(self.answer())
        except Exception as error:  # noqa: BLE001  whoever waits for the answer must hear of it
            self.answered.set_exception(error)
        self._tell()

    def _look_at(self, moved: set[int]) -> None:
        """Read some partitions again; the others gave what they gave at the last look."""
        for i in moved:
            before = self._found[i].size_bytes
            left = self._max_bytes - self._size + before
            try:
                one = self._read(self._watched[i][0], i, left)
            except (AnabranchError, OSError):
                self._failed = True
                return
            self._found[i] = one
            self._size += one.size_bytes - before

    def expire(self) -> None:
        if self.answered.done():
            return
        try:
            self.look()
            self.answered.set_result(self.answer())
        except Exception as error:  # noqa: BLE001  as above
            self.answered.set_exception(error)
        self._tell()

    def _leave(self, _: Deferred) -> None:
        self._deadline.cancel()
        for partition, waiter in self._watched:
            partition.stop_waiting(waiter)


def _ends(partition: Partition | Followed) -> tuple[int, int, int]:
    """As an answer has them."""
    return partition.high_watermark, partition.last_stable, partition.log_start
