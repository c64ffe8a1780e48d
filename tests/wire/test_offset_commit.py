"""Offset commits by hand are what the schema makes of the same bytes, and lies are Corrupt."""

import struct
from contextlib import suppress
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.base.errors import Corrupt
from anabranch.wire.kafka.decoder import MAX_ITEMS, decode
from anabranch.wire.kafka.encoder import encoder, uvarint
from anabranch.wire.kafka.offset_commit import OffsetColumns, read_offset_commit, write_offset_commit
from anabranch.wire.kafka.schema import answers_flexibly, request_schema
from tests.unit.records.strategies import seeded
from tests.wire.kafka_messages import FEW, entity_of, written
from tests.wire.test_kafka_schema_hostile import LIES

KEY = 8
VERSIONS = range(2, 11)
FLEXIBLE = range(8, 11)
PARTITIONS = st.lists(
    st.fixed_dictionaries({"partition_index": st.integers(0, 9), "error_code": st.integers(-1, 120)})
)
TOPICS = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.text(st.characters(exclude_categories=["Cs"]), max_size=90),
            "topic_id": st.none() | st.uuids(),
            "partitions": PARTITIONS,
        }
    )
)


fields_of = attrgetter("partition_index", "committed_offset", "committed_leader_epoch", "committed_metadata")


def same(got: Any, meant: Any) -> None:
    """Every field that `got` has is that of `meant`."""
    fields = vars(got) if isinstance(got, SimpleNamespace) else got._asdict()
    for name, value in fields.items():
        other = getattr(meant, name, "")  # where topics have ids, a name is nothing
        if isinstance(value, OffsetColumns):
            assert list(zip(*value, strict=True)) == [fields_of(part) for part in other]
        elif isinstance(value, list):
            assert len(value) == len(other)
            for item, other_item in zip(value, other, strict=True):
                same(item, other_item)
        else:
            assert value == other


@pytest.mark.parametrize("version", VERSIONS)
@FEW
@given(data=st.data())
def test_requests_are_read_as_by_the_schema(version: int, data: st.DataObject) -> None:
    body = memoryview(b"xx" + written(data.draw(entity_of(request_schema(KEY, version)))))
    same(read_offset_commit(body, 2, version), decode(KEY, version, body, 2))


@pytest.mark.parametrize("version", FLEXIBLE)
@FEW
@given(data=st.data())
def test_a_request_cut_short_anywhere_is_corrupt(version: int, data: st.DataObject) -> None:
    body = written(data.draw(entity_of(request_schema(KEY, version))))
    for end in range(len(body)):
        with pytest.raises(Corrupt):
            read_offset_commit(memoryview(body)[:end], 0, version)


@pytest.mark.parametrize("version", FLEXIBLE)
@seeded(60)
@given(data=st.data())
def test_a_mangled_request_is_corrupt_or_read_as_by_the_schema(version: int, data: st.DataObject) -> None:
    body = bytearray(written(data.draw(entity_of(request_schema(KEY, version)))))
    for _ in range(4):
        at = data.draw(st.integers(0, len(body)))
        lie = data.draw(st.sampled_from(LIES))
        body[at : at + len(lie)] = lie
    frame = memoryview(body)
    with suppress(Corrupt):
        meant = decode(KEY, version, frame, 0)
        same(read_offset_commit(frame, 0, version), meant)
        return
    with pytest.raises(Corrupt):
        read_offset_commit(frame, 0, version)


def offset(index: int, metadata: bytes = b"\1", tags: bytes = b"\0") -> bytes:
    return struct.pack(">iqi", index, 1 << 40 | index, index - 1) + metadata + tags


BARE = [offset(index) for index in range(130)]
UNLIKE = [
    offset(7, b"\0"),
    offset(7, b"\3no"),
    offset(7, b"\1", b"\1\5\2ab"),
    offset(7, b"\x12" + b"\1\0" * 8 + b"z"),
]


def commit_of(version: int, *topics: list[bytes]) -> bytes:
    which = uvarint(2) + b"t" if version < 10 else bytes(15) + b"\7"
    each = [which + uvarint(len(offsets) + 1) + b"".join(offsets) + b"\0" for offsets in topics]
    return (
        uvarint(2)
        + b"g"
        + bytes(4)
        + uvarint(1)
        + uvarint(0)
        + uvarint(len(each) + 1)
        + b"".join(each)
        + b"\0"
    )


@pytest.mark.parametrize("version", FLEXIBLE)
@pytest.mark.parametrize("count", [*range(9), 100, 130])
def test_offsets_with_nothing_said_are_read_as_by_the_schema(version: int, count: int) -> None:
    body = memoryview(commit_of(version, BARE[:count], BARE[3 : 3 + count]))
    same(read_offset_commit(body, 0, version), decode(KEY, version, body, 0))


@pytest.mark.parametrize("unlike", UNLIKE)
@pytest.mark.parametrize("at", [0, 1, 6, 11])
def test_one_offset_among_many_has_something_to_say(unlike: bytes, at: int) -> None:
    body = memoryview(commit_of(9, [*BARE[:at], unlike, *BARE[at + 1 : 12]], BARE[:5]))
    same(read_offset_commit(body, 0, 9), decode(KEY, 9, body, 0))


def test_many_offsets_cut_short_anywhere_are_corrupt() -> None:
    body = commit_of(9, BARE[:10], [*BARE[:5], UNLIKE[1]])
    for end in range(len(body)):
        with pytest.raises(Corrupt):
            read_offset_commit(memoryview(body)[:end], 0, 9)


@pytest.mark.parametrize("items", [MAX_ITEMS + 1, (1 << 31) - 1])
def test_numbers_of_topics_that_cannot_be(items: int) -> None:
    head = uvarint(2) + b"g" + bytes(4) + uvarint(1) + uvarint(0)
    with pytest.raises(Corrupt):
        read_offset_commit(memoryview(head + uvarint(items + 1) + bytes(100_000)), 0, 9)


@pytest.mark.parametrize("version", VERSIONS)
@seeded(40)
@given(topics=TOPICS)
def test_answers_are_the_bytes_of_the_schema(version: int, topics: list[dict[str, Any]]) -> None:
    meant = bytearray(b"\0" if answers_flexibly(KEY, version) else b"")
    encoder(KEY, version)(meant, {"topics": topics})
    assert write_offset_commit(version, topics) == meant
