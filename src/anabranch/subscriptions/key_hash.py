"""The hash of a message's key, as Pulsar's key_shared subscriptions take it: MurmurHash3, 32 bits, seed 0.

The key is the ordering key, else the partition key, else one made of producer and sequence id, which spreads
messages without a key and keeps the chunks of one message together.
"""

import base64
import struct
from functools import lru_cache

from anabranch.records.pulsar_metadata_pb2 import MessageMetadata

HASHES = 1 << 16

_MASK = 0xFFFFFFFF
_C1, _C2 = 0xCC9E2D51, 0x1B873593
_NO_KEY = b"NONE_KEY"
_SHORT = 256  # bytes of what is remembered: a key may be as large as a message


def murmur3(data: bytes) -> int:
    """Without the sign, as Pulsar uses it: 31 bits."""
    return _remembered(data) if len(data) <= _SHORT else _murmur3(data)


def _murmur3(data: bytes) -> int:
    blocks = len(data) // 4
    value = 0
    for k in struct.unpack_from(f"<{blocks}I", data):
        k = k * _C1 & _MASK
        k = (k << 15 | k >> 17) * _C2 & _MASK
        value ^= k
        value = ((value << 13 | value >> 19) & _MASK) * 5 + 0xE6546B64 & _MASK
    tail = data[blocks * 4 :]
    if tail:
        k = int.from_bytes(tail, "little") * _C1 & _MASK
        value ^= (k << 15 | k >> 17) * _C2 & _MASK
    value ^= len(data)
    value = (value ^ value >> 16) * 0x85EBCA6B & _MASK
    value = (value ^ value >> 13) * 0xC2B2AE35 & _MASK
    return (value ^ value >> 16) & 0x7FFFFFFF


_remembered = lru_cache(maxsize=1 << 14)(_murmur3)


def key_of(metadata: MessageMetadata) -> bytes:
    """What decides which consumer gets a message."""
    if metadata.HasField("ordering_key"):
        return metadata.ordering_key
    if metadata.HasField("partition_key"):
        if metadata.partition_key_b64_encoded:
            try:
                return base64.b64decode(metadata.partition_key, validate=True)
            except ValueError:
                pass  # says it is base64 and is not: its bytes are as good a key
        key: str | bytes = metadata.partition_key  # bytes where it is not UTF-8, which C++ clients may send
        return key if isinstance(key, bytes) else key.encode()
    if metadata.producer_name:
        return f"{metadata.producer_name}-{metadata.sequence_id}".encode()
    return _NO_KEY
