"""A followed partition: this broker's copy of it, as who reads from a follower sees it (KIP-392).

    high watermark   what the leader last told, of what is here: a little behind the leader's
    latest epoch     the leader's, as the image has it

A reader gets what is safe and is told nothing that only a leader knows.  One that asks for more than is here
is out of range, and asks the leader.  Where Pulsar's producers write, the leader alone is read.

It lasts until another leader is elected, or this broker has the replica no more.
"""

from anabranch.base.errors import NotOwner
from anabranch.base.ids import LeaderEpoch
from anabranch.base.network import FileRange
from anabranch.base.waiters import Waiter
from anabranch.log.transactions import AbortedTransaction
from anabranch.partition import times
from anabranch.partition.partition import check_leader_epoch
from anabranch.partition.partition_log import Isolation, TimestampAndOffset
from anabranch.partition.replica import Replica
from anabranch.partition.served_topic import ServedTopic
from anabranch.partition.surroundings import Surroundings


class Followed:
    __slots__ = ("_around", "_topic", "index", "leader_epoch", "replica")

    def __init__(self, topic: ServedTopic, replica: Replica, around: Surroundings) -> None:
        self.replica = replica
        self.index = replica.index
        self.leader_epoch: LeaderEpoch = topic.image.partitions[replica.index].leader_epoch
        self._topic = topic
        self._around = around

    def __str__(self) -> str:
        return str(self.replica)

    @property
    def log_start(self) -> int:
        return self.replica.log.log_start

    @property
    def high_watermark(self) -> int:
        return self.replica.high_watermark

    @property
    def last_stable(self) -> int:
        return self.replica.last_stable

    @property
    def knows_its_end(self) -> bool:
        """What it says of the end is said to be only what is here."""
        return True

    @property
    def retired(self) -> bool:
        replica = self.replica
        state = self._topic.image.partitions[self.index]
        return replica.is_closed or replica.leader is not None or state.leader_epoch != self.leader_epoch

    def check_leads(self) -> None:
        """NotOwner once it follows this leader no more."""
        if self.retired:
            raise self._elsewhere()

    def _elsewhere(self) -> NotOwner:
        return self._topic.elsewhere(self._topic.image.partitions[self.index])

    def check_leader_epoch(self, epoch: int) -> None:
        check_leader_epoch(epoch, self.leader_epoch)

    # --- reading

    def read(
        self, offset: int, max_bytes: int, isolation: Isolation, *, whole_first: bool
    ) -> FileRange | None:
        log = self.replica.log
        if log.has_entries:
            raise self._elsewhere()
        return log.read(offset, max_bytes, self.limit(isolation), whole_first=whole_first)

    def limit(self, isolation: Isolation) -> int:
        """Where readers stop."""
        if isolation == Isolation.UNCOMMITTED:
            return self.high_watermark
        return self.last_stable if isolation == Isolation.COMMITTED else self.replica.log.log_end

    def aborted(
        self, offset: int, isolation: Isolation, records: FileRange | None
    ) -> list[AbortedTransaction] | None:
        """As the leader's."""
        if isolation != Isolation.COMMITTED:
            return None
        log = self.replica.log
        return [] if records is None else log.aborted_between(offset, log.end_of(records))

    def epoch_of(self, offset: int) -> int:
        return self.replica.log.epochs.epoch_of(offset)

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """As the leader's, of what is here: where one ended that is newer only the leader can say."""
        log = self.replica.log
        return log.epochs.end_of(epoch, log.log_end)

    async def offset_for_time(self, timestamp_ms: int) -> TimestampAndOffset | None:
        return await times.first_at(self.replica.log, timestamp_ms, self._around.threads)

    async def max_timestamp(self) -> TimestampAndOffset | None:
        return await times.latest(self.replica.log, self._around.threads)

    def wait(self, waiter: Waiter, isolation: Isolation = Isolation.UNCOMMITTED) -> None:
        """Call `waiter` when more is safe, or another broker leads."""
        self.replica.readers.add(waiter)

    def stop_waiting(self, waiter: Waiter) -> None:
        self.replica.readers.remove(waiter)
