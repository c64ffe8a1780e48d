"""The last offset of every key, in a table of fixed size.

    slot    hash of the key 8 bytes · another hash of it 8 · offset + 1, 0 if the slot is free 8

Keys themselves are not kept: 24 bytes per slot hold four million keys in log.cleaner.dedupe.buffer.size
as it is by default, whatever their length.  Two keys are taken for one if both hashes agree.  They are
SipHash with a key and a salt that are drawn for every process, so that nobody can make up two keys
of which one would erase the other.

A table that is full says so; the caller cleans as far as it got, and the rest another time.
"""

import os
from array import array

_SLOT_BYTES = 24
_LEAST_SLOTS = 64


class LastOffsets:
    __slots__ = ("_first", "_offsets", "_salt", "_second", "_slots", "count", "room")

    def __init__(self, max_bytes: int, most_keys: int) -> None:
        """At most `max_bytes` large, and no larger than `most_keys` need."""
        slots = max(_LEAST_SLOTS, min(max_bytes // _SLOT_BYTES, most_keys * 4 // 3 + 1))
        self._slots = slots
        self._first = array("q", bytes(8 * slots))
        self._second = array("q", bytes(8 * slots))
        self._offsets = array("q", bytes(8 * slots))
        self._salt = os.urandom(16)
        self.count = 0
        self.room = slots * 3 // 4  # beyond, look-ups that find nothing become slow

    @property
    def is_full(self) -> bool:
        return self.count >= self.room

    def put(self, key: bytes, offset: int) -> None:
        """`key` was last seen at `offset`.  The caller has made sure that there is room."""
        first, second = hash(key), hash(self._salt + key)
        offsets, slots = self._offsets, self._slots
        i = first % slots
        while offsets[i]:
            if self._first[i] == first and self._second[i] == second:
                break
            i = i + 1 if i + 1 < slots else 0
        else:
            self._first[i], self._second[i] = first, second
            self.count += 1
        offsets[i] = offset + 1

    def get(self, key: bytes) -> int:
        """Where `key` was last seen, -1 if it was not."""
        first, second = hash(key), hash(self._salt + key)
        offsets, slots = self._offsets, self._slots
        i = first % slots
        while offsets[i]:
            if self._first[i] == first and self._second[i] == second:
                return offsets[i] - 1
            i = i + 1 if i + 1 < slots else 0
        return -1
