"""Hashes of keys as Pulsar's: known values of MurmurHash3, and which key a message has."""

import sys

import pytest

from anabranch.records.pulsar_metadata_pb2 import MessageMetadata
from anabranch.subscriptions.key_hash import key_of, murmur3


@pytest.mark.parametrize(
    ("data", "value"),
    [
        # Public test values of MurmurHash3_x86_32, seed 0.
        (b"", 0x00000000),
        (b"test", 0xBA6BD213),
        (b"Hello, world!", 0xC0363E43),
        (b"The quick brown fox jumps over the lazy dog", 0x2E4FF723),
        (b"a", 0x3C2569B2),
        (b"ab", 0x9BBFD75F),
        (b"abc", 0xB3DD93FA),
    ],
)
def test_known_hashes_without_their_sign(data: bytes, value: int) -> None:
    assert murmur3(data) == value & 0x7FFFFFFF


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"ordering_key": b"o", "partition_key": "k"}, b"o"),
        ({"partition_key": "k"}, b"k"),
        ({"partition_key": "aGk=", "partition_key_b64_encoded": True}, b"hi"),
        ({"partition_key": "no base64", "partition_key_b64_encoded": True}, b"no base64"),
        ({"producer_name": "p", "sequence_id": 7}, b"p-7"),
        ({}, b"NONE_KEY"),
    ],
)
def test_which_key_a_message_has(fields: dict[str, object], key: bytes) -> None:
    assert key_of(MessageMetadata(**fields)) == key


def test_large_keys_are_not_kept() -> None:
    key = bytearray(b"k" * 100_000)
    before = sys.getrefcount(data := bytes(key))
    assert murmur3(data) == murmur3(bytes(key))
    assert sys.getrefcount(data) == before
