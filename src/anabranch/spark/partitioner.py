"""Partitioner: which partition each row goes to, as Kafka's Java producer decides, many rows at a time.

    a partition is given     that one
    there is a key           murmur2 of the key, without its sign, modulo the number of partitions
    neither                  one partition for as long as it fills a batch, then the next

So rows with the same key meet in one partition, whoever wrote them.
"""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.spark.varints import Ints

_SEED = 0x9747B28C
_M = np.uint32(0x5BD1E995)
_R = np.uint32(24)


def murmur2(keys: pa.BinaryArray) -> "NDArray[np.uint32]":
    """The hash of every key (that of an empty one for a null), as Kafka's `Utils.murmur2` has it."""
    starts, sizes, data = pieces(keys)
    # Room to look four bytes ahead of the last key.
    padded = np.concatenate([data, np.zeros(4, np.uint8)])
    hashes = np.uint32(_SEED) ^ sizes.astype(np.uint32)
    for word in range(int(sizes.max(initial=0)) // 4):
        here = np.flatnonzero(sizes >= 4 * (word + 1))
        k = _word(padded, starts[here] + 4 * word) * _M
        k ^= k >> _R
        hashes[here] = (hashes[here] * _M) ^ (k * _M)
    rest = sizes & 3
    tail = starts + (sizes & ~3)
    for byte in (2, 1, 0):
        here = np.flatnonzero(rest > byte)
        hashes[here] ^= padded[tail[here] + byte].astype(np.uint32) << np.uint32(8 * byte)
    here = np.flatnonzero(rest > 0)
    hashes[here] *= _M
    hashes ^= hashes >> np.uint32(13)
    hashes *= _M
    return hashes ^ (hashes >> np.uint32(15))


def _word(data: "NDArray[np.uint8]", at: Ints) -> "NDArray[np.uint32]":
    """The four bytes at each place, the lowest first."""
    word = data[at].astype(np.uint32)
    for byte in (1, 2, 3):
        word |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
    return word


def pieces(column: pa.BinaryArray) -> "tuple[Ints, Ints, NDArray[np.uint8]]":
    """Where each element begins, its size (0 for a null), and the bytes they lie in."""
    _, offsets, data = column.buffers()
    edges = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    content = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    return edges[:-1], np.diff(edges), content


class Partitioner:
    """Chooses for rows that have no partition of their own; remembers whose turn it is."""

    def __init__(self, batch_bytes: int, turn: int) -> None:
        self._batch_bytes = batch_bytes
        self._turn = turn

    def choose(self, keys: pa.BinaryArray, sizes: Ints, count: int) -> Ints:
        """One of `count` partitions for every row; `sizes` is what each row takes in its batch."""
        chosen = (murmur2(keys).astype(np.int64) & 0x7FFFFFFF) % count
        if keys.null_count:
            keyless = np.asarray(keys.is_null())
            filled = np.cumsum(sizes[keyless]) // self._batch_bytes
            chosen[keyless] = (self._turn + filled) % count
            self._turn = int(self._turn + filled[-1] + 1) % count
        return chosen
