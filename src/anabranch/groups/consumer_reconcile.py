"""Reconciliation: a member moves from what it holds to its target, never sharing a partition.

    STABLE ── a newer target ──┬─ it holds what it should not ──> UNREVOKED ── it says it gave that up ─┐
                               │                                                                        │
                               ├─ others hold what it should ──> UNRELEASED ── they gave it up ─────────┤
                               └─ neither ──> STABLE, at the target's epoch  <──────────────────────────┘

Revoke before assign: while anything is to be given up the member stays at its epoch and gets nothing new.
Partitions that do not move are in `assigned` throughout, so nobody stops reading them.

A member reports what it owns in its heartbeats; None means that nothing changed since it last did, and never
that something was given up.
"""

from collections.abc import Callable, Mapping
from uuid import UUID

from anabranch.groups.consumer_member import Held, Member, MemberState, Partitions

Free = Callable[[UUID, int], bool]
"""Nobody holds this partition."""


def reconcile(
    member: Member,
    target: Partitions,
    target_epoch: int,
    owned: Partitions | None,
    is_free: Free,
) -> Member:
    """`member`, as far on its way to `target` as it can be now; itself if it cannot move."""
    if member.state is MemberState.STABLE and member.epoch == target_epoch:
        return member
    if member.state is MemberState.UNREVOKED and _still_owns(owned, member.revoking):
        return member
    return _next(member, target, target_epoch, owned, is_free)


def _next(
    member: Member, target: Partitions, target_epoch: int, owned: Partitions | None, is_free: Free
) -> Member:
    kept: dict[UUID, dict[int, int]] = {}
    leaving: dict[UUID, dict[int, int]] = {}
    for topic, epochs in member.assigned.items():
        meant = target.get(topic, frozenset())
        for partition, epoch in epochs.items():
            (kept if partition in meant else leaving).setdefault(topic, {})[partition] = epoch
    if leaving and _still_owns(owned, leaving):
        return member.holding(MemberState.UNREVOKED, member.epoch, kept, leaving)

    waits = False
    for topic, meant in target.items():
        had = kept.get(topic, {})
        own = member.revoking.get(topic, {})
        for partition in meant - had.keys():
            # What this member itself was to give up and has given up is free, whatever the books say.
            if is_free(topic, partition) or partition in own:
                kept.setdefault(topic, {})[partition] = target_epoch
            else:
                waits = True
    state = MemberState.UNRELEASED if waits else MemberState.STABLE
    if state is member.state and member.epoch == target_epoch and kept == member.assigned:
        return member
    return member.holding(state, target_epoch, kept, {})


def _still_owns(owned: Partitions | None, given_up: Held) -> bool:
    """It has not said that it gave all of this up."""
    if owned is None:
        return True
    return any(not owned.get(topic, frozenset()).isdisjoint(epochs) for topic, epochs in given_up.items())


def owns_only(owned: Partitions | None, assigned: Mapping[UUID, Mapping[int, int]]) -> bool:
    """All that it owns is assigned to it."""
    if owned is None:
        return False
    return all(partitions <= assigned.get(topic, {}).keys() for topic, partitions in owned.items())
