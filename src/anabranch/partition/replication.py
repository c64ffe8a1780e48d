"""Replication: what the leaders of a broker share, and what is counted of them.

Set up by the composition root.  Without that, as in tests of a host, no follower is late, no broker is known
to live, and nobody asks the controller.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.base.clock import Clock
from anabranch.base.ids import BrokerId
from anabranch.partition.certainty import Certainty
from anabranch.partition.in_sync import Lag
from anabranch.partition.throttling import Throttle

if TYPE_CHECKING:
    from anabranch.partition.partition import Partition

_NO_LIMIT = Lag(float("inf"), -1)


class Replication:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.certainty = Certainty(clock)
        self.lag: Callable[[], Lag] = lambda: _NO_LIMIT
        self.epoch_of: Callable[[BrokerId], int | None] = lambda broker: None
        """The epoch in which a broker is registered, and so may be in sync; None if it is not."""
        self.ask: Callable[[Partition], None] = lambda partition: None
        """Have the controller asked for the ISR that a leader wants."""
        self.leader_throttle = Throttle(clock)
        self.follower_throttle = Throttle(clock)
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.failed_isr_updates = 0
