"""ShareFetch (78): acknowledgements first, then records, waiting for them if there are none.

    v1     sessions, acknowledgements with the fetch, a bound on records
    v2     a bound that holds to the record (acquire mode 1), locks renewed

    request ─> session ─> acknowledgements, durable ─> look at every partition ─┬─> answer
                          share partitions opened          └── wait <───────────┘

Records that are in the answer are the consumer's from now on, so nothing is taken before it is sent: while a
fetch waits it holds nothing.  It is woken when a log grows, and when records are given back.

Byte limits are Fetch's: only the first batch of the whole answer may exceed them.

A share partition whose state cannot be read just now, since its coordinator moves, has no records until then.
"""

import asyncio
from typing import Any

from anabranch.base.errors import AnabranchError, Invalid, NotCoordinator, Unavailable
from anabranch.groups.other_brokers import heard
from anabranch.server.kafka.current_leaders import leader_of
from anabranch.server.kafka.errors import code_of, message_of
from anabranch.server.kafka.registry import Deferred, Reply, RequestContext, ToldAtOnce, Waiting, api
from anabranch.server.kafka.share_acks import Acks, acks_in, carry_out, key_of, member_of, places_in
from anabranch.server.services import Services
from anabranch.server.share_sessions import FINAL_EPOCH, INITIAL_EPOCH, Place, ShareSession
from anabranch.subscriptions.share_live import LiveSharePartition
from anabranch.subscriptions.share_taking import Asked
from anabranch.wire.kafka.decoder import decode
from anabranch.wire.kafka.share_fetch import SharedPart, write_shared

_MOST_BYTES = 1 << 30
_LEAST_WAIT_S = 0.05
_STRICTLY = 1  # the acquire mode that never gives more records than were asked for

Failure = AnabranchError | OSError


@api(78, versions=(1, 2), raw=True)
def share_fetch(frame: memoryview, at: int, ctx: RequestContext) -> Reply | Waiting:
    request = decode(78, ctx.version, frame, at)
    acks = acks_in(request.topics)
    try:
        session = _session(request, acks, ctx)
    except AnabranchError as error:
        return write_shared(code_of(error), message_of(error), 0, (), {})
    return ShareFetch(ctx.services, session, request, acks).begin()


