"""History: what clients were told, held against itself as it grows and against the logs at the end.

    sent          each value once: "NAME.NUMBER", of one producer to one partition
    acknowledged  at an offset
    seen          by readers, at an offset, below the high watermark or the last stable offset

Violations are raised by whoever notes the second of two things that cannot both be true.
"""

from anabranch.client.destinations import TopicPartition

UNKNOWN = -1


class Violation(AssertionError):
    """A promise was broken."""


class Partition:
    def __init__(self, place: TopicPartition) -> None:
        self.place = place
        self.at: dict[int, bytes] = {}
        """By offset, what somebody was told is there."""
        self.acknowledged: dict[str, list[int]] = {}
        """By producer, the offsets of its records, in order; UNKNOWN if nobody said."""
        self.committed: list[bytes] = []
        """What a committed reader saw, in order."""
        self.read_to = {False: 0, True: 0}

    def note(self, offset: int, value: bytes, who: str) -> None:
        known = self.at.setdefault(offset, value)
        if known != value:
            raise Violation(f"{self.place}: offset {offset} was {known!r} and is {value!r} to {who}")

    def stored(self, name: str, first: int, base: int, count: int) -> None:
        """Records `first` to `first + count` of a producer are acknowledged."""
        offsets = self.acknowledged[name]
        last = next((offset for offset in reversed(offsets) if offset != UNKNOWN), UNKNOWN)
        if base != UNKNOWN and base <= last:
            raise Violation(f"{self.place}: {name}.{first} is at {base}, what was sent before it at {last}")
        for i in range(count):
            if base != UNKNOWN:
                self.note(base + i, b"%s.%d" % (name.encode(), first + i), f"producer {name}")
            offsets.append(UNKNOWN if base == UNKNOWN else base + i)


class Transaction:
    def __init__(self, values: dict[TopicPartition, list[bytes]]) -> None:
        self.values = values
        self.is_committed: bool | None = False
        """None if nobody told."""


class History:
    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, Partition] = {}
        self.transactions: list[Transaction] = []

    def of(self, place: TopicPartition) -> Partition:
        return self.partitions.setdefault(place, Partition(place))

    @property
    def acknowledged(self) -> int:
        return sum(len(each) for one in self.partitions.values() for each in one.acknowledged.values())

    def check(self, place: TopicPartition, everything: dict[int, bytes], committed: list[bytes]) -> None:
        """Hold what was promised against what the partition has in the end, to either kind of reader."""
        one = self.of(place)
        aborted, undecided = self._of_transactions(place, False), self._of_transactions(place, None)
        self._check_kept(one, everything)
        self._check_order(one, everything)
        shown = [value for _, value in sorted(everything.items()) if value not in aborted]
        decided = [value for value in shown if value not in undecided]
        if [value for value in committed if value not in undecided] != decided:
            wrong = set(committed).symmetric_difference(decided) - undecided
            raise Violation(
                f"{place}: committed readers get other records than were committed: {sorted(wrong)[:9]}"
            )
        if one.committed != committed[: len(one.committed)]:
            raise Violation(f"{place}: a committed reader saw something else than what is there in the end")

    def _of_transactions(self, place: TopicPartition, is_committed: bool | None) -> set[bytes]:
        found = (one.values.get(place, ()) for one in self.transactions if one.is_committed is is_committed)
        return {value for values in found for value in values}

    def check_transactions(self, committed: dict[TopicPartition, list[bytes]]) -> None:
        """Those whose end nobody told are there whole, or not at all."""
        there = {place: set(values) for place, values in committed.items()}
        for one in self.transactions:
            is_there = [value in there[place] for place, values in one.values.items() for value in values]
            if one.is_committed is None and any(is_there) and not all(is_there):
                raise Violation(f"half of a transaction is committed, of {one.values}")

    def _check_kept(self, one: Partition, everything: dict[int, bytes]) -> None:
        lost = {offset: value for offset, value in one.at.items() if everything.get(offset) != value}
        if lost:
            told = [f"{value!r} at {offset}" for offset, value in sorted(lost.items())[:5]]
            there = [f"{offset}: {everything.get(offset)!r}" for offset in sorted(lost)[:5]]
            raise Violation(f"{one.place}: acknowledged or read, and lost: {told}; there is {there}")

    def _check_order(self, one: Partition, everything: dict[int, bytes]) -> None:
        values = [value for _, value in sorted(everything.items())]
        if len(set(values)) != len(values):
            twice = sorted({value for value in values if values.count(value) > 1})
            raise Violation(f"{one.place}: there twice: {twice[:9]}")
        for name, offsets in one.acknowledged.items():
            mine = [value for value in values if value.rpartition(b".")[0] == name.encode()]
            expected = [b"%s.%d" % (name.encode(), number) for number in range(len(mine))]
            if mine != expected:
                raise Violation(f"{one.place}: producer {name}: {mine[:99]} are there in this order")
            if len(mine) < len(offsets):
                raise Violation(
                    f"{one.place}: producer {name}: {len(offsets)} acknowledged, {len(mine)} there"
                )
