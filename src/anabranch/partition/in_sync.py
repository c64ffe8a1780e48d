"""In-sync replicas: when a follower leaves the ISR of its leader, and when it returns.

    leader's end     20 ── 25 ─────── 30 ───── 30
    follower asks      20      25 ───── 25       30
    caught up as of    ▲       ▲        ▲        ▲
                       now     then     then     now       then: when it asked before

A follower that asks for the leader's end is caught up now.  One that asks for where the end was when it asked
before has been caught up as of then: under load nobody is ever at the end, and still keeps up.

    leaves     was not caught up for `replica.lag.time.max.ms`, or lacks more than `replica.lag.max.messages`
               of what the leader had at the check before this one
    returns    neither holds, and it has what is below the high watermark and before the leader's epoch

Messages are counted against the check before and not against the end of now.  A burst puts every follower
thousands of messages behind for as long as a fetch takes, and would throw them all out; whoever has had a
whole interval to fetch them, and has not, is slow.

The ISR is the controller's to change.  While it has not confirmed what it was asked for, both count: who is
to leave holds the high watermark until then, who is to come holds it already, and so does who keeps up but
is not there yet, or it would run after a watermark that moves on.

Pure: ends and times are passed in.  Invariants, checked by tests/model/test_in_sync.py:
  * `counted` includes the confirmed ISR and whatever was asked for since;
  * one request at a time, and one that is not confirmed is never forgotten unless the controller refused it;
  * the leader never leaves.
"""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from anabranch.base.ids import BrokerId
from anabranch.meta.image import PartitionImage

_NEVER = float("-inf")
NO_END = NO_EPOCH = -1


class Lag(NamedTuple):
    """How far a follower may lag."""

    time_s: float
    messages: int
    """-1: as many as there are."""


class Late(NamedTuple):
    """Why a replica leaves."""

    replica: BrokerId
    messages: int
    time_s: float

    def __str__(self) -> str:
        if self.time_s == float("inf"):
            return f"broker {self.replica} is {self.messages} messages behind and was never in step"
        return (
            f"broker {self.replica} is {self.messages} messages behind, last in step {self.time_s:.1f} s ago"
        )


class Follower:
    """What a leader knows of one, from its fetches."""

    __slots__ = ("_asked_s", "_leader_end", "caught_up_s", "end", "epoch", "log_start")

    def __init__(self, caught_up_s: float) -> None:
        self.end = NO_END
        self.log_start = NO_END
        self.epoch = NO_EPOCH
        """The broker's, when it asked last: after a restart its log may end earlier."""
        self.caught_up_s = caught_up_s
        self._asked_s = _NEVER
        self._leader_end = NO_END  # when it asked last

    def asked(self, end: int, log_start: int, leader_end: int, now_s: float) -> None:
        if end >= leader_end:
            self.caught_up_s = now_s
        elif self._leader_end != NO_END and end >= self._leader_end:
            self.caught_up_s = max(self.caught_up_s, self._asked_s)
        self.end = end
        self.log_start = log_start
        self._asked_s = now_s
        self._leader_end = leader_end


