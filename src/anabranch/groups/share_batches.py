"""State batches of a share partition laid over one another.

    kept   10-14 AVAILABLE 1    15-19 ACKNOWLEDGED 1
    new            13-16 ACKNOWLEDGED 2
    ->     10-12 AVAILABLE 1    13-16 ACKNOWLEDGED 2    17-19 ACKNOWLEDGED 1

The newer says what holds.  The result is in order, nothing overlaps, nothing is below the start offset, and
neighbours that say the same are one.  There may be thousands, of which few change at a time: those only are
looked at.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from anabranch.groups.share_state import StateBatch


def laid_over(
    kept: Sequence[StateBatch], new: Iterable[StateBatch], start_offset: int
) -> tuple[StateBatch, ...]:
    """`new` over `kept`, which is such a result; from `start_offset` on."""
    result = list(kept)
    for batch in new:
        _lay(result, batch)
    del result[: bisect_left(result, start_offset, key=_last_offset)]
    if result and result[0].first_offset < start_offset:
        result[0] = result[0]._replace(first_offset=start_offset)
    return tuple(result)


def _lay(batches: list[StateBatch], new: StateBatch) -> None:
    """Put `new` in the place of what it overlaps, and of the neighbours that it may be one with."""
    begin = bisect_left(batches, new.first_offset - 1, key=_last_offset)
    end = begin
    around = [new]
    while end < len(batches) and batches[end].first_offset <= new.last_offset + 1:
        under = batches[end]
        if under.first_offset < new.first_offset:
            around.insert(0, under._replace(last_offset=min(under.last_offset, new.first_offset - 1)))
        if under.last_offset > new.last_offset:
            around.append(under._replace(first_offset=max(under.first_offset, new.last_offset + 1)))
        end += 1
    batches[begin:end] = _joined(around)


def _joined(batches: Iterable[StateBatch]) -> list[StateBatch]:
    result: list[StateBatch] = []
    for batch in batches:
        if result and result[-1].last_offset + 1 == batch.first_offset and result[-1][2:] == batch[2:]:
            result[-1] = result[-1]._replace(last_offset=batch.last_offset)
        else:
            result.append(batch)
    return result


def _last_offset(batch: StateBatch) -> int:
    return batch.last_offset
