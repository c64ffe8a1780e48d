"""Pending acknowledgements of a subscription: made in open transactions, they count on commit.

    transaction   individual               cumulative
    (0,32768)     entry 40: 40..43         -
    (3,557056)    entry 44: 45..46         up to 90
                                           ^ one transaction at a time

A message that a transaction has acknowledged is not delivered, to anybody, until that has ended: then it is
acknowledged, or delivered again.  It can be acknowledged by one transaction, once; the second one gets a
`TransactionConflict`, and so does an acknowledgement of what is acknowledged already.

Each request is kept as a record of its own before it is answered (`PendingAckStore`), numbered within its
transaction; a restart adds them again.  Their number is bounded, and with it the memory that they take.

It is pure: no I/O, no clock.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec
from pyroaring import BitMap, BitMap64

from anabranch.base.errors import Conflict, Corrupt, Throttled
from anabranch.groups.transaction_ids import TxnId
from anabranch.subscriptions.ack_sets import words_without
from anabranch.subscriptions.bitmaps import narrow
from anabranch.subscriptions.cursor import Cursor
from anabranch.subscriptions.durable import CursorName

MOST_REQUESTS = 100_000
"""Of open transactions, in one subscription."""

_NOT_CUMULATIVE = -1


class TransactionConflict(Conflict):
    """Another transaction has acknowledged it, or it is acknowledged."""


class EntryAck(NamedTuple):
    """Messages of one entry, by their offsets: `ranges` of (start, end)."""

    entry: int
    ranges: Sequence[tuple[int, int]]


class PendingAck(msgspec.Struct, frozen=True, array_like=True):
    """One request, as it is kept."""

    entries: list[tuple[int, list[tuple[int, int]]]]
    up_to: int = _NOT_CUMULATIVE
    """Everything below is acknowledged, -1 if the request was of single entries."""


class PendingAckStore(Protocol):
    """Where the requests of open transactions are kept."""

    async def of(self, name: CursorName) -> dict[TxnId, dict[int, bytes]]:
        """Those of transactions that have not ended, by their numbers."""

    async def write(self, name: CursorName, txn: TxnId, number: int, ack: bytes) -> None:
        """Returns when it will be found again."""

    async def drop(self, name: CursorName, txn: TxnId) -> None:
        """What came of them is kept elsewhere."""


class Acknowledged(NamedTuple):
    """All that one transaction has acknowledged."""

    entries: list[EntryAck]
    up_to: int | None


_NOTHING = Acknowledged([], None)


class _Open:
    """A transaction that is not over."""

    __slots__ = ("ends", "entries", "next_number", "requests")

    def __init__(self) -> None:
        self.entries: list[EntryAck] = []
        self.ends: list[int] = []  # of cumulative requests, ascending
        self.requests = 0
        self.next_number = 0

    @property
    def up_to(self) -> int | None:
        return self.ends[-1] if self.ends else None


class PendingAcks:
    __slots__ = ("_cursor", "_held", "_open", "_requests")

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._open: dict[TxnId, _Open] = {}
        self._held = BitMap64()  # the offsets in all of them, cumulative ones apart
        self._requests = 0

    def __len__(self) -> int:
        """How many transactions there are."""
        return len(self._open)

    def __iter__(self) -> Iterator[TxnId]:
        return iter(list(self._open))

    # --- acknowledging

    def individual(self, txn: TxnId, acks: Sequence[EntryAck]) -> None:
        """TransactionConflict if one of them cannot be; then none is."""
        self._check_room()
        taken = BitMap64()
        for ack in acks:
            for start, end in ack.ranges:
                if self._cursor.acked_in(start, end):
                    raise TransactionConflict(
                        f"transaction {txn} acknowledges message {ack.entry}, which is acknowledged already"
                    )
                if self._held.range_cardinality(start, end) or taken.range_cardinality(start, end):
                    raise TransactionConflict(
                        f"transaction {txn} acknowledges message {ack.entry}, "
                        "which a transaction that is open has acknowledged"
                    )
                taken.add_range(start, end)
        self._held |= taken
        self._add(txn).entries += acks

    def cumulative(self, txn: TxnId, end: int) -> None:
        """Everything below `end`.  TransactionConflict if another transaction does so, or nothing is new."""
        self._check_room()
        if end <= self._cursor.mark_delete:
            raise TransactionConflict(
                f"transaction {txn} acknowledges up to {end}, "
                f"all is acknowledged up to {self._cursor.mark_delete}"
            )
        for other, one in self._open.items():
            if one.up_to is not None and (other != txn or end <= one.up_to):
                raise TransactionConflict(
                    f"transaction {txn} acknowledges up to {end}, transaction {other} up to {one.up_to}"
                )
        self._add(txn).ends.append(end)

    def _check_room(self) -> None:
        if self._requests >= MOST_REQUESTS:
            raise Throttled(
                f"open transactions have {MOST_REQUESTS} acknowledgements; end some of them first"
            )

    def _add(self, txn: TxnId) -> _Open:
        one = self._open.setdefault(txn, _Open())
        one.requests += 1
        one.next_number += 1
        self._requests += 1
        return one

    def next_number(self, txn: TxnId) -> int:
        """What the next request of the transaction is kept by."""
        one = self._open.get(txn)
        return 0 if one is None else one.next_number

    def restore(self, txn: TxnId, kept: Mapping[int, bytes]) -> None:
        """Add what was kept, whatever became of it: it is asked about when the transaction ends."""
        for number in sorted(kept):
            ack = decode(kept[number])
            one = self._add(txn)
            one.next_number = number + 1
            if ack.up_to != _NOT_CUMULATIVE:
                one.ends.append(ack.up_to)
            for entry, ranges in ack.entries:
                one.entries.append(EntryAck(entry, ranges))
                for start, end in ranges:
                    self._held.add_range(start, end)

    def withdraw(self, txn: TxnId, ack: PendingAck) -> None:
        """A request that could not be kept is not there."""
        one = self._open.get(txn)
        if one is None:
            return
        if ack.up_to != _NOT_CUMULATIVE:
            one.ends.remove(ack.up_to)
        gone = dict(ack.entries)
        one.entries = [held for held in one.entries if gone.get(held.entry) != list(held.ranges)]
        for ranges in gone.values():
            for start, end in ranges:
                self._held.remove_range(start, end)
        one.requests -= 1
        self._requests -= 1

    # --- ending

    def ended(self, txn: TxnId) -> Acknowledged:
        """The transaction is over; what it had acknowledged."""
        one = self._open.pop(txn, None)
        if one is None:
            return _NOTHING
        self._requests -= one.requests
        for ack in one.entries:
            for start, end in ack.ranges:
                self._held.remove_range(start, end)
        return Acknowledged(one.entries, one.up_to)

    # --- asking

    def acknowledged(self, txn: TxnId) -> Acknowledged:
        one = self._open.get(txn)
        return _NOTHING if one is None else Acknowledged(one.entries, one.up_to)

    @property
    def end(self) -> int:
        """Behind the last message that any of them holds."""
        return int(self._held.max()) + 1 if self._held else 0

    def holds(self, start: int, end: int) -> bool:
        """Whether one of the messages from `start` up to `end` is acknowledged by a transaction."""
        return bool(self._held) and self._held.range_cardinality(start, end) > 0

    def all_settled(self, start: int, end: int) -> bool:
        """Whether each of them is acknowledged, or is by a transaction."""
        held = self._held.range_cardinality(start, end)
        if held + self._cursor.acked_in(start, end) < end - start:
            return False
        return len(self._settled(start, end)) == end - start  # some may be both

    def left(self, start: int, count: int) -> list[int] | None:
        """As `Cursor.unacked_words`, less those that transactions hold."""
        if not self.holds(start, start + count):
            return self._cursor.unacked_words(start, count)
        return words_without(self._settled(start, start + count), count)

    def _settled(self, start: int, end: int) -> BitMap:
        """Those that are acknowledged, or are by a transaction, counted from `start`."""
        held = BitMap64()
        held.add_range(start, end)
        held &= self._held
        return self._cursor.acked_of(start, end) | narrow(held.shift(-start))


def encode(ack: PendingAck) -> bytes:
    return msgspec.msgpack.encode(ack)


def decode(data: bytes) -> PendingAck:
    """Corrupt if it is none."""
    try:
        return msgspec.msgpack.decode(data, type=PendingAck)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"what a transaction acknowledges cannot be read: {error}") from error
