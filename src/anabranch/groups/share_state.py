"""The durable state of a share partition: which records of it a share group is done with.

A share partition is a partition as one share group reads it.  What must survive its leader is this:

    start offset ──>│ 10 … 14 done │ 15 … 19 delivered twice, free │ 20 … 24 done │ 25 … not given out yet
                    └── batches: 15-19 AVAILABLE (2), 20-24 ACKNOWLEDGED (1) ─────┘

Everything below the start offset is done with.  From there on, batches say what became of records: done
(ACKNOWLEDGED, ARCHIVED) or free again after so many deliveries (AVAILABLE).  What no batch names, between
batches or behind them, is free and counts as never delivered: it was not given out, or is out with a consumer
for the first time (ACQUIRED is known to the leader only: when the leader goes its records are free).

`ShareStates` is the seam between whoever leads a share partition (`subscriptions/share_*`), who reads the
state once and then writes what changes, and whoever keeps it (`groups/share_states.py`).  The state epoch
is raised when the state is set from outside (offsets reset, group deleted and made again); a leader that
still writes at the old one is fenced and must read again.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol
from uuid import UUID

NOT_INITIALISED = -1
"""The start offset of a share partition that nobody has read from yet; of a write: it stays where it is."""

UNKNOWN_COUNT = -1
"""The number of completed deliveries, where nobody says."""

ANY_LEADER = -1
"""The leader epoch of whoever does not say what it is, and is not fenced by it."""


class DeliveryState(IntEnum):
    """Numbered as Kafka does."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


class StateBatch(NamedTuple):
    first_offset: int
    last_offset: int
    """Inclusive, as on the wire."""
    delivery_state: DeliveryState
    delivery_count: int


class ShareState(NamedTuple):
    state_epoch: int
    start_offset: int
    """NOT_INITIALISED: the group's `share.auto.offset.reset` says where to begin."""
    batches: tuple[StateBatch, ...]
    """In order of offsets, none overlapping another."""


class ShareKey(NamedTuple):
    """A share partition."""

    group: str
    topic_id: UUID
    partition: int


Changed = Callable[[ShareKey], None]


class ShareStates(Protocol):
    async def read(self, key: ShareKey, leader_epoch: int = ANY_LEADER) -> ShareState:
        """What is kept.

        NoShareState if nothing is: a share partition is initialised (to NOT_INITIALISED, no batches) before
        its group is assigned it.  FencedLeaderEpoch if a leader of a greater epoch has read or written since.
        """

    async def write(
        self,
        key: ShareKey,
        state_epoch: int,
        start_offset: int,
        batches: Sequence[StateBatch],
        delivery_complete_count: int = UNKNOWN_COUNT,
        leader_epoch: int = ANY_LEADER,
    ) -> None:
        """Lay `batches` over what is kept and forget what is below `start_offset`; durable on return.

        `delivery_complete_count` is how many records at or above the start offset are done with; the lag is
        computed from it.  FencedStateEpoch if the state was set from outside since it was read, NoShareState
        if it was deleted, FencedLeaderEpoch as for `read`: whoever writes must read again, or leads no more.
        """

    def on_change(self, changed: Changed) -> None:
        """Call `changed` whenever a state is initialised, reset or deleted from outside (not by `write`)."""

    def tells(self, key: ShareKey) -> bool:
        """Whether that is so for `key`: not if its state is kept by another broker."""
