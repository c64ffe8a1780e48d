"""Committed offsets against their definition: random commits, transactions, deletions, compaction, restarts.

The definition: the offset of a partition is that of its last record, in the order of the log, that counts:
a plain commit, or one whose transaction has committed since; unless a deletion came after.
"""

from random import Random

import pytest

from anabranch.wire.kafka.schema import ErrorCode
from tests.support.offsets import ShardOnAList

Place = tuple[str, int]
GROUPS = ("a", "b")
PRODUCERS = range(3)
WEIGHTS = {"commit": 6, "pend": 6, "end": 3, "delete": 1, "compact": 1, "restart": 1}


class Definition:
    """Every commit there was, as (order, offset, producer or None), until a deletion."""

    def __init__(self) -> None:
        self._order = 0
        self._commits: dict[Place, list[tuple[int, int, int | None]]] = {}

    def commit(self, place: Place, offset: int, producer: int | None) -> None:
        self._order += 1
        self._commits.setdefault(place, []).append((self._order, offset, producer))

    def end(self, producer: int, *, commit: bool) -> None:
        for place, commits in self._commits.items():
            kept = [one for one in commits if commit or one[2] != producer]
            self._commits[place] = [
                (order, offset, None if by == producer else by) for order, offset, by in kept
            ]

    def delete(self, place: Place) -> None:
        self._commits.pop(place, None)

    def offset(self, place: Place) -> int:
        counting = [(order, offset) for order, offset, by in self._commits.get(place, []) if by is None]
        return max(counting)[1] if counting else -1

    def is_pending(self, place: Place) -> bool:
        return any(by is not None for _, _, by in self._commits.get(place, []))


@pytest.mark.parametrize("seed", range(40))
def test_offsets_are_what_the_log_says(seed: int) -> None:
    chance = Random(seed)
    groups, definition = ShardOnAList(), Definition()
    for step in range(150):
        place = (chance.choice(GROUPS), chance.randrange(3))
        producer = chance.choice(PRODUCERS)
        match chance.choices(("commit", "pend", "end", "delete", "compact", "restart"), (6, 6, 3, 1, 1, 1))[
            0
        ]:
            case "commit":
                groups.commit(place[0], t=[(place[1], step)])
                definition.commit(place, step, None)
            case "pend":
                groups.commit(place[0], t=[(place[1], step)], producer=producer)
                definition.commit(place, step, producer)
            case "end":
                commit = chance.random() < 0.6
                groups.end(producer, commit=commit)
                definition.end(producer, commit=commit)
            case "delete" if place[0] in groups.shard.groups:
                groups.delete(place[0], t=[place[1]])
                definition.delete(place)
            case "compact":
                compact_what_is_decided(groups)
                groups.restart()
            case "restart":
                groups.restart()
        check(groups, definition)


def compact_what_is_decided(groups: ShardOnAList) -> None:
    """As the cleaner does it: nothing from the first open transaction on; aborted records do not count."""
    open_from: dict[int, int] = {}
    ended: dict[int, list[tuple[int, bool]]] = {}
    for at, line in enumerate(groups.log):
        if line.key is None:
            open_from.pop(line.producer_id, None)
            ended.setdefault(line.producer_id, []).append((at, line.commit))
        elif line.producer_id >= 0:
            open_from.setdefault(line.producer_id, at)
    stable = min(open_from.values(), default=len(groups.log))

    def is_aborted(at: int) -> bool:
        producer = groups.log[at].producer_id
        ends = (commit for end, commit in ended.get(producer, []) if end > at)
        return producer >= 0 and not next(ends, True)

    lines = list(enumerate(groups.log))
    clean = [(at, line) for at, line in lines[:stable] if line.key is None or not is_aborted(at)]
    last = {line.key: at for at, line in clean if line.key is not None}
    groups.log = [line for at, line in clean if line.key is None or last[line.key] == at]
    groups.log += [line for _, line in lines[stable:]]


def check(groups: ShardOnAList, definition: Definition) -> None:
    for group_id in GROUPS:
        for index in range(3):
            place = (group_id, index)
            expected = definition.offset(place)
            assert groups.fetch(group_id, t=[index]) == {("t", index): expected}
            stable = ErrorCode.unstable_offset_commit if definition.is_pending(place) else expected
            assert groups.fetch(group_id, t=[index], stable=True) == {("t", index): stable}
