"""Did two members ever own the same partition?  Judged from what the members wrote down.

A member's journal says what it owned, from when, and in which generation.  Two things must hold:

  * at no time do two live members own a partition.  One that was killed is not live from then on; one that
    was frozen for longer than its session is not live until it has noticed: it has given up all it owned
    since it was thawed, and got something anew; nor is whoever was a member when all of the machine stood
    still for as long;
  * no generation gives a partition to two members, live or not.

A static member is one member, whichever process it is: the one before hears that it was fenced when it next
asks.

Members write before they tell the group that they own less, and after it has told them that they own more;
and all clocks are one.  So there is no tolerance here.  Journals are read one after the other while members
go on, so what they wrote since the reading began is left for the next time.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from tests.compat.group_processes import Member, Owning

_NOTHING = Owning(0.0, -1, frozenset())


class Span(NamedTuple):
    """A live member owned a partition."""

    member: str
    partition: int
    since_s: float
    until_s: float


def judge(members: Sequence[Member], standstills: Sequence[float] = ()) -> list[str]:
    """What is wrong, in words; nothing if nothing is.  At `standstills` all of the machine stood still."""
    now_s = time.monotonic()
    ownerships = [
        (
            member.instance or str(number),
            [owning for owning in member.ownerships() if owning.time_s <= now_s],
        )
        for number, member in enumerate(members)
    ]
    spans: list[Span] = []
    for (name, owned), member in zip(ownerships, members, strict=True):
        stood_still = [time_s for time_s in standstills if owned and time_s >= owned[0].time_s]
        live = while_live(owned, [*member.frozen, *stood_still])
        spans += spans_of(name, list(live), member.killed_s)
    return [*owned_twice(spans), *given_twice(ownerships)]


def while_live(owned: Iterable[Owning], frozen: Sequence[float]) -> Iterator[Owning]:
    """What a member owned as a live one: nothing from when it was frozen until it has come back."""
    freezes = sorted(frozen)
    is_zombie = has_given_up = False
    for owning in owned:
        while freezes and owning.time_s >= freezes[0]:
            yield Owning(freezes.pop(0), owning.generation, frozenset())
            is_zombie, has_given_up = True, False
        if is_zombie:
            has_given_up = has_given_up or not owning.partitions
            is_zombie = not (has_given_up and owning.partitions)
        if not is_zombie:
            yield owning
    for freeze_s in freezes:
        yield Owning(freeze_s, -1, frozenset())


def spans_of(member: str, owned: Sequence[Owning], killed_s: float) -> Iterator[Span]:
    end = Owning(killed_s, -1, frozenset())
    since: dict[int, float] = {}
    for before, after in pairwise([_NOTHING, *owned, end]):
        for partition in after.partitions - before.partitions:
            since[partition] = after.time_s
        for partition in before.partitions - after.partitions:
            yield Span(member, partition, since.pop(partition), min(after.time_s, killed_s))


def owned_twice(spans: Iterable[Span]) -> Iterator[str]:
    holding: dict[int, Span] = {}
    for span in sorted(spans, key=lambda span: span.since_s):
        other = holding.get(span.partition)
        if other is not None and other.member != span.member and span.since_s < other.until_s:
            yield (
                f"partition {span.partition}: member {other.member} owns it from {other.since_s:.3f} to "
                f"{other.until_s:.3f}, member {span.member} from {span.since_s:.3f}"
            )
        if other is None or span.until_s > other.until_s:
            holding[span.partition] = span


def given_twice(ownerships: Iterable[tuple[str, Sequence[Owning]]]) -> Iterator[str]:
    owners: dict[tuple[int, int], str] = {}
    for member, owned in ownerships:
        for before, after in pairwise([_NOTHING, *owned]):
            for partition in after.partitions - before.partitions:
                owner = owners.setdefault((after.generation, partition), member)
                if owner != member:
                    yield f"generation {after.generation} gives {partition} to members {owner} and {member}"
