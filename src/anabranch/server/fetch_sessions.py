"""Fetch sessions (KIP-227): a client names its partitions once and then only what changed.

    session id, epoch       meaning
    0, -1                   no session, whole answer
    0, 0                    start one, whole answer
    id, 0                   close that one and start another
    id, -1                  close that one, whole answer
    id, n                   the session's n-th fetch: partitions that are new, changed or forgotten are
                            named, the answer holds those with something to say

A session remembers what it last told about each partition.  Partitions that gave records move to the
end, so that under a byte limit all get their turn.

At most `slots` sessions are kept, with `_MAX_PARTITIONS` partitions in all; a new one takes the place of
the one least recently used if that has rested for two minutes, else the client gets whole answers
(session id 0) and asks again later.
"""

from collections import OrderedDict
from random import Random
from uuid import UUID

from anabranch.base.clock import Clock
from anabranch.base.errors import FetchSessionNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch
from anabranch.wire.kafka.fetch import AskedPartition, FetchRequest

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_LAST_EPOCH = (1 << 31) - 1
_EVICTABLE_AFTER_S = 120.0
_MAX_PARTITIONS = 200_000  # some 400 bytes each

TopicKey = str | UUID
PartitionKey = tuple[TopicKey, int]


class Wanted:
    """A partition of a fetch: what is asked for and, in a session, what was last answered."""

    __slots__ = (
        "fetch_offset",
        "high_watermark",
        "index",
        "last_fetched_epoch",
        "leader_epoch",
        "log_start",
        "max_bytes",
        "replica_start",
        "topic",
    )

    def __init__(self, topic: TopicKey, asked: AskedPartition) -> None:
        self.topic = topic
        self.index: int = asked.partition
        self.high_watermark = -1
        self.log_start = -1
        self.update(asked)

    def update(self, asked: AskedPartition) -> None:
        if asked.log_start >= 0:  # a follower's, which may have begun again and dropped what it was told
            self.high_watermark = self.log_start = -1
        self.fetch_offset: int = asked.fetch_offset
        self.max_bytes: int = asked.partition_max_bytes
        self.leader_epoch: int = asked.current_leader_epoch
        self.last_fetched_epoch: int = asked.last_fetched_epoch
        self.replica_start: int = asked.log_start


class FetchSession:
    __slots__ = ("by_id", "epoch", "last_used", "partitions", "session_id")

    def __init__(
        self, session_id: int, partitions: dict[PartitionKey, Wanted], by_id: bool, now: float
    ) -> None:
        self.session_id = session_id
        self.epoch = 1
        self.by_id = by_id
        self.last_used = now
        self.partitions = partitions

    def apply(self, request: FetchRequest, by_id: bool) -> None:
        """Take the changes that an incremental request brings."""
        if by_id != self.by_id:
            raise FetchSessionTopicIdError("a session names topics by id or by name, not by both")
        for key, asked in _asked(request):
            known = self.partitions.get((key, asked.partition))
            if known is None:
                self.partitions[(key, asked.partition)] = Wanted(key, asked)
            else:
                known.update(asked)
        for topic, indexes in request.forgotten:
            for index in indexes:
                self.partitions.pop((topic, index), None)

    def gave_records(self, wanted: Wanted) -> None:
        """Move a partition to the end of the order."""
        key = (wanted.topic, wanted.index)
        if key in self.partitions:
            self.partitions[key] = self.partitions.pop(key)


class FetchSessions:
    """All sessions of a broker."""

    def __init__(self, slots: int, clock: Clock, chance: Random) -> None:
        self._slots = slots
        self._clock = clock
        self._chance = chance
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self._remembered = 0  # partitions of all sessions

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, request: FetchRequest, version: int) -> tuple[FetchSession | None, list[Wanted], bool]:
        """The session of a request, the partitions it fetches, and whether the answer is whole."""
        by_id = version >= 13
        session_id, epoch = request.session_id, request.session_epoch
        if version < 7 or epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._close(session_id)
            wanted = {(key, asked.partition): Wanted(key, asked) for key, asked in _asked(request)}
            starts = version >= 7 and epoch == INITIAL_EPOCH
            return self._start(wanted, by_id) if starts else None, list(wanted.values()), True
        session = self._sessions.get(session_id)
        if session is None:
            raise FetchSessionNotFound(f"there is no fetch session {session_id}")
        if session.epoch != epoch:
            raise InvalidFetchSessionEpoch(
                f"fetch session {session_id} is at epoch {session.epoch}, not {epoch}"
            )
        before = len(session.partitions)
        session.apply(request, by_id)
        self._remembered += len(session.partitions) - before
        if not session.partitions:
            self._close(session_id)
            return None, [], True
        if self._remembered > _MAX_PARTITIONS:
            self._close(session_id)
            raise FetchSessionNotFound(f"fetch session {session_id} has grown too large")
        session.epoch = 1 if epoch == _LAST_EPOCH else epoch + 1
        session.last_used = self._clock.monotonic()
        self._sessions.move_to_end(session_id)
        return session, list(session.partitions.values()), False

    def _start(self, wanted: dict[PartitionKey, Wanted], by_id: bool) -> FetchSession | None:
        now = self._clock.monotonic()
        if len(self._sessions) >= self._slots:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now - oldest.last_used < _EVICTABLE_AFTER_S:
                return None
            self._close(oldest.session_id)
        if self._remembered + len(wanted) > _MAX_PARTITIONS:
            return None
        session_id = self._chance.randrange(1, 1 << 31)
        while session_id in self._sessions:
            session_id = self._chance.randrange(1, 1 << 31)
        session = self._sessions[session_id] = FetchSession(session_id, wanted, by_id, now)
        self._remembered += len(wanted)
        return session

    def _close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._remembered -= len(session.partitions)


def _asked(request: FetchRequest) -> list[tuple[TopicKey, AskedPartition]]:
    return [(topic, partition) for topic, partitions in request.topics for partition in partitions]
