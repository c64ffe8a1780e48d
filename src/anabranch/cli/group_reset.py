"""Offset reset: what `--to` and `--by` mean, and the offsets that a group goes on from.

    --to earliest | latest      the ends of a partition
    --to 4200                   an offset
    --to 2026-01-31T12:00       the first record of that time or later; @MILLISECONDS says it in another way,
    --to 15m                    and so does how long ago
    --by -100                   from where the group stands

An offset outside of a partition becomes the nearest inside it.  Nothing here talks to a broker.
"""

from dataclasses import dataclass
from typing import NamedTuple

from anabranch.cli.failure import CommandError, Misuse
from anabranch.cli.options import duration_ms, moment_ms
from anabranch.client.destinations import TopicPartition

_WHERE = "it is earliest, latest, an offset, a time (2026-01-31T12:00, @MILLISECONDS) or how long ago (15m)"


class Known(NamedTuple):
    """What a partition is like now."""

    committed: int | None
    start: int
    end: int
    at_time: int | None = None  # the offset that the goal's time has; None: no record is that late


@dataclass(frozen=True, slots=True)
class Goal:
    """One of these is set."""

    edge: str | None = None
    offset: int | None = None
    time_ms: int | None = None
    shift: int | None = None

    def offset_in(self, place: TopicPartition, known: Known) -> int:
        """The offset to commit.  CommandError if there is nothing to shift."""
        return min(max(self._wanted(place, known), known.start), known.end)

    def _wanted(self, place: TopicPartition, known: Known) -> int:
        if self.edge is not None:
            return known.start if self.edge == "earliest" else known.end
        if self.offset is not None:
            return self.offset
        if self.shift is None:
            return known.end if known.at_time is None else known.at_time
        if known.committed is None:
            raise CommandError(
                f"{place.topic} partition {place.partition} has no committed offset to shift",
                "name a place with --to instead",
            )
        return known.committed + self.shift


def goal(to: str | None, by: int | None, now_ms: int) -> Goal:
    """What the options ask for.  Misuse if that means nothing."""
    if (to is None) == (by is None):
        raise Misuse("where to: give --to or --by, and not both", f"--to: {_WHERE}")
    if by is not None:
        return Goal(shift=by)
    assert to is not None
    if to in ("earliest", "latest"):
        return Goal(edge=to)
    if to.isdecimal():
        return Goal(offset=int(to))
    ago_ms = duration_ms(to)
    if ago_ms is not None:
        return Goal(time_ms=now_ms - ago_ms)
    time_ms = int(to[1:]) if to.startswith("@") and to[1:].isdecimal() else moment_ms(to)
    if time_ms is None:
        raise Misuse(f"--to {to!r} is no place in a topic", _WHERE)
    return Goal(time_ms=time_ms)
