"""Deduplication: which messages are stored already, by the highest sequence id of every producer name.

    highest {"a": 41, "b": 7}        a sends 42, 43: new        a sends 40..41 again: duplicates

A message with a sequence id up to the highest of its producer is a duplicate and is not stored again.  Of a
batch the last message's id is what counts; where the client does not say it (the C++ client does not), ids
are taken to follow each other.  A batch that is new in part cannot be cut and is stored: rather twice than
never.
All chunks of a message carry one id, so only the last of them is held against it.

The state survives as a snapshot with the offset it covers; what was stored after that is read back from the
log (`replayed`).  A producer that was away for long is forgotten, and so is the one that is away longest when
there are too many, so that names made up by a client do not fill the memory.

It is pure: no I/O, times are passed in.
"""

from collections.abc import Mapping, Sequence

import msgspec

from anabranch.base.errors import Corrupt
from anabranch.topics.publish import DUPLICATE, Send

NO_SEQUENCE = -1
_LAST_SEQUENCE = (1 << 63) - 1  # sequence ids are signed where Pulsar keeps them, whatever a client may send


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """What is kept: all entries below `offset` are in it."""

    offset: int
    highest: dict[str, int]


class Deduplication:
    __slots__ = ("_away_since_ms", "_highest", "_present", "changes", "covered")

    def __init__(self, covered: int, highest: Mapping[str, int] | None = None, now_ms: int = 0) -> None:
        self._highest = dict(highest or {})
        self._present: set[str] = set()
        self._away_since_ms = dict.fromkeys(self._highest, now_ms)  # in the order in which they left
        self.covered = covered  # every entry below it is counted in
        self.changes = 0  # entries since the last snapshot

    def last_sequence_id(self, producer: str) -> int:
        return self._highest.get(producer, NO_SEQUENCE)

    def __len__(self) -> int:
        return len(self._highest)

    # --- publishing

    def sift(self, producer: str, sends: Sequence[Send]) -> tuple[list[Send], list[int]]:
        """What of `sends` is new, and for each of them DUPLICATE or the index among the new ones."""
        highest = self._highest.get(producer, NO_SEQUENCE)
        new: list[Send] = []
        where: list[int] = []
        for send in sends:
            if send.is_middle_chunk:
                where.append(len(new))
                new.append(send)
            elif (last := last_sequence_of(send)) <= highest:
                where.append(DUPLICATE)
            else:
                highest = last
                where.append(len(new))
                new.append(send)
        return new, where

    def stored(self, producer: str, sends: Sequence[Send], end: int) -> None:
        """`sends`, which are new, are in the log, which ends at `end` now."""
        highest = self._highest.get(producer, NO_SEQUENCE)
        for send in sends:
            if not send.is_middle_chunk:
                highest = max(highest, last_sequence_of(send))
        if highest != NO_SEQUENCE:
            self._highest[producer] = highest
        self.covered = end
        self.changes += len(sends)

    def replayed(self, producer: str, sequence_id: int, end: int, now_ms: int) -> None:
        """An entry that ends at `end` was read back from the log."""
        self._highest[producer] = max(sequence_id, self._highest.get(producer, NO_SEQUENCE))
        if producer not in self._present:
            self._away_since_ms[producer] = now_ms
        self.covered = end
        self.changes += 1

    # --- who is there

    def joined(self, producer: str) -> None:
        self._present.add(producer)
        self._away_since_ms.pop(producer, None)

    def left(self, producer: str, now_ms: int) -> None:
        self._present.discard(producer)
        if producer in self._highest:
            self._away_since_ms.pop(producer, None)
            self._away_since_ms[producer] = now_ms

    def forget(self, before_ms: int, most: int) -> bool:
        """Forget who left before a time, and who is away longest while there are more than `most`.

        True if somebody was.
        """
        gone = [name for name, since_ms in self._away_since_ms.items() if since_ms < before_ms]
        excess = len(self._highest) - len(gone) - most
        if excess > 0:
            going = set(gone)
            gone += [name for name in self._away_since_ms if name not in going][:excess]
        for name in gone:
            del self._away_since_ms[name]
            self._highest.pop(name, None)
        if gone:
            self.changes += 1
        return bool(gone)

    # --- keeping

    def take_snapshot(self) -> Snapshot:
        self.changes = 0
        return Snapshot(self.covered, dict(self._highest))


def last_sequence_of(send: Send) -> int:
    """The sequence id of an entry's last message."""
    return last_sequence(send.sequence_id, send.messages, send.highest_sequence_id)


def last_sequence(first: int, messages: int, highest: int) -> int:
    """The same, of an entry that begins with `first` and may say itself what its `highest` is."""
    return min(max(first + messages - 1, highest), _LAST_SEQUENCE)


def encode(snapshot: Snapshot) -> bytes:
    return msgspec.msgpack.encode(snapshot)


def decode(data: bytes) -> Snapshot:
    """Corrupt if it is none."""
    try:
        return msgspec.msgpack.decode(data, type=Snapshot)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"a snapshot of sequence ids cannot be read: {error}") from error
