"""Produce and fetch requests that lie: Corrupt is the only error, memory and time follow what is there."""

import struct
import time
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.base.errors import Corrupt
from anabranch.wire.kafka.encoder import uvarint
from anabranch.wire.kafka.fetch import read_fetch
from anabranch.wire.kafka.produce import read_produce
from anabranch.wire.kafka.schema import request_schema
from tests.support.speed import slowness
from tests.unit.records.strategies import seeded
from tests.wire.kafka_messages import FEW, entity_of, written
from tests.wire.test_kafka_schema_hostile import LIES

VERSIONS = range(3, 14)
FETCH_VERSIONS = range(4, 19)
MANY = 4_000_000
HEAD = {3: b"\xff\xff" + struct.pack(">hi", 1, 1000), 9: b"\0" + struct.pack(">hi", 1, 1000)}
HUGE = (1 << 31) - 1


@pytest.mark.parametrize("version", VERSIONS)
@FEW
@given(data=st.data())
def test_a_request_cut_short_anywhere_is_corrupt(version: int, data: st.DataObject) -> None:
    body = written(data.draw(entity_of(request_schema(0, version))))
    tags = 1 if version >= 9 else 0  # those of the request itself are not read: nothing is behind them
    for end in range(len(body) - tags):
        with pytest.raises(Corrupt):
            read_produce(memoryview(body)[:end], 0, version)


@pytest.mark.parametrize("version", VERSIONS)
@seeded(40)
@given(data=st.data())
def test_a_mangled_request_is_read_or_corrupt(version: int, data: st.DataObject) -> None:
    body = bytearray(written(data.draw(entity_of(request_schema(0, version)))))
    for _ in range(4):
        at = data.draw(st.integers(0, len(body)))
        lie = data.draw(st.sampled_from(LIES))
        body[at : at + len(lie)] = lie
    with suppress(Corrupt):
        got = read_produce(memoryview(body), 0, version)
        size = sum(len(p.records or b"") for topic in got.topics for p in topic.partitions)
        assert size <= len(body)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@FEW
@given(data=st.data())
def test_a_fetch_cut_short_before_its_end_is_corrupt(version: int, data: st.DataObject) -> None:
    schema = request_schema(1, version)
    body = written(data.draw(entity_of(schema)))
    for end in range(len(body)):
        with suppress(Corrupt):
            got = read_fetch(memoryview(body)[:end], 0, version)
            # What stands behind the partitions, the rack and tags, is nothing to us.
            assert got == read_fetch(memoryview(body), 0, version)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@seeded(40)
@given(data=st.data())
def test_a_mangled_fetch_is_read_or_corrupt(version: int, data: st.DataObject) -> None:
    body = bytearray(written(data.draw(entity_of(request_schema(1, version)))))
    for _ in range(4):
        at = data.draw(st.integers(0, len(body)))
        lie = data.draw(st.sampled_from(LIES))
        body[at : at + len(lie)] = lie
    with suppress(Corrupt):
        read_fetch(memoryview(body), 0, version)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@seeded(40)
@given(noise=st.binary(max_size=300), at=st.integers(0, 310))
def test_noise_instead_of_a_fetch(version: int, noise: bytes, at: int) -> None:
    with suppress(Corrupt):
        read_fetch(memoryview(noise), at, version)


FETCH_HEAD = struct.pack(">iiiibii", -1, 0, 1, 1 << 20, 0, 0, -1)
FETCH_LIARS = {
    "topics that are not there": (7, FETCH_HEAD + struct.pack(">i", HUGE)),
    "partitions that are not there": (
        7,
        FETCH_HEAD + struct.pack(">ih", 1, 1) + b"t" + struct.pack(">i", HUGE),
    ),
    "null topics": (7, FETCH_HEAD + struct.pack(">i", -1)),
    "a name of negative length": (7, FETCH_HEAD + struct.pack(">ih", 1, -7)),
    "compact topics that are not there": (12, FETCH_HEAD + uvarint(HUGE)),
    "a compact name that is not there": (12, FETCH_HEAD + b"\2" + uvarint(1 << 34)),
    "millions of empty topics": (7, FETCH_HEAD + struct.pack(">i", MANY) + bytes(6 * MANY)),
    "millions of empty compact topics": (12, FETCH_HEAD + uvarint(MANY + 1) + b"\1\1\0" * MANY),
    "millions of tags": (12, FETCH_HEAD + b"\2\1\1" + uvarint(MANY) + bytes(2 * MANY)),
}