def _session(request: Any, acks: Acks, ctx: RequestContext) -> ShareSession:
    member = member_of(request)
    sessions = ctx.services.share_sessions
    epoch, wanted = request.share_session_epoch, places_in(request.topics)
    if epoch == INITIAL_EPOCH:
        if acks:
            raise Invalid("a share session does not begin with acknowledgements")
        return sessions.start(member, ctx.connection_id, wanted)
    forgotten = [
        (topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions
    ]
    return sessions.go_on(member, epoch, wanted, forgotten)


class ShareFetch(ToldAtOnce):
    """One share fetch, looked at once or several times."""

    def __init__(self, services: Services, session: ShareSession, request: Any, acks: Acks) -> None:
        super().__init__()
        self._cluster = services.cluster
        self._shares = services.share_partitions
        self._sessions = services.share_sessions
        self._session = session
        self._acks = acks
        self._may_renew: bool = request.is_renew_ack
        self._is_final = request.share_session_epoch == FINAL_EPOCH
        self._is_first = request.share_session_epoch == INITIAL_EPOCH
        self._max_wait_ms: int = request.max_wait
        self._max_bytes: int = min(request.max_bytes, services.config.current.fetch.max_bytes, _MOST_BYTES)
        self._min_bytes: int = min(request.min_bytes, self._max_bytes)
        is_strict = request.share_acquire_mode == _STRICTLY
        self._asked = Asked(request.max_records, max(request.batch_size, 1), is_strict)
        self._named = places_in(request.topics)
        self._ack_errors: dict[Place, Failure] = {}
        self._errors: dict[Place, Failure] = {}
        self._live: dict[Place, LiveSharePartition] = {}
        self._watched: list[LiveSharePartition] = []
        self._deadline: asyncio.TimerHandle | None = None
        self._is_incomplete = False  # some share partitions cannot be opened yet
        self._is_deferred = self._is_late = self._is_stopping = self._is_scheduled = False

    # --- from the request to the first look

    def begin(self) -> Reply | Waiting:
        if not self._acks and self._find_open():
            reply = self._look()
            if reply is not None:
                return reply
            self._defer()
            self._wait()
            return self
        self._defer()
        self._preparing = asyncio.ensure_future(self._prepare())
        return self

    def _defer(self) -> None:
        self._is_deferred = True
        self._loop = asyncio.get_running_loop()
        self.answered = self._loop.create_future()
        self.answered.add_done_callback(self._leave)

    def _find_open(self) -> bool:
        """Whether all share partitions are open already."""
        if self._is_final:
            return True
        for place in self._session.partitions:
            live = self._shares.find(key_of(self._session.member, place))
            if live is None:
                return False
            self._live[place] = live
        return True

    async def _prepare(self) -> None:
        """Acknowledge, and open what is not open."""
        try:
            member = self._session.member
            self._ack_errors = await carry_out(self._shares, member, self._acks, may_renew=self._may_renew)
            await self._open()
            reply = self._look()
        except Exception as error:  # noqa: BLE001  whoever waits for the answer must hear of it
            self._fail(error)
            return
        if reply is not None:
            self._give(reply)
        elif not self.answered.done():
            self._wait()

    async def _open(self) -> None:
        if self._is_final:
            return
        member = self._session.member
        opening = {
            place: asyncio.ensure_future(self._shares.open(key_of(member, place)))
            for place in self._session.partitions
        }
        if not opening:
            return
        await asyncio.wait(opening.values(), timeout=max(_LEAST_WAIT_S, self._max_wait_ms / 1000))
        for place, opened in opening.items():
            if not opened.done():
                opened.add_done_callback(heard)
                self._is_incomplete = True
                continue
            try:
                self._live[place] = opened.result()
            except (Unavailable, NotCoordinator):
                self._is_incomplete = True
            except (AnabranchError, OSError) as error:
                self._errors[place] = error

    # --- looking

    def _look(self) -> Reply:
        """The answer, None if it is better to wait."""
        if self._is_final:
            self._sessions.end(self._session)
            return self._answer({})
        is_gone = self._is_deferred and self.answered.done()
        if self._is_stopping or is_gone or not self._sessions.has(self._session):
            return self._answer({})  # nobody would get what is taken
        is_last = self._is_late or self._max_wait_ms <= 0
        if (
            not is_last
            and self._min_bytes > 1
            and not self._errors
            and self._readable_bytes() < self._min_bytes
        ):
            return None
        parts = self._take()
        is_empty = not self._live and not self._is_incomplete
        if parts or self._errors or self._ack_errors or is_last or is_empty:
            return self._answer(parts)
        return None

    def _readable_bytes(self) -> int:
        size = 0
        for live in self._live.values():
            if size >= self._min_bytes:
                break
            try:
                size += live.readable_bytes(self._max_bytes)
            except (AnabranchError, OSError):
                return self._min_bytes  # it is told when they are taken
        return size

    def _take(self) -> dict[Place, SharedPart]:
        """Take records of one partition after the other, until there are enough."""
        member = self._session.member[1]
        left, records = self._max_bytes, self._asked.max_records
        parts: dict[Place, SharedPart] = {}
        for place, live in list(self._live.items()):
            if records <= 0 or left <= 0:
                break
            try:
                taken = live.fetch(
                    member, left, self._asked._replace(max_records=records), whole_first=not parts
                )
            except (AnabranchError, OSError) as error:
                self._errors[place] = error
                continue
            if taken is not None:
                parts[place] = SharedPart(place[1], records=taken.records, acquired=taken.acquired)
                left -= parts[place].size_bytes
                records -= taken.record_count
        return parts

    # --- answering

    def _answer(self, parts: dict[Place, SharedPart]) -> Reply:
        """Those with records or with something to say; all that were named, when the session begins."""
        told = dict.fromkeys((*parts, *self._errors, *self._acks, *(self._named if self._is_first else ())))
        topics: dict[Any, list[SharedPart]] = {}
        for place in told:
            part = parts.get(place) or SharedPart(place[1])
            error, ack_error = self._errors.get(place), self._ack_errors.get(place)
            if error is not None:
                part = part._replace(error_code=code_of(error), error_message=message_of(error))
            if ack_error is not None:
                part = part._replace(
                    ack_error_code=code_of(ack_error), ack_error_message=message_of(ack_error)
                )
            leader = leader_of(error or ack_error)
            if leader is not None:
                part = part._replace(leader=leader)
            topics.setdefault(place[0], []).append(part)
            if place in parts:
                self._session.gave_records(place)
        lock_ms = self._shares.config_of(self._session.member[0]).share_record_lock_duration_ms
        return write_shared(0, None, lock_ms, topics.items(), self._cluster.image.brokers)

    def _give(self, reply: Reply) -> None:
        if not self.answered.done():
            self.answered.set_result(reply)
            self._tell()

    def _fail(self, error: Exception) -> None:
        if not self.answered.done():
            self.answered.set_exception(error)
            self._tell()

    # --- waiting

    def _wait(self) -> None:
        self._deadline = self._loop.call_later(self._max_wait_ms / 1000, self._time_is_up)
        self._watched = list(self._live.values())
        for live in self._watched:
            live.wait(self._wake)

    def _wake(self) -> None:
        """Several may move on in one turn of the loop: look once, afterwards."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._look_again)

    def _look_again(self) -> None:
        self._is_scheduled = False
        if self.answered.done():
            return
        try:
            reply = self._look()
        except Exception as error:  # noqa: BLE001  as above
            self._fail(error)
            return
        if reply is not None:
            self._give(reply)

    def _time_is_up(self) -> None:
        self._is_late = True
        self._look_again()

    def expire(self) -> None:
        """The node stops: answer without records, which nobody could acknowledge any more."""
        self._is_stopping = True
        if self._deadline is not None:
            self._look_again()

    def _leave(self, _: Deferred) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        for live in self._watched:
            live.stop_waiting(self._wake)
