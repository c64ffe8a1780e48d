"""Kafka batches as Pulsar consumers see them."""

from anabranch.records.batch import read_header
from anabranch.records.builder import build_batch
from anabranch.records.compression import LZ4
from anabranch.records.entries import read_metadata, verify
from anabranch.records.record import Record
from tests.support.entries import as_pulsar_entry, messages_of


def translated(*records: Record, **how: int) -> memoryview:
    batch = memoryview(build_batch(records, **how))
    return memoryview(as_pulsar_entry(read_header(batch), batch))


def test_a_record_becomes_a_message() -> None:
    payload = translated(Record(5, 1000, b"key", b"value", ((b"h", b"1"),)), codec=LZ4)
    verify(payload)
    metadata = read_metadata(payload)
    assert (metadata.num_messages_in_batch, metadata.publish_time) == (1, 1000)
    [(single, value)] = messages_of(payload)
    assert (single.partition_key, value, single.event_time) == ("key", b"value", 1000)
    assert [(each.key, each.value) for each in single.properties] == [("h", "1")]


def test_what_is_not_text_is_base64() -> None:
    [(single, _)] = messages_of(translated(Record(0, 1, b"\xff\x00", b"v", ((b"h", b"\xfe"),))))
    assert (single.partition_key, single.partition_key_b64_encoded) == ("/wA=", True)
    assert single.properties[0].value == "/g=="


def test_nulls_are_marked() -> None:
    [(single, value)] = messages_of(translated(Record(0, 1, None, None)))
    assert (single.null_value, single.HasField("partition_key"), value) == (True, False, b"")


def test_every_offset_has_its_message() -> None:
    payload = translated(Record(3, 1, b"a", b"1"), Record(6, 1, b"b", b"2"), base_offset=2, last_offset=8)
    assert read_metadata(payload).num_messages_in_batch == 7
    gone = [single.compacted_out for single, _ in messages_of(payload)]
    assert gone == [True, False, True, True, False, True, True]
