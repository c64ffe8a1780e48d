"""The codecs written by hand, against kio's writer and reader at every version."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_reader

from anabranch.base.errors import Corrupt
from anabranch.base.ids import BrokerId
from anabranch.base.network import Chunk, FileRange
from anabranch.meta.image import BrokerImage
from anabranch.wire.kafka.current_leader import CurrentLeader
from anabranch.wire.kafka.encoder import request_encoder, uvarint
from anabranch.wire.kafka.fetch import (
    COMPACTED,
    DESCRIBED,
    WISHES_TAG,
    Fetched,
    read_fetch,
    write_fetched,
)
from anabranch.wire.kafka.produce import Produced, RecordError, read_produce, write_produced
from anabranch.wire.kafka.schema import ErrorCode, request_schema, response_schema
from tests.unit.records.strategies import seeded
from tests.wire.kafka_messages import entity_of, plain, whole, written

PRODUCE, FETCH = 0, 1
PRODUCE_VERSIONS = range(3, 14)
FETCH_VERSIONS = range(4, 19)
BY_ID = 13

NAMES = st.text(max_size=20)
TEXTS = st.none() | st.text(max_size=60)
CODES = st.sampled_from(list(ErrorCode)).map(int)
LEADERS = st.none() | st.builds(CurrentLeader, st.integers(-1, 3).map(BrokerId), st.integers(-1, 9))
BROKERS = {
    one.id: one
    for one in (
        BrokerImage(BrokerId(1), "one.example", 9092),
        BrokerImage(BrokerId(2), "two.example", 9093, "rack b"),
        BrokerImage(BrokerId(3), "", 0, ""),
    )
}


def assert_leaders(answer: Any, parts: list[tuple[Any, CurrentLeader | None]]) -> None:
    """Each of `parts` has its leader, and the answer says where they all are."""
    for part, leader in parts:
        assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (leader or (-1, -1))
    told = [(one.node_id, one.host, one.port, one.rack) for one in answer.node_endpoints]
    meant = [BROKERS[id] for id in sorted({leader.id for _, leader in parts if leader} & BROKERS.keys())]
    assert told == [(one.id, one.host, one.port, one.rack) for one in meant]


# --- produce


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@seeded(60)
@given(data=st.data())
def test_produce_requests_are_read_as_kio_wrote_them(version: int, data: st.DataObject) -> None:
    entity = data.draw(entity_of(request_schema(PRODUCE, version)))
    got = read_produce(memoryview(b"head" + written(entity)), 4, version)
    assert got.transactional_id == entity.transactional_id
    assert (got.acks, got.timeout_ms) == (entity.acks, plain(entity.timeout))
    assert len(got.topics) == len(entity.topic_data)
    for topic, meant in zip(got.topics, entity.topic_data, strict=True):
        if version >= BY_ID:
            assert topic.name == (meant.topic_id or UUID(int=0)).bytes
        else:
            assert topic.name == meant.name.encode()
        told = [(p.partition, None if p.records is None else bytes(p.records)) for p in topic.partitions]
        assert told == [(p.index, p.records) for p in meant.partition_data]


@st.composite
def produced(draw: Any) -> Produced:
    return Produced(
        draw(whole(32)),
        draw(CODES),
        draw(whole(64)),
        draw(st.integers(-1, 1 << 43)),  # a time that kio can say
        draw(whole(64)),
        draw(TEXTS),
        tuple(RecordError(*draw(st.tuples(whole(32), TEXTS))) for _ in range(draw(st.integers(0, 3)))),
        draw(LEADERS),
    )


def topics_of(version: int, item: st.SearchStrategy[Any]) -> st.SearchStrategy[list[tuple[Any, list[Any]]]]:
    name = st.uuids() if version >= BY_ID else NAMES
    return st.lists(st.tuples(name, st.lists(item, max_size=3)), max_size=3)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@seeded(60)
@given(data=st.data())
def test_produce_answers_are_read_by_kio(version: int, data: st.DataObject) -> None:
    topics = data.draw(topics_of(version, produced()))
    named = [(name.bytes if isinstance(name, UUID) else name.encode(), parts) for name, parts in topics]
    answer = read_whole(PRODUCE, version, write_produced(version, named, BROKERS))
    assert len(answer.responses) == len(topics)
    for got, (name, partitions) in zip(answer.responses, topics, strict=True):
        assert (got.topic_id or UUID(int=0)) == name if version >= BY_ID else got.name == name
        for part, meant in zip(got.partition_responses, partitions, strict=True):
            assert (part.index, int(part.error_code)) == (meant.partition, meant.error_code)
            assert part.base_offset == meant.base_offset
            assert append_time_of(part) == meant.append_time_ms
            if version >= 5:
                assert part.log_start_offset == meant.log_start
            if version >= 8:
                assert part.error_message == meant.message
                told = [(e.batch_index, e.batch_index_error_message) for e in part.record_errors]
                assert told == [tuple(error) for error in meant.record_errors]
    if version >= 10:
        parts = [part for got in answer.responses for part in got.partition_responses]
        assert_leaders(
            answer, list(zip(parts, [one.leader for _, many in topics for one in many], strict=True))
        )


def append_time_of(part: Any) -> int:
    return -1 if part.log_append_time is None else round(part.log_append_time.timestamp() * 1000)


# --- fetch


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@seeded(60)
@given(data=st.data())
def test_fetch_requests_are_read_as_kio_wrote_them(version: int, data: st.DataObject) -> None:
    entity = data.draw(entity_of(request_schema(FETCH, version)))
    got = read_fetch(memoryview(b"head" + written(entity)), 4, version)
    assert got.max_wait_ms == plain(entity.max_wait)
    told = (got.min_bytes, got.max_bytes, got.isolation_level)
    assert told == (entity.min_bytes, entity.max_bytes, entity.isolation_level)
    session = (entity.session_id, entity.session_epoch) if version >= 7 else (0, -1)
    assert (got.session_id, got.session_epoch) == session
    for topic, meant in zip(got.topics, entity.topics, strict=True):
        assert topic.topic == key_of(meant, version)
        for part, wanted in zip(topic.partitions, meant.partitions, strict=True):
            assert (part.partition, part.fetch_offset) == (wanted.partition, wanted.fetch_offset)
            assert part.partition_max_bytes == wanted.partition_max_bytes
            assert part.current_leader_epoch == (wanted.current_leader_epoch if version >= 9 else -1)
            assert part.last_fetched_epoch == (wanted.last_fetched_epoch if version >= 12 else -1)
    forgotten = entity.forgotten_topics_data if version >= 7 else ()
    assert [(t.topic, tuple(t.partitions)) for t in got.forgotten] == [
        (key_of(t, version), t.partitions) for t in forgotten
    ]


def asked_with(tags: dict[int, bytes], rack: str = "") -> bytes:
    values = {
        "replica_id": -1, "max_wait": 5, "min_bytes": 1, "max_bytes": 9, "isolation_level": 1,
        "session_id": 0, "session_epoch": -1, "topics": [], "forgotten_topics_data": [], "rack_id": rack,
    }  # fmt: skip
    body = bytearray()
    request_encoder(FETCH, 12)(body, values)
    body[-1:] = uvarint(len(tags))
    for tag, value in tags.items():
        body += uvarint(tag) + uvarint(len(value)) + value
    return bytes(body)


@pytest.mark.parametrize("rack", ["", "r" * 200])
def test_wishes_are_a_tag_among_others(rack: str) -> None:
    def wishes(tags: dict[int, bytes]) -> int:
        return read_fetch(memoryview(asked_with(tags, rack)), 0, 12).wishes

    assert wishes({}) == 0
    assert wishes({0: b"cluster", WISHES_TAG: bytes((DESCRIBED | COMPACTED,))}) == DESCRIBED | COMPACTED
    assert wishes({0: b"\x01", 7: b"x"}) == 0
    assert wishes({WISHES_TAG: b"\x01\x01"}) == 0
    whole = asked_with({WISHES_TAG: b"\x01"}, rack)
    with pytest.raises(Corrupt):
        read_fetch(memoryview(whole[:-2] + b"\x7f\x01"), 0, 12)


def key_of(topic: Any, version: int) -> str | UUID:
    if version >= BY_ID:
        return topic.topic_id or UUID(int=0)
    name: str = topic.topic
    return name


class Records:
    """Stands for a file: what a range of it holds can be told from where it is."""

    def read(self, part: FileRange) -> bytes:
        return bytes((part.position + i) % 251 for i in range(part.size))


RECORDS: Any = Records()


@st.composite
def fetched(draw: Any) -> Fetched:
    ranges = st.builds(FileRange, st.just(RECORDS), st.integers(0, 1000), st.integers(1, 300))
    pairs = st.lists(st.tuples(whole(64), whole(64)), max_size=3)
    return Fetched(
        draw(whole(32)),
        draw(CODES),
        draw(whole(64)),
        draw(whole(64)),
        draw(whole(64)),
        draw(st.none() | pairs),
        draw(st.none() | ranges),
        draw(st.none() | st.tuples(whole(32), whole(64))),
        draw(LEADERS),
    )


def joined(chunks: list[Chunk]) -> bytes:
    return b"".join(RECORDS.read(c) if isinstance(c, FileRange) else bytes(c) for c in chunks)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@seeded(60)
@given(data=st.data())
def test_fetch_answers_are_read_by_kio(version: int, data: st.DataObject) -> None:
    topics = data.draw(topics_of(version, fetched()))
    code, session = data.draw(CODES), data.draw(whole(32))
    chunks = write_fetched(version, code, session, topics, BROKERS)
    assert sum(isinstance(chunk, FileRange) for chunk in chunks) == sum(
        part.records is not None for _, parts in topics for part in parts
    )
    answer = read_whole(FETCH, version, joined(chunks))
    if version >= 7:
        assert (int(answer.error_code), answer.session_id) == (code, session)
    for got, (name, partitions) in zip(answer.responses, topics, strict=True):
        assert (got.topic_id or UUID(int=0)) == name if version >= BY_ID else got.topic == name
        for part, meant in zip(got.partitions, partitions, strict=True):
            assert_fetched(part, meant, version)
    if version >= 16:
        parts = [part for got in answer.responses for part in got.partitions]
        assert_leaders(
            answer, list(zip(parts, [one.leader for _, many in topics for one in many], strict=True))
        )


def assert_fetched(part: Any, meant: Fetched, version: int) -> None:
    assert (part.partition_index, int(part.error_code)) == (meant.partition, meant.error_code)
    assert (part.high_watermark, part.last_stable_offset) == (meant.high_watermark, meant.last_stable)
    if version >= 5:
        assert part.log_start_offset == meant.log_start
    if version >= 11:
        assert part.preferred_read_replica == -1
    aborted = part.aborted_transactions
    told = None if aborted is None else [(one.producer_id, one.first_offset) for one in aborted]
    assert told == meant.aborted
    assert (part.records or b"") == (b"" if meant.records is None else RECORDS.read(meant.records))
    assert part.records is not None, "clients expect empty records, not none"
    if version >= 12:
        told = (part.diverging_epoch.epoch, part.diverging_epoch.end_offset)
        assert told == ((-1, -1) if meant.diverging is None else meant.diverging)


# --- both


def read_whole(key: int, version: int, body: bytes) -> Any:
    """The answer, which starts with the header's tags; kio must use every byte."""
    schema = response_schema(key, version)
    at = 0
    if schema.__header_schema__.__flexible__:
        assert body[0] == 0
        at = 1
    answer, size = entity_reader(schema)(body, at)
    assert at + size == len(body)
    return answer
