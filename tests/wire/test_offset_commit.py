"""Offset commits by hand are what the schema makes of the same bytes, and lies are Corrupt."""

from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.base.errors import Corrupt
from anabranch.wire.kafka.decoder import MAX_ITEMS, decode
from anabranch.wire.kafka.encoder import encoder, uvarint
from anabranch.wire.kafka.offset_commit import read_offset_commit, write_offset_commit
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


def same(got: Any, meant: Any) -> None:
    """Every field that `got` has is that of `meant`."""
    fields = vars(got) if isinstance(got, SimpleNamespace) else got._asdict()
    for name, value in fields.items():
        other = getattr(meant, name, "")  # where topics have ids, a name is nothing
        if isinstance(value, list):
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