class InSync:
    """Of one leader, for as long as it leads."""

    __slots__ = ("_checked_end", "_followers", "_joining", "_leader", "_start", "asked_for", "state")

    def __init__(self, leader: BrokerId, state: PartitionImage, start: int, now_s: float) -> None:
        """`leader` begins to lead at offset `start`; whoever is in sync has the whole time to say so."""
        self.state = state
        self.asked_for: frozenset[BrokerId] | None = None
        """The ISR that the controller was asked for and has not confirmed."""
        self._leader = leader
        self._start = start
        self._joining: frozenset[BrokerId] = frozenset()
        self._checked_end: int | None = None
        self._followers: dict[BrokerId, Follower] = {}
        self._know(now_s)

    @property
    def isr(self) -> frozenset[BrokerId]:
        """As the controller has confirmed it."""
        return frozenset(self.state.isr)

    @property
    def counted(self) -> frozenset[BrokerId]:
        """Those that hold the high watermark."""
        return self.isr | (self.asked_for or frozenset()) | self._joining

    @property
    def followers(self) -> Mapping[BrokerId, Follower]:
        return self._followers

    def _know(self, now_s: float) -> None:
        for replica in self.state.replicas:
            if replica != self._leader and replica not in self._followers:
                since_s = now_s if replica in self.state.isr else _NEVER
                self._followers[replica] = Follower(since_s)
        for replica in [one for one in self._followers if one not in self.state.replicas]:
            del self._followers[replica]
        self._joining = frozenset(
            one for one in self._joining if one in self._followers and one not in self.state.isr
        )

    def changed(self, state: PartitionImage, now_s: float) -> bool:
        """The controller has written `state`.  False if that is known, or older than what is."""
        if state.partition_epoch < self.state.partition_epoch or state == self.state:
            return False
        self.state = state
        self.asked_for = None
        self._know(now_s)
        return True

    def refused(self) -> None:
        """What the controller was asked for is not so, and will not be."""
        self.asked_for = None
        self._joining = frozenset()

    # --- what followers do

    def asked(self, replica: BrokerId, end: int, log_start: int, leader_end: int, now_s: float) -> None:
        """It has everything below `end`, and asks for more."""
        follower = self._followers.get(replica)
        if follower is not None:
            follower.asked(end, log_start, leader_end, now_s)

    def keeps_up(self, replica: BrokerId, leader_end: int, lag: Lag, now_s: float) -> bool:
        follower = self._followers.get(replica)
        return follower is not None and not self._is_late(follower, leader_end, lag, now_s)

    def join(self, replica: BrokerId) -> bool:
        """It keeps up, so the high watermark waits for it from now on.  False if it did already."""
        if replica in self.counted:
            return False
        self._joining |= {replica}
        return True

    def drop_joining(self, gone: Callable[[BrokerId], bool]) -> None:
        """Nobody waits any more for those that were about to come and are `gone`."""
        self._joining = frozenset(one for one in self._joining if not gone(one))

    def ask_to_add(self, replica: BrokerId, high_watermark: int) -> bool:
        """Whether it belongs into the ISR and the controller is to be asked, which is noted."""
        follower = self._followers.get(replica)
        if follower is None or self.asked_for is not None or replica in self.state.isr:
            return False
        if follower.end < max(high_watermark, self._start):
            return False
        self.asked_for = self.isr | {replica}
        return True

    # --- the check

    def check(self, leader_end: int, lag: Lag, now_s: float, heard_since_s: float) -> list[Late]:
        """Those to leave, for which the controller is to be asked, which is noted.

        Nobody is late for longer than since `heard_since_s`: before, the leader itself stood still.
        """
        late = [
            Late(one, leader_end - max(follower.end, 0), now_s - follower.caught_up_s)
            for one, follower in self._followers.items()
            if one in self.counted and self._is_late(follower, leader_end, lag, now_s, heard_since_s)
        ]
        self._checked_end = leader_end
        self._joining -= {each.replica for each in late}
        if self.asked_for is not None:
            return []
        leaving = [each for each in late if each.replica in self.state.isr]
        if leaving:
            self.asked_for = self.isr - {each.replica for each in leaving}
        return leaving

    def _is_late(
        self, follower: Follower, leader_end: int, lag: Lag, now_s: float, heard_since_s: float = _NEVER
    ) -> bool:
        if follower.end == leader_end:
            return False
        if now_s - max(follower.caught_up_s, heard_since_s) > lag.time_s:
            return True
        if lag.messages < 0 or self._checked_end is None or follower.end == NO_END:
            return False
        return heard_since_s < now_s and self._checked_end - follower.end > lag.messages


def ordered(replicas: Collection[BrokerId], state: PartitionImage) -> list[BrokerId]:
    """In the order in which they were placed, as the controller and people like them."""
    return [one for one in state.replicas if one in replicas]
