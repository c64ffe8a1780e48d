"""History of a cluster under load: what its clients were told, and whether all of it can be true.

    value            "NAME NUMBER"; each producer counts from 0 on in each partition, and sends in that order
    acknowledged     at an offset, or nobody said where
    read             by readers that are on their own, from offset 0 on, each of either isolation
    transactions     their values, and how they ended

The checks are those of Jepsen's Kafka workload: `lost write`, `duplicate`, `non-monotonic send`,
`inconsistent offsets`, `lost`, `non-monotonic poll`, `poll skip`, `unseen`, `aborted read`, `read before
commit`, and `half of a transaction`.  What is wrong is collected, in words; `wrong` is empty if nothing is.
"""

import threading
import time
from collections import defaultdict
from enum import Enum
from typing import NamedTuple

SOMEWHERE = -1
"""The offset of a record that is acknowledged as one that was there already."""


class Place(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Ended(Enum):
    OPEN = "open"
    COMMITTING = "committing"
    COMMITTED = "committed"
    ABORTED = "aborted"


class Transaction(NamedTuple):
    name: str
    values: dict[Place, list[bytes]]


class History:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.wrong: list[str] = []
        self.acknowledged: dict[Place, dict[str, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
        """By producer, the offsets of its records by their numbers."""
        self.acknowledged_s: dict[Place, list[float]] = defaultdict(list)
        """When, on the monotonic clock."""
        self._at: dict[Place, dict[int, bytes]] = defaultdict(dict)
        """What somebody was told is there, by offset."""
        self.read: dict[tuple[str, Place], list[int]] = defaultdict(list)
        """By reader, the offsets that it got, in order."""
        self._ends: dict[str, Ended] = {}
        self._transaction_of: dict[bytes, str] = {}
        self._transactions: list[Transaction] = []

    def say(self, what: str) -> None:
        with self._lock:
            self.wrong.append(what)

    # --- as it goes on

    def stored(self, place: Place, name: str, number: int, offset: int) -> None:
        """A record is acknowledged."""
        self.acknowledged[place][name][number] = offset
        self.acknowledged_s[place].append(time.monotonic())
        if offset != SOMEWHERE:
            self._note(place, offset, b"%s %d" % (name.encode(), number), name)

    def got(self, reader: str, place: Place, offset: int, value: bytes) -> None:
        """A reader got a record."""
        offsets = self.read[reader, place]
        if offsets and offset <= offsets[-1]:
            self.say(f"non-monotonic poll: {place}: {reader} got {offset} after {offsets[-1]}")
        offsets.append(offset)
        self._note(place, offset, value, reader)

    def got_committed(self, reader: str, place: Place, offset: int, value: bytes) -> None:
        transaction = self._transaction_of.get(value, "")
        if self._ends.get(transaction) in (Ended.OPEN, Ended.ABORTED):
            how = self._ends[transaction].value
            self.say(
                f"read before commit: {place}: {reader} got {value!r} at {offset}, {transaction} is {how}"
            )
        self.got(reader, place, offset, value)

    def begun(self, transaction: Transaction) -> None:
        with self._lock:
            self._ends[transaction.name] = Ended.OPEN
            self._transactions.append(transaction)
            for values in transaction.values.values():
                self._transaction_of |= dict.fromkeys(values, transaction.name)

    def ended(self, transaction: Transaction, how: Ended) -> None:
        self._ends[transaction.name] = how

    def _note(self, place: Place, offset: int, value: bytes, who: str) -> None:
        known = self._at[place].setdefault(offset, value)
        if known != value:
            self.say(f"inconsistent offsets: {place}: {offset} was {known!r} and is {value!r} to {who}")

    # --- what is known

    @property
    def count(self) -> int:
        return sum(len(each) for one in self.acknowledged.values() for each in one.values())

    def committed(self) -> int:
        return sum(how is Ended.COMMITTED for how in self._ends.values())

    # --- in the end

    def check(self, place: Place, everything: dict[int, bytes], committed: dict[int, bytes]) -> None:
        """What the partition has in the end, to readers of either isolation, by offset."""
        self._check_kept(place, everything)
        self._check_order(place, everything)
        self._check_transactions(place, everything, committed)
        for isolation, there in (("all", everything), ("committed", committed)):
            self._check_polls(place, isolation, there)

    def check_transactions(self, committed: dict[Place, dict[int, bytes]]) -> None:
        there = {place: set(found.values()) for place, found in committed.items()}
        for one in self._transactions:
            is_there = {value in there[place] for place, values in one.values.items() for value in values}
            how = self._ends[one.name]
            if len(is_there) > 1 or (how is Ended.COMMITTED and is_there == {False}):
                self.say(f"half of a transaction: {one} is {how.value}, and of its values some are not there")

    def _check_kept(self, place: Place, everything: dict[int, bytes]) -> None:
        lost = {offset: value for offset, value in self._at[place].items() if everything.get(offset) != value}
        for offset, value in sorted(lost.items())[:5]:
            self.say(f"lost: {place}: {value!r} was at {offset}, there is {everything.get(offset)!r}")
        there = set(everything.values())
        for name, offsets in self.acknowledged[place].items():
            gone = [number for number in offsets if b"%s %d" % (name.encode(), number) not in there]
            if gone:
                self.say(f"lost write: {place}: {name}: {len(gone)} acknowledged and not there: {gone[:5]}")

    def _check_order(self, place: Place, everything: dict[int, bytes]) -> None:
        last: dict[bytes, int] = {}
        for offset, value in sorted(everything.items()):
            name, _, number = value.partition(b" ")
            before = last.get(name, -1)
            if int(number) <= before:
                kind = "duplicate" if int(number) == before else "non-monotonic send"
                self.say(f"{kind}: {place}: at {offset} is {value!r}, after {before}")
            elif int(number) != before + 1:
                self.say(f"lost write: {place}: at {offset} is {value!r}, after {before}")
            last[name] = int(number)

    def _check_transactions(
        self, place: Place, everything: dict[int, bytes], committed: dict[int, bytes]
    ) -> None:
        for offset, value in everything.items():
            how = self._ends.get(self._transaction_of.get(value, ""), Ended.COMMITTED)
            if how is Ended.COMMITTED and offset not in committed:
                self.say(f"unseen: {place}: {value!r} at {offset}: committed readers do not get it")
            if how in (Ended.ABORTED, Ended.OPEN) and offset in committed:
                self.say(f"aborted read: {place}: {value!r} at {offset} is {how.value}")

    def _check_polls(self, place: Place, isolation: str, there: dict[int, bytes]) -> None:
        expected = sorted(there)
        for (reader, of), offsets in self.read.items():
            if of == place and reader.endswith(isolation) and offsets != expected[: len(offsets)]:
                skipped = sorted(set(expected[: len(offsets)]) - set(offsets))
                self.say(f"poll skip: {place}: {reader} did not get {skipped[:5]}, of {len(offsets)}")
