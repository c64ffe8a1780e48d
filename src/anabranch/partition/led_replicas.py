"""Led replicas: the followers of one leader, as far as its high watermark and the controller hear of them.

    a follower's fetch ─┐                 ┌─> the high watermark: who is counted, how far they are
    the timer's check  ─┴─> InSync (pure) ┴─> the controller is asked for another ISR (`isr_changes`)
    its answer, the image ─> InSync ────────> the high watermark

Only for partitions of several replicas.
"""

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from anabranch.base.config import LONG_MAX
from anabranch.base.errors import NotOwner
from anabranch.base.ids import BrokerId
from anabranch.base.waiters import Waiters
from anabranch.meta.image import PartitionImage
from anabranch.partition.in_sync import NO_EPOCH, InSync, ordered
from anabranch.partition.replication import Replication
from anabranch.partition.watermark import HighWatermark

if TYPE_CHECKING:
    from anabranch.partition.partition import Partition

log = logging.getLogger(__name__)

_AFTER_REFUSAL_S = 1.0  # no new request to join meanwhile: followers fetch a hundred times per second


class LedReplicas:
    __slots__ = ("_ask_again_s", "_hub", "_hw", "_partition", "_reason", "in_sync", "starts")

    def __init__(
        self, partition: "Partition", state: PartitionImage, start: int, hw: HighWatermark, hub: Replication
    ) -> None:
        self._partition = partition
        self._hw = hw
        self._hub = hub
        self._reason = ""
        self._ask_again_s = 0.0
        self.starts = Waiters()
        """Whoever waits for followers to forget what was deleted."""
        self.in_sync = InSync(state.leader, state, start, hub.clock.monotonic())

    @property
    def state(self) -> PartitionImage:
        return self.in_sync.state

    def reached(self, broker: BrokerId, end: int, log_start: int, epoch: int) -> bool:
        """It has what is from `log_start` to `end`, and asks for more.  True if the watermark moved.

        Of an `epoch` that is over it counts for nothing: the broker has restarted since.  NotOwner, as in
        Kafka, if it is registered in a later one.
        """
        in_sync, now_s = self.in_sync, self._hub.clock.monotonic()
        follower = in_sync.followers.get(broker)
        if follower is not None and epoch != NO_EPOCH:
            registered = self._hub.epoch_of(broker)
            if registered is not None and epoch < registered:
                said = f"{self._partition}: broker {broker} is registered in epoch {registered}, not {epoch}"
                raise NotOwner(said, self.state.leader, self.state.leader_epoch)
            if epoch < follower.epoch and epoch != registered:
                return False
            follower.epoch = epoch
        has_started = follower is not None and follower.log_start != log_start
        in_sync.asked(broker, end, log_start, self._partition.log_end, now_s)
        if has_started:
            self.starts.wake()
        moved = self._hw.replica_reached(broker, end)
        if broker not in in_sync.state.isr:
            moved = self._may_return(broker, now_s) or moved
        return moved

    def _may_return(self, broker: BrokerId, now_s: float) -> bool:
        in_sync, hub = self.in_sync, self._hub
        if now_s < self._ask_again_s or not self._is_registered(broker):
            return False
        if not in_sync.keeps_up(broker, self._partition.log_end, hub.lag(), now_s):
            return False
        joined = in_sync.join(broker)
        if in_sync.ask_to_add(broker, self._hw.offset):
            self._reason = f"broker {broker} has caught up"
            hub.ask(self._partition)
        return joined and self.recount()

    def _is_registered(self, broker: BrokerId) -> bool:
        """Whether it is the broker that fetched, and not the next or the last process of it."""
        registered, follower = self._hub.epoch_of(broker), self.in_sync.followers.get(broker)
        return registered is not None and follower is not None and follower.epoch in (NO_EPOCH, registered)

    def check(self, now_s: float, heard_since_s: float) -> bool:
        """See whether somebody has to leave.  True if the watermark moved."""
        in_sync, counted = self.in_sync, self.in_sync.counted
        in_sync.drop_joining(lambda broker: not self._is_registered(broker))
        late = in_sync.check(self._partition.log_end, self._hub.lag(), now_s, heard_since_s)
        if late:
            self._reason = "; ".join(map(str, late))
            self._hub.ask(self._partition)
        return in_sync.counted != counted and self.recount()

    def changed(self, state: PartitionImage) -> bool:
        """The controller has written this.  False if it is nothing new."""
        before, asked_for = self.in_sync.state, self.in_sync.asked_for
        if not self.in_sync.changed(state, self._hub.clock.monotonic()):
            return False
        gone, come = set(before.isr) - set(state.isr), set(state.isr) - set(before.isr)
        self._hub.isr_shrinks += bool(gone)
        self._hub.isr_expands += bool(come)
        if gone or come:
            why = self._reason if asked_for == frozenset(state.isr) else "the controller says so"
            log.info(
                "%s: ISR %s from %s to %s, leader epoch %d: %s",
                self._partition,
                "shrunk" if gone else "grown",
                list(before.isr),
                list(state.isr),
                state.leader_epoch,
                why,
            )
        self._reason = ""
        return True

    def refused(self) -> bool:
        """The controller will not have what it was asked for.  True if the watermark moved."""
        self._ask_again_s = self._hub.clock.monotonic() + _AFTER_REFUSAL_S
        self.in_sync.refused()
        return self.recount()

    def recount(self) -> bool:
        """Others count for the high watermark.  True if it moved."""
        state = self.in_sync.state
        return self._hw.in_sync_changed(
            frozenset(state.isr), self._partition.min_insync(state), self.in_sync.counted
        )

    @property
    def least_start(self) -> int:
        """Where the log starts on the follower where it starts first, of those that are there."""
        starts = [
            follower.log_start
            for broker, follower in self.in_sync.followers.items()
            if self._hub.epoch_of(broker) is not None
        ]
        return min(starts, default=LONG_MAX)

    def lags(self) -> Iterator[tuple[BrokerId, int]]:
        """How many messages each follower lacks."""
        log_end, log_start = self._partition.log_end, self._partition.log_start
        for broker, follower in self.in_sync.followers.items():
            yield broker, max(0, log_end - max(follower.end, log_start))

    def wanted(self) -> dict[BrokerId, int] | None:
        """The ISR that the controller is to be asked for, if it is, and the epoch that each broker has."""
        asked_for = self.in_sync.asked_for
        if asked_for is None:
            return None
        followers = self.in_sync.followers
        return {
            broker: followers[broker].epoch if broker in followers else NO_EPOCH
            for broker in ordered(asked_for, self.in_sync.state)
        }
