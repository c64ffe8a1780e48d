"""Requests that lie: cut short, mangled, or with lengths that the frame cannot hold.

Corrupt is the only error there is, and memory follows what is there, not what is claimed.
"""

import struct
import tracemalloc
from contextlib import suppress
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.base.errors import Corrupt
from anabranch.wire.kafka.decoder import MAX_ITEMS, decode
from anabranch.wire.kafka.encoder import uvarint
from anabranch.wire.kafka.schema import request_schema
from tests.wire.kafka_apis import EVERY_VERSION, IDS
from tests.wire.kafka_messages import FEW, entity_of, written

LIES = [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\x80\x00", b"\xff", b"\x00"]


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION, ids=IDS)
@FEW
@given(data=st.data())
def test_a_request_cut_short_anywhere_is_corrupt(key: int, version: int, data: st.DataObject) -> None:
    body = written(data.draw(entity_of(request_schema(key, version))))
    for end in range(len(body)):
        with pytest.raises(Corrupt):
            decode(key, version, memoryview(body)[:end], 0)


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION, ids=IDS)
@FEW
@given(data=st.data())
def test_a_mangled_request_is_read_or_corrupt(key: int, version: int, data: st.DataObject) -> None:
    body = bytearray(written(data.draw(entity_of(request_schema(key, version)))))
    for _ in range(4):
        at = data.draw(st.integers(0, len(body)))
        lie = data.draw(st.sampled_from(LIES))
        body[at : at + len(lie)] = lie
    with suppress(Corrupt):
        decode(key, version, memoryview(body), 0)


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION, ids=IDS)
@FEW
@given(noise=st.binary(max_size=300))
def test_noise_is_read_or_corrupt(key: int, version: int, noise: bytes) -> None:
    with suppress(Corrupt):
        decode(key, version, memoryview(noise), 0)


@pytest.mark.parametrize("claim", [-2, -(1 << 31), 1, 1000, MAX_ITEMS + 1, (1 << 31) - 1])
def test_an_array_claims_more_than_is_there(claim: int) -> None:
    with pytest.raises(Corrupt):
        decode(3, 1, memoryview(struct.pack(">i", claim)), 0)


def test_a_null_array_where_none_may_be() -> None:
    assert decode(3, 1, memoryview(struct.pack(">i", -1)), 0).topics is None
    with pytest.raises(Corrupt):
        decode(3, 0, memoryview(struct.pack(">i", -1)), 0)


@pytest.mark.parametrize("claim", [-2, -(1 << 15), 2, (1 << 15) - 1])
def test_a_string_claims_more_than_is_there(claim: int) -> None:
    with pytest.raises(Corrupt):
        decode(3, 1, memoryview(struct.pack(">ih", 1, claim) + b"a"), 0)


def test_a_string_is_not_utf8() -> None:
    with pytest.raises(Corrupt):
        decode(3, 1, memoryview(struct.pack(">ih", 1, 2) + b"\xff\xfe"), 0)


def test_a_varint_without_end() -> None:
    with pytest.raises(Corrupt):
        decode(3, 12, memoryview(b"\xff" * 20), 0)


def test_a_tagged_field_of_another_length_than_it_says() -> None:
    fetch = written(
        request_schema(1, 15)(
            max_wait=timedelta(milliseconds=1), min_bytes=1, topics=(), forgotten_topics_data=()
        )
    )
    assert fetch[-1] == 0  # no tags
    cluster_id = uvarint(3) + b"ab"
    good = fetch[:-1] + uvarint(1) + uvarint(0) + uvarint(len(cluster_id)) + cluster_id
    assert decode(1, 15, memoryview(good), 0).cluster_id == "ab"
    for size in (len(cluster_id) - 1, len(cluster_id) + 1):
        lying = fetch[:-1] + uvarint(1) + uvarint(0) + uvarint(size) + cluster_id + bytes(4)
        with pytest.raises(Corrupt):
            decode(1, 15, memoryview(lying), 0)


def test_items_of_all_arrays_together_are_limited() -> None:
    """An array of empty strings makes a hundred bytes of one."""
    topics = struct.pack(">i", MAX_ITEMS + 1) + bytes(2 * (MAX_ITEMS + 1))
    tracemalloc.start()
    try:
        with pytest.raises(Corrupt):
            decode(3, 1, memoryview(topics), 0)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
