"""Roaring bitmaps taken as a whole, where going over their members one by one would take too long.

    bits_of(BitMap([0, 2, 65]))      ->   1 | 1 << 2 | 1 << 65
    narrow(BitMap64([7]))            ->   BitMap([7])

A batch may claim a million messages, of which every other one is acknowledged.  So what is in a bitmap is
read from the form that it is written in (RoaringFormatSpec, which is also what a cursor keeps):

    cookie   12346, number of containers                           12347 | (containers - 1) << 16
                                                                   a bit for each: whether it is of runs
    each     its key (the upper half of what is in it) and how many it has, less one
    offsets  of each container, if none is of runs or there are four or more
    then     up to 4096 members of 16 bits | 65536 bits | number of runs, and of each start and length - 1
"""

from struct import Struct, unpack_from

from pyroaring import BitMap, BitMap64

_MAPS_BEFORE = 12  # of a BitMap64: how many BitMaps it is of, and the upper half of what is in the first
_FEW = 64  # below, asking for each is quicker

_U32 = Struct("<I")
_U16 = Struct("<H")
_TWO_U16 = Struct("<HH")
_WITH_RUNS = 12347
_OFFSETS_WITH_RUNS = 4
_MOST_IN_ARRAY = 4096
_CONTAINER_BYTES = 8192


def narrow(bitmap: BitMap64) -> BitMap:
    """The same numbers, all of which are below 2^32."""
    return BitMap.deserialize(bitmap.serialize()[_MAPS_BEFORE:]) if bitmap else BitMap()


def bits_of(bitmap: BitMap) -> int:
    """A number that has the bits of `bitmap` set."""
    if not bitmap:
        return 0
    bits = bytearray(bitmap.max() // 8 + 1)
    if len(bitmap) < _FEW:
        for at in bitmap:
            bits[at >> 3] |= 1 << (at & 7)
    else:
        _read(bitmap.serialize(), bits)
    return int.from_bytes(bits, "little")


def _read(data: bytes, bits: bytearray) -> None:
    """Set the bits of a bitmap that is written as `data`."""
    cookie = _U32.unpack_from(data)[0]
    if cookie & 0xFFFF == _WITH_RUNS:
        count = (cookie >> 16) + 1
        flags = int.from_bytes(data[4 : 4 + (count + 7) // 8], "little")
        keys = 4 + (count + 7) // 8
        at = keys + 4 * count * (2 if count >= _OFFSETS_WITH_RUNS else 1)
    else:
        count, flags, keys = _U32.unpack_from(data, 4)[0], 0, 8
        at = keys + 8 * count
    for index in range(count):
        key, more = _TWO_U16.unpack_from(data, keys + 4 * index)
        base = key * _CONTAINER_BYTES
        if flags >> index & 1:
            end = at + 2 + 4 * _U16.unpack_from(data, at)[0]
            _set_runs(bits, base, data[at + 2 : end])
        elif more < _MOST_IN_ARRAY:
            end = at + 2 * (more + 1)
            for low in unpack_from(f"<{more + 1}H", data, at):
                bits[base + (low >> 3)] |= 1 << (low & 7)
        else:
            end = at + _CONTAINER_BYTES
            room = min(_CONTAINER_BYTES, len(bits) - base)
            bits[base : base + room] = data[at : at + room]
        at = end


def _set_runs(bits: bytearray, base: int, runs: bytes) -> None:
    for start, more in _TWO_U16.iter_unpack(runs):
        last = start + more
        first_byte, last_byte = base + (start >> 3), base + (last >> 3)
        head, tail = 0xFF << (start & 7) & 0xFF, 0xFF >> (7 - (last & 7))
        if first_byte == last_byte:
            bits[first_byte] |= head & tail
        else:
            bits[first_byte] |= head
            bits[first_byte + 1 : last_byte] = b"\xff" * (last_byte - first_byte - 1)
            bits[last_byte] |= tail
