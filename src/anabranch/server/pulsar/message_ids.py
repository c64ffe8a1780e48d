"""Message ids as offsets.

ledger id     who led when it was written; not needed to find a message
entry id      the offset of the entry's first message
batch index   which of its messages; -1: the entry as a whole
ack set       words of 64 bits, a bit set for every message of the entry that is still wanted

earliest   (-1, -1), and these travel as unsigned numbers       latest   (2^63 - 1, 2^63 - 1)
"""

from collections.abc import Iterable, Sequence

from anabranch.subscriptions.acking import Ack
from anabranch.wire.pulsar import commands_pb2 as pb

LATEST = (1 << 63) - 1
_WORD = (1 << 64) - 1


def signed(number: int) -> int:
    """A number that travelled as unsigned."""
    return number - (1 << 64) if number >> 63 else number


def acks_of(ids: Iterable[pb.MessageId]) -> list[Ack]:
    """What an ACK names, without what can be no message."""
    return [Ack(id.entry_id, tuple(id.ack_set) if id.ack_set else None) for id in ids if id.entry_id < LATEST]


def start_of(id: pb.MessageId) -> int:
    """The offset to go on from at `id`: -1 for the earliest, LATEST for the next that will come."""
    entry = signed(id.entry_id)
    if entry < 0 or entry >= LATEST:
        return min(max(entry, -1), LATEST)
    return entry + first_wanted(id.ack_set)


def first_wanted(ack_set: Sequence[int]) -> int:
    """The index of the first message that `ack_set` leaves; 0 if it says nothing."""
    for place, word in enumerate(ack_set):
        bits = word & _WORD
        if bits:
            return place * 64 + (bits & -bits).bit_length() - 1
    return 0
