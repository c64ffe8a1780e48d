"""The share partitions of one partition of `__share_group_state`, and what is decided over them.

    initialise   a snapshot; what was kept before is gone
    write        an update, or a snapshot after so many of them
    delete       the end of it: writing to it is refused from then on

Epochs guard both ends.  The state epoch is the group's (it goes up when offsets are reset), the leader epoch
that of the partition's leader: whoever comes with a lower one than is known here has been replaced.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

from anabranch.base.errors import FencedLeaderEpoch, FencedStateEpoch, NoShareState, TooLarge
from anabranch.groups.effects import Effects, PlainShard, Token
from anabranch.groups.share_batches import laid_over
from anabranch.groups.share_state import ANY_LEADER, NOT_INITIALISED, UNKNOWN_COUNT, ShareKey, StateBatch
from anabranch.groups.share_state_records import (
    SNAPSHOT,
    Snapshot,
    Update,
    read_key,
    read_snapshot,
    read_update,
    write_key,
    write_snapshot,
    write_update,
)
from anabranch.groups.share_state_records import UPDATE as UPDATE_KIND

_NO_LEADER_YET = 0
_MOST_BATCHES = 40_000  # a snapshot of these fits a message; a leader has 10,000 records out at most


class Written(NamedTuple):
    """What a leader has to say about a share partition."""

    key: ShareKey
    state_epoch: int
    start_offset: int
    batches: Sequence[StateBatch]
    complete_count: int
    leader_epoch: int


class ShareStateShard(PlainShard):
    def __init__(self, index: int) -> None:
        self.index = index
        self.states: dict[ShareKey, Snapshot] = {}
        """As a snapshot written now would have them."""
        self._updates: dict[ShareKey, int] = {}
        """How many were written since the last snapshot."""

    # --- state

    def replay(self, key: bytes, value: bytes | None) -> None:
        read = read_key(key)
        if read is None:
            return
        kind, share_key = read
        if kind == SNAPSHOT:
            if value is None:
                self._forget(share_key)
            else:
                self._set(share_key, read_snapshot(value))
        elif value is not None and share_key in self.states:
            self._updated(share_key, _with(self.states[share_key], read_update(value)))

    def _set(self, key: ShareKey, snapshot: Snapshot) -> None:
        self.states[key] = snapshot
        self._updates[key] = 0

    def _updated(self, key: ShareKey, after: Snapshot) -> None:
        self.states[key] = after
        self._updates[key] += 1

    def _forget(self, key: ShareKey) -> None:
        self.states.pop(key, None)
        self._updates.pop(key, None)

    # --- decisions

    def initialise(
        self, token: Token, key: ShareKey, state_epoch: int, start_offset: int, now_ms: int
    ) -> Effects:
        """Begin again at `start_offset`.  FencedStateEpoch if that has been done at a greater epoch."""
        known = self.states.get(key)
        if known is not None and state_epoch < known.state_epoch:
            raise FencedStateEpoch(f"state epoch {state_epoch} is over, {known.state_epoch} is current")
        snapshot = Snapshot(
            0 if known is None else known.snapshot_epoch + 1,
            state_epoch,
            _NO_LEADER_YET,
            start_offset,
            now_ms,
            now_ms,
            (),
            UNKNOWN_COUNT if start_offset == NOT_INITIALISED else 0,
        )
        effects = Effects()
        self._write_snapshot(effects, key, snapshot)
        effects.reply(token, {})
        return effects

    def lead(self, token: Token, key: ShareKey, leader_epoch: int) -> Effects:
        """A leader reads what is `kept`; its epoch is noted, so that those before it are fenced."""
        known = self._find(key, leader_epoch)
        effects = Effects()
        if leader_epoch > known.leader_epoch:
            update = Update(known.snapshot_epoch, leader_epoch, NOT_INITIALISED, ())
            self._write_update(effects, key, update, _with(known, update))
        effects.reply(token, {"kept": known})
        return effects

    def write(self, token: Token, told: Written, updates_per_snapshot: int, now_ms: int) -> Effects:
        key = told.key
        known = self._find(key, told.leader_epoch)
        if told.state_epoch < known.state_epoch:
            raise FencedStateEpoch(f"state epoch {told.state_epoch} is over, {known.state_epoch} is current")
        update = Update(
            known.snapshot_epoch, told.leader_epoch, told.start_offset, told.batches, told.complete_count
        )
        after = _with(known, update)
        if len(after.batches) > _MOST_BATCHES:
            raise TooLarge(f"{len(after.batches)} batches are more than can be kept of a share partition")
        effects = Effects()
        if self._updates[key] < updates_per_snapshot and told.state_epoch == known.state_epoch:
            self._write_update(effects, key, update, after)
        else:
            again = after._replace(
                snapshot_epoch=known.snapshot_epoch + 1, state_epoch=told.state_epoch, written_ms=now_ms
            )
            self._write_snapshot(effects, key, again)
        effects.reply(token, {})
        return effects

    def delete(self, token: Token, keys: Iterable[ShareKey]) -> Effects:
        effects = self._tombstones(key for key in keys if key in self.states)
        effects.reply(token, {})
        return effects

    def forget_topics(self, topic_ids: Collection[UUID]) -> Effects:
        effects = self._tombstones(key for key in self.states if key.topic_id in topic_ids)
        effects.each_for_itself()
        return effects

    def snapshot_again(self, token: Token, keys: Iterable[ShareKey], now_ms: int) -> Effects:
        """Write what is known of `keys` once more, so that what was written before is not needed."""
        effects = Effects()
        for key in keys:
            known = self.states.get(key)
            if known is not None:
                again = known._replace(snapshot_epoch=known.snapshot_epoch + 1, written_ms=now_ms)
                effects.write(write_key(SNAPSHOT, key), write_snapshot(again))
        effects.reply(token, {})
        return effects

    def _find(self, key: ShareKey, leader_epoch: int) -> Snapshot:
        known = self.states.get(key)
        if known is None:
            raise NoShareState(f"nothing is kept for group {key.group!r} of partition {key.partition}")
        if ANY_LEADER < leader_epoch < known.leader_epoch:
            raise FencedLeaderEpoch(f"leader epoch {leader_epoch} is over, {known.leader_epoch} is current")
        return known

    def _tombstones(self, keys: Iterator[ShareKey]) -> Effects:
        effects = Effects()
        for key in keys:
            effects.write(write_key(SNAPSHOT, key), None)
        return effects

    def _write_snapshot(self, effects: Effects, key: ShareKey, snapshot: Snapshot) -> None:
        effects.write(write_key(SNAPSHOT, key), write_snapshot(snapshot))
        effects.replayed_by(lambda: self._set(key, snapshot))

    def _write_update(self, effects: Effects, key: ShareKey, update: Update, after: Snapshot) -> None:
        effects.write(write_key(UPDATE_KIND, key), write_update(update))
        effects.replayed_by(lambda: self._updated(key, after))


def _with(known: Snapshot, update: Update) -> Snapshot:
    moves = update.start_offset != NOT_INITIALISED
    start_offset = update.start_offset if moves else known.start_offset
    counts = update.complete_count != UNKNOWN_COUNT
    return known._replace(
        leader_epoch=max(known.leader_epoch, update.leader_epoch),
        start_offset=start_offset,
        batches=laid_over(known.batches, update.batches, start_offset),
        complete_count=update.complete_count if counts else known.complete_count,
    )