@pytest.mark.parametrize(("version", "body"), FETCH_LIARS.values(), ids=FETCH_LIARS)
def test_claims_of_a_fetch_cost_neither_memory_nor_time(version: int, body: bytes) -> None:
    tracemalloc.start()
    began = time.process_time()
    try:
        with pytest.raises(Corrupt):
            read_fetch(memoryview(body), 0, version)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
    spent_s = time.process_time() - began
    assert spent_s < 0.5 * slowness()


@pytest.mark.parametrize("version", VERSIONS)
@seeded(40)
@given(noise=st.binary(max_size=300), at=st.integers(0, 310))
def test_noise_is_read_or_corrupt(version: int, noise: bytes, at: int) -> None:
    with suppress(Corrupt):
        read_produce(memoryview(noise), at, version)


def legacy(*parts: bytes) -> bytes:
    return HEAD[3] + b"".join(parts)


def flexible(*parts: bytes) -> bytes:
    return HEAD[9] + b"".join(parts)


LIARS = {
    "topics that are not there": (3, legacy(struct.pack(">i", HUGE))),
    "partitions that are not there": (3, legacy(struct.pack(">ih", 1, 1), b"t", struct.pack(">i", HUGE))),
    "records that are not there": (
        3,
        legacy(struct.pack(">ih", 1, 1), b"t", struct.pack(">iii", 1, 0, HUGE)),
    ),
    "a name that is not there": (3, legacy(struct.pack(">ih", 1, 32767), b"t")),
    "a name of negative length": (3, legacy(struct.pack(">ih", 1, -5), b"t")),
    "millions of empty topics": (3, legacy(struct.pack(">i", MANY), bytes(6 * MANY))),
    "millions of empty partitions": (
        3,
        legacy(struct.pack(">ih", 1, 1), b"t", struct.pack(">i", MANY), bytes(8 * MANY)),
    ),
    "compact topics that are not there": (9, flexible(uvarint(HUGE))),
    "compact partitions that are not there": (9, flexible(b"\2\2t", uvarint(HUGE))),
    "compact records that are not there": (9, flexible(b"\2\2t\2", bytes(4), uvarint(HUGE))),
    "a compact name that is not there": (9, flexible(b"\2", uvarint(1 << 34))),
    "a varint without an end": (9, flexible(b"\xff" * 1000)),
    "millions of empty compact topics": (9, flexible(uvarint(MANY), b"\1\1\0" * MANY)),
    "millions of empty compact partitions": (9, flexible(b"\2\2t", uvarint(MANY), bytes(6 * MANY))),
    "millions of tags": (9, flexible(b"\2\2t\2", bytes(4), b"\1", uvarint(MANY), bytes(2 * MANY))),
}


@pytest.mark.parametrize(("version", "body"), LIARS.values(), ids=LIARS)
def test_claims_cost_neither_memory_nor_time(version: int, body: bytes) -> None:
    tracemalloc.start()
    began = time.process_time()
    try:
        with pytest.raises(Corrupt):
            read_produce(memoryview(body), 0, version)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
    spent_s = time.process_time() - began
    assert spent_s < 0.5 * slowness()


def test_ordinary_requests_are_far_from_the_limits() -> None:
    """A thousand topics with ten partitions each."""
    records = struct.pack(">ii", 0, 10) + bytes(10)
    topic = struct.pack(">h", 200) + b"t" * 200 + struct.pack(">i", 10) + records * 10
    got = read_produce(memoryview(legacy(struct.pack(">i", 1000), topic * 1000)), 0, 3)
    assert sum(len(topic.partitions) for topic in got.topics) == 10_000
