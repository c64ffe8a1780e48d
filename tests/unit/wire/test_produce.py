"""Produce requests that lie about how much is in them."""

import struct

import pytest

from anabranch.base.errors import Corrupt
from anabranch.wire.kafka.decoder import MAX_ITEMS
from anabranch.wire.kafka.encoder import uvarint
from anabranch.wire.kafka.produce import read_produce

LEGACY_HEAD = struct.pack(">hhi", -1, 1, 1000)
FLEXIBLE_HEAD = b"\0" + struct.pack(">hi", 1, 1000)


@pytest.mark.parametrize("topics", [-1, -(2**31), MAX_ITEMS + 1, 2**31 - 1])
def test_numbers_of_topics_that_cannot_be(topics: int) -> None:
    with pytest.raises(Corrupt):
        read_produce(memoryview(LEGACY_HEAD + struct.pack(">i", topics)), 0, 8)


@pytest.mark.parametrize("partitions", [-1, -(2**31), 2**31 - 1])
def test_numbers_of_partitions_that_cannot_be(partitions: int) -> None:
    """A negative one would make room for any number of others."""
    topic = struct.pack(">h", 1) + b"t" + struct.pack(">i", partitions)
    with pytest.raises(Corrupt):
        read_produce(memoryview(LEGACY_HEAD + struct.pack(">i", 2) + topic + topic), 0, 8)


def test_a_flexible_request_has_the_same_limit() -> None:
    topic = uvarint(2) + b"t" + uvarint(MAX_ITEMS + 1)
    with pytest.raises(Corrupt):
        read_produce(memoryview(FLEXIBLE_HEAD + uvarint(2) + topic), 0, 9)
