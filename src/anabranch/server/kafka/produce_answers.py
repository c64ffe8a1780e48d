"""Produce answers: what became of each batch, at once or when the acknowledgements are there.

With acks=all a partition that is not acknowledged within the request's `timeout_ms` is REQUEST_TIMED_OUT.  As
with Kafka its answer has the offset of the batch all the same: it is in the log, and nothing takes it back.
Other acks have no deadline: what they wait for, if anything, is this broker's own disk.
"""

import asyncio
import logging
from typing import NamedTuple

from anabranch.base.errors import Corrupt, DiskFull
from anabranch.base.seldom import Seldom
from anabranch.cluster.cluster import Cluster
from anabranch.partition.partition import Partition
from anabranch.partition.partition_log import Appended
from anabranch.partition.traffic import Traffic
from anabranch.records.record import MissingKeys
from anabranch.server.kafka.current_leaders import leader_of
from anabranch.server.kafka.errors import code_of, message_of
from anabranch.server.kafka.registry import Reply, ToldAtOnce
from anabranch.wire.kafka.current_leader import CurrentLeader
from anabranch.wire.kafka.produce import Produced, RecordError, write_produced
from anabranch.wire.kafka.schema import ErrorCode

_trouble = Seldom(logging.getLogger(__name__), 10.0)

_ALL = -1
_MAX_RECORD_ERRORS = 100
_KEPT_BYTES = 400  # of a partition that waits, roughly

Results = list[tuple[bytes, list[Produced]]]
"""What became of the batches, by topic."""


class Unacknowledged(NamedTuple):
    """An answer, `produced[i]`, that holds once `acknowledged` does."""

    produced: list[Produced]
    i: int
    acknowledged: "asyncio.Future[None]"
    partition: Partition


class Wanted(NamedTuple):
    """How a client wants to be answered, and what else an answer may take."""

    acks: int
    timeout_ms: int
    version: int
    cluster: Cluster
    """Which knows whom the client might ask instead."""
    traffic: Traffic


def stored(index: int, partition: Partition, appended: Appended) -> Produced:
    return Produced(index, 0, appended.base_offset, appended.append_time_ms, partition.log_start)


def refused(index: int, code: int, message: str | None, leader: CurrentLeader | None = None) -> Produced:
    return Produced(index, code, -1, -1, -1, message, leader=leader)


def failed(index: int, error: Exception, traffic: Traffic) -> Produced:
    traffic.produce_failed(error)
    _tell(error)
    if isinstance(error, MissingKeys):
        text = "Compacted topic cannot accept message without key"
        at_fault = tuple(RecordError(number, text) for number in error.indexes[:_MAX_RECORD_ERRORS])
        return Produced(index, ErrorCode.invalid_record, -1, -1, -1, str(error), at_fault)
    return refused(index, code_of(error), message_of(error), leader_of(error))


def answer(wanted: Wanted, results: Results) -> Reply:
    """None, or Corrupt if something is wrong, to a client that wants no answer."""
    if wanted.acks:
        return (write_produced(wanted.version, results, wanted.cluster.image.brokers),)
    for _, produced in results:
        for one in produced:
            if one.error_code:
                raise Corrupt(f"a produce request with acks=0 failed: {one.message or one.error_code}")
    return None


class Acknowledging(ToldAtOnce):
    """An answer that waits for acknowledgements."""

    __slots__ = ("_deadline", "_left", "_results", "_waiting", "_wanted")

    def __init__(self, wanted: Wanted, results: Results, waiting: list[Unacknowledged]) -> None:
        super().__init__(_KEPT_BYTES * len(waiting))
        self._wanted = wanted
        self._results = results
        self._waiting = waiting
        self._left = len(waiting)
        loop = waiting[0].acknowledged.get_loop()
        self.answered = loop.create_future()
        self._deadline: asyncio.TimerHandle | None = None
        if wanted.acks == _ALL:
            self._deadline = loop.call_later(max(0, wanted.timeout_ms) / 1000, self._finish)
            self.answered.add_done_callback(self._leave)
        for one in waiting:
            one.acknowledged.add_done_callback(self._acknowledged)

    def expire(self) -> None:
        """The node stops: acknowledgements are on their way, and the node waits a moment for its clients."""

    def _acknowledged(self, done: "asyncio.Future[None]") -> None:
        _error_of(done)  # or the loop would complain of one that comes when nobody waits any more
        self._left -= 1
        if not self._left:
            self._finish()

    def _finish(self) -> None:
        """Everything is acknowledged, or the time is over."""
        if self.answered.done():
            return
        for produced, i, acknowledged, partition in self._waiting:
            if not acknowledged.done():
                produced[i] = produced[i]._replace(error_code=_why_late(partition))
            elif (error := _error_of(acknowledged)) is not None:
                self._wanted.traffic.produce_failed(error)
                _tell(error)
                produced[i] = produced[i]._replace(
                    error_code=code_of(error), message=message_of(error), leader=leader_of(error)
                )
        try:
            self.answered.set_result(answer(self._wanted, self._results))
        except Corrupt as error:
            self.answered.set_exception(error)
        self._tell()

    def _leave(self, _: object) -> None:
        if self._deadline is not None:
            self._deadline.cancel()


def _why_late(partition: Partition) -> ErrorCode:
    lacks = partition.lacks_replicas
    return ErrorCode.not_enough_replicas_after_append if lacks else ErrorCode.request_timed_out


def _error_of(done: "asyncio.Future[None]") -> BaseException | None:
    return asyncio.CancelledError() if done.cancelled() else done.exception()


def _tell(error: BaseException) -> None:
    if isinstance(error, OSError | DiskFull):
        _trouble.warning("records are refused: %s", error)
