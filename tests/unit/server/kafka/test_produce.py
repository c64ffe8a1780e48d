"""Produce: every way in which a batch or a request can be wrong, and what must hold when it is right."""

import asyncio
import struct
import threading
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kio.serial.errors import InvalidUnicode

from anabranch.base.errors import Corrupt, DiskFull
from anabranch.log.config import LogConfig
from anabranch.records import compression
from anabranch.records.batch import HEADER, BatchHeader, crc_of, read_header, split_batches
from anabranch.records.builder import build_batch
from anabranch.records.record import Record, iter_records, payload_of
from anabranch.server.kafka import produce as module
from anabranch.wire.kafka.schema import ErrorCode
from tests.support.logs import START_MS, contents, records
from tests.support.serving import PRODUCE, Served, read_answer

CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
FORTY_MB = 40 << 20


@pytest.fixture
def served(tmp_path: Path) -> Served:
    made = Served(tmp_path)
    made.topic("t", partitions=2)
    return made


def changed(batch: bytes, *, keep_crc: bool = False, **fields: Any) -> bytes:
    """`batch` with other header fields, and a checksum that fits them unless `keep_crc`."""
    header = BatchHeader(*HEADER.unpack_from(batch))._replace(**fields)
    made = bytearray(HEADER.pack(*header)) + batch[HEADER.size :]
    if not keep_crc and "crc" not in fields:
        struct.pack_into(">I", made, 17, crc_of(made))
    return bytes(made)


GOOD = bytes(records("a", "b", "c"))
SEQUENCED = bytes(records("a", "b", "c", producer_id=5, producer_epoch=0, base_sequence=0))


def code(answer: Any) -> str:
    return ErrorCode(answer.error_code).name


# --- a batch that is wrong

WRONG: dict[str, tuple[bytes | None, str]] = {
    "null": (None, "invalid_record"),
    "empty": (b"", "invalid_record"),
    "one byte": (b"\0", "invalid_record"),
    "less than a header": (GOOD[:60], "invalid_record"),
    "only a header": (GOOD[:61], "invalid_record"),
    "cut": (GOOD[:-1], "invalid_record"),
    "followed by a byte": (GOOD + b"\0", "invalid_record"),
    "two batches": (GOOD + GOOD, "invalid_record"),
    "length 0": (changed(GOOD, length=0), "corrupt_message"),
    "length -1": (changed(GOOD, length=-1), "corrupt_message"),
    "least length": (changed(GOOD, length=-(2**31)), "corrupt_message"),
    "length of less than a header": (changed(GOOD, length=48), "corrupt_message"),
    "length one too small": (changed(GOOD, length=len(GOOD) - 13), "invalid_record"),
    "length one too large": (changed(GOOD, length=len(GOOD) - 11), "invalid_record"),
    "greatest length": (changed(GOOD, length=2**31 - 1), "invalid_record"),
    "magic 0": (changed(GOOD, magic=0), "invalid_record"),
    "magic 1": (changed(GOOD, magic=1), "invalid_record"),
    "magic 3": (changed(GOOD, magic=3), "corrupt_message"),
    "magic -1": (changed(GOOD, magic=-1), "invalid_record"),
    "checksum": (changed(GOOD, crc=1), "corrupt_message"),
    "a bit of the records": (GOOD[:-1] + bytes([GOOD[-1] ^ 1]), "corrupt_message"),
    "base offset 1": (changed(GOOD, base_offset=1), "invalid_record"),
    "base offset -1": (changed(GOOD, base_offset=-1), "invalid_record"),
    "count 0": (changed(GOOD, count=0), "invalid_record"),
    "count -1": (changed(GOOD, count=-1), "invalid_record"),
    "count 2": (changed(GOOD, count=2), "invalid_record"),
    "count 4": (changed(GOOD, count=4), "invalid_record"),
    "greatest count": (changed(GOOD, count=2**31 - 1), "invalid_record"),
    "last delta 1": (changed(GOOD, last_offset_delta=1), "invalid_record"),
    "last delta -1": (changed(GOOD, last_offset_delta=-1), "invalid_record"),
    "greatest last delta": (changed(GOOD, last_offset_delta=2**31 - 1), "invalid_record"),
    "consistent lie": (changed(GOOD, last_offset_delta=9, count=10), "invalid_record"),
    "greatest consistent lie": (
        changed(GOOD, last_offset_delta=2**31 - 2, count=2**31 - 1),
        "invalid_record",
    ),
    "codec 5": (changed(GOOD, attributes=5), "unsupported_compression_type"),
    "codec 7": (changed(GOOD, attributes=7), "unsupported_compression_type"),
    "control": (changed(GOOD, attributes=0x20), "invalid_record"),
    "delete horizon": (changed(GOOD, attributes=0x40), "invalid_record"),
    "pulsar entry": (changed(GOOD, attributes=0x4000), "invalid_record"),
    "log append time": (changed(GOOD, attributes=8), "invalid_timestamp"),
    "too far ahead": (changed(GOOD, max_timestamp=START_MS + 3_600_001), "invalid_timestamp"),
    "end of time": (changed(GOOD, max_timestamp=2**63 - 1), "invalid_timestamp"),
    "no epoch": (changed(SEQUENCED, producer_epoch=-1), "invalid_record"),
    "no sequence": (changed(SEQUENCED, base_sequence=-1), "invalid_record"),
    "transactional": (changed(SEQUENCED, attributes=0x10), "transactional_id_authorization_failed"),
}


@pytest.mark.parametrize(("batch", "expected"), WRONG.values(), ids=WRONG)
def test_a_wrong_batch_is_refused_and_changes_nothing(
    served: Served, batch: bytes | None, expected: str
) -> None:
    for attempt in range(2):  # also by the short way, once there is one
        answer = served.produce("t", batch)
        assert code(answer) in (expected, "invalid_producer_epoch"), expected
        assert (answer.base_offset, answer.log_append_time) == (-1, None)
        assert served.partition("t").log_end == attempt
        assert served.produce("t", records("good")).base_offset == attempt
    assert contents(served.partition("t").log) == [(0, b"good"), (1, b"good")]


@pytest.mark.parametrize("version", range(3, 14))
def test_the_same_answer_at_every_version(served: Served, version: int) -> None:
    for number in range(3):
        assert served.produce("t", GOOD, version=version).base_offset == number * 3
        assert code(served.produce("t", WRONG["checksum"][0], version=version)) == "corrupt_message"
    assert served.partition("t").log_end == 9


@pytest.mark.parametrize("size", range(0, 300, 7))
def test_noise_instead_of_records(served: Served, size: int) -> None:
    noise = bytes((number * number + size) % 256 for number in range(size))
    assert code(served.produce("t", noise)) != "none"
    assert served.partition("t").log_end == 0


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
async def test_a_codec_that_the_records_do_not_have(served: Served, codec: int) -> None:
    served.topic("c", cleanup_policy=("compact",))
    served.topic("r", compression_type="uncompressed")
    lie = changed(GOOD, attributes=codec)
    for topic in ("c", "r"):
        assert code(await served.produce_later(topic, lie)) in ("corrupt_message", "invalid_record")
        assert served.partition(topic).log_end == 0


def test_zstd_needs_a_version_that_knows_it(served: Served) -> None:
    batch = bytes(records("a", codec=4))
    assert code(served.produce("t", batch, version=6)) == "unsupported_compression_type"
    assert code(served.produce("t", batch, version=7)) == "none"


def test_max_message_bytes_is_the_size_of_the_batch(served: Served) -> None:
    served.topic("small", max_message_bytes=len(GOOD))
    assert code(served.produce("small", GOOD)) == "none"
    assert code(served.produce("small", records("a", "b", "cd"))) == "message_too_large"
    assert code(served.produce("small", GOOD)) == "none"


# --- timestamps


def test_timestamps_behind_and_ahead(served: Served) -> None:
    served.topic("strict", message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=1000)
    for shift, expected in ((0, "none"), (-1000, "none"), (-1001, "invalid_timestamp")):
        assert code(served.produce("strict", records("a", timestamp=START_MS + shift))) == expected
    for shift, expected in ((1000, "none"), (1001, "invalid_timestamp")):
        assert code(served.produce("strict", records("a", timestamp=START_MS + shift))) == expected
    served.clock.advance(10)  # the clock, not the log, decides
    assert code(served.produce("strict", records("a", timestamp=START_MS - 1000))) == "invalid_timestamp"
    assert code(served.produce("strict", records("a", timestamp=-1))) == "none", "no timestamp at all"


def test_a_late_record_hidden_in_a_batch(served: Served) -> None:
    served.topic("strict", message_timestamp_before_max_ms=1000)
    batch = build_batch([Record(0, START_MS, None, b"a"), Record(1, START_MS - 2000, None, b"b")])
    assert code(served.produce("strict", batch)) == "invalid_timestamp"


def test_log_append_time_is_the_brokers(served: Served) -> None:
    served.topic("stamped", message_timestamp_type="LogAppendTime")
    for batch in (GOOD, changed(GOOD, attributes=8), changed(GOOD, max_timestamp=2**63 - 1)):
        served.clock.advance(7)
        answer = served.produce("stamped", batch)
        assert code(answer) == "none"
        assert round(answer.log_append_time.timestamp() * 1000) == served.clock.ms
    for header, stored in stored_batches(served, "stamped"):
        assert header.attributes & 8
        assert header.crc == crc_of(stored)
    assert [header.max_timestamp for header, _ in stored_batches(served, "stamped")] == [
        START_MS + 7,
        START_MS + 14,
        START_MS + 21,
    ]


def test_a_clock_that_jumps(served: Served) -> None:
    served.topic("stamped", message_timestamp_type="LogAppendTime")
    for jump in (0, 86_400_000, -172_800_000, 0, 86_400_000):
        served.clock.advance(jump)
        assert code(served.produce("stamped", GOOD)) == "none"
    times = [header.max_timestamp for header, _ in stored_batches(served, "stamped")]
    assert times == [START_MS + day * 86_400_000 for day in (0, 1, -1, -1, 0)]
    log = served.partition("stamped").log
    assert [offset for offset, _ in contents(log)] == list(range(15))


def stored_batches(served: Served, topic: str) -> list[tuple[BatchHeader, bytes]]:
    log = served.partition(topic).log
    data = b"".join(segment.file.pread(segment.size, 0) for segment in log.segments)
    return [(header, bytes(batch)) for header, batch in split_batches(data)]


# --- producers


def sequenced(sequence: int, count: int = 2, epoch: int = 0, producer: int = 7) -> bytearray:
    values = [f"{producer}.{epoch}.{sequence + i}" for i in range(count)]
    return records(*values, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


def test_duplicates_gaps_and_zombies(served: Served) -> None:
    def sent(*arguments: Any, **options: Any) -> tuple[str, int]:
        answer = served.produce("t", sequenced(*arguments, **options))
        return code(answer), answer.base_offset

    assert sent(0) == ("none", 0)
    assert sent(2) == ("none", 2)
    assert sent(0) == ("none", 0)
    assert sent(2) == ("none", 2)
    assert sent(2, count=1) == ("out_of_order_sequence_number", -1)
    assert sent(6) == ("out_of_order_sequence_number", -1)
    assert sent(4, epoch=1) == ("out_of_order_sequence_number", -1)
    assert sent(0, epoch=1) == ("none", 4)
    assert sent(4) == ("invalid_producer_epoch", -1)
    assert sent(2, epoch=1) == ("none", 6)
    assert sent(100, producer=8) == ("none", 8)
    assert sent(0, producer=9) == ("none", 10)
    assert served.partition("t").log_end == 12


def test_sequences_wrap(served: Served) -> None:
    last = 2**31 - 1
    assert code(served.produce("t", sequenced(last - 1, count=2))) == "none"
    assert code(served.produce("t", sequenced(last - 1, count=2))) == "none"
    assert code(served.produce("t", sequenced(0, count=2))) == "none"
    assert code(served.produce("t", sequenced(0, count=2))) == "none"
    assert served.partition("t").log_end == 4
    assert code(served.produce("t", sequenced(last, count=3, producer=8))) == "none"
    assert code(served.produce("t", sequenced(last, count=3, producer=8))) == "none"
    assert code(served.produce("t", sequenced(2, count=1, producer=8))) == "none"
    assert served.partition("t").log_end == 8


def test_a_batch_that_was_refused_leaves_the_sequence_as_it_was(served: Served) -> None:
    assert code(served.produce("t", sequenced(0))) == "none"
    assert code(served.produce("t", changed(bytes(sequenced(2)), crc=3))) == "corrupt_message"
    assert code(served.produce("t", sequenced(2))) == "none"


def test_duplicates_are_known_after_a_restart(served: Served, tmp_path: Path) -> None:
    for sequence in (0, 2, 4):
        assert code(served.produce("t", sequenced(sequence))) == "none"
    served.host.close()
    again = Served(tmp_path)
    again.topic("t", partitions=2)
    assert again.produce("t", sequenced(4)).base_offset == 4
    assert code(again.produce("t", sequenced(8))) == "out_of_order_sequence_number"
    assert again.produce("t", sequenced(6)).base_offset == 6


# --- compacted topics


def test_a_compacted_topic_wants_keys_and_says_which_are_missing(served: Served) -> None:
    served.topic("c", cleanup_policy=("compact",))
    assert code(served.produce("c", records("a", keys=["k"]))) == "none"
    answer = served.produce("c", records("a", "b", "c", "d", keys=["k", None, "k", None]))
    assert code(answer) == "invalid_record"
    assert [error.batch_index for error in answer.record_errors] == [1, 3]
    assert served.partition("c").log_end == 1


async def test_a_batch_without_keys_has_a_short_answer(served: Served) -> None:
    served.topic("c", cleanup_policy=("compact",), max_message_bytes=10 << 20)
    (answer,) = await served.produce_raw("c", records(*[""] * 50_000))
    assert len(answer) < 20_000


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
async def test_a_compressed_batch_is_looked_into(served: Served, codec: int) -> None:
    served.topic("c", cleanup_policy=("compact",))
    good, bad = records("a", keys=["k"], codec=codec), records("a", codec=codec)
    assert code(await served.produce_later("c", good)) == "none"
    assert code(await served.produce_later("c", bad)) == "invalid_record"


# --- work that is too much for the loop


def large(codec: int = 0, size: int = 200_000, **fields: Any) -> bytes:
    """A batch that does not get small when it is compressed."""
    noise = "".join(chr(33 + (number * number * 7919 >> 5) % 90) for number in range(size))
    return bytes(records(noise, keys=["k"], codec=codec, **fields))


@pytest.mark.parametrize("kind", ["uncompressed", *CODECS])
@pytest.mark.parametrize("codec", [0, *CODECS.values()], ids=["none", *CODECS])
async def test_recompressed_as_the_topic_says(served: Served, kind: str, codec: int) -> None:
    served.topic("r", compression_type=kind, max_message_bytes=1 << 20)
    batches = [large(codec), bytes(records("a", "b", keys=["k", "l"], codec=codec)), large(codec, 70_000)]
    offsets = []
    for batch in batches:
        reply = served.produce_raw("r", batch)
        reply = await reply if asyncio.iscoroutine(reply) else reply
        told = read_answer(PRODUCE, 9, reply).responses[0].partition_responses[0]
        assert code(told) == "none"
        offsets.append(told.base_offset)
    assert offsets == [0, 1, 3]
    found = stored_batches(served, "r")
    assert {header.codec for header, _ in found} == {CODECS.get(kind, 0)}
    for (header, stored), sent in zip(found, batches, strict=True):
        assert header.crc == crc_of(stored)
        before = read_header(sent)
        meant = [r[1:] for r in iter_records(before, payload_of(before, sent, FORTY_MB))]
        assert [r[1:] for r in iter_records(header, payload_of(header, stored, FORTY_MB))] == meant


async def test_what_grows_beyond_the_limit_is_too_large(served: Served) -> None:
    """As in Kafka: the limit holds for what is stored, too."""
    served.topic("r", compression_type="uncompressed", max_message_bytes=10_000)
    batch = records("x" * 50_000, codec=4)
    assert len(batch) < 1000
    assert code(await served.produce_later("r", batch)) == "message_too_large"
    assert served.partition("r").log_end == 0


BOMB_ZEROS = "\0" * FORTY_MB


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
async def test_a_small_batch_that_is_large_inside_does_not_stop_the_loop(served: Served, codec: int) -> None:
    served.topic("c", cleanup_policy=("compact",))
    batch = records(BOMB_ZEROS[: 8 << 20], keys=["k"], codec=codec)
    reply = served.produce_raw("c", batch)
    assert asyncio.iscoroutine(reply), "it is unpacked in a thread"
    told = read_answer(PRODUCE, 9, await reply).responses[0].partition_responses[0]
    assert code(told) == "none"


async def test_a_bomb_is_refused(served: Served) -> None:
    served.topic("c", cleanup_policy=("compact",))
    served.topic("r", compression_type="gzip")
    batch = records(BOMB_ZEROS + BOMB_ZEROS, keys=["k"], codec=4)
    assert len(batch) < 20_000
    for topic in ("c", "r"):
        answer = await served.produce_later(topic, batch)
        assert code(answer) in ("message_too_large", "corrupt_message")
        assert served.partition(topic).log_end == 0


async def test_heavy_batches_see_the_topic_go(served: Served) -> None:
    """Whatever is in a thread when its topic is deleted must not reach the next topic of that name."""
    served.topic("r", compression_type="gzip")
    assert code(await served.produce_later("r", large())) == "none"
    reply = asyncio.ensure_future(served.produce_raw("r", large()))
    await asyncio.sleep(0)
    served.delete("r")
    served.topic("r", compression_type="gzip")
    assert code(served.produce("r", records("new"))) == "none"
    before = stored_batches(served, "r")
    told = read_answer(PRODUCE, 9, await reply).responses[0].partition_responses[0]
    assert code(told) == "unknown_topic_or_partition"
    assert stored_batches(served, "r") == before


async def test_what_waits_behind_a_heavy_batch_sees_its_topic_go(served: Served) -> None:
    """Its log would be rolled, which makes a segment in the folder of the next topic of that name."""
    served.topic("r", compression_type="gzip")
    served.topic("s", segment_bytes=200)
    for _ in range(2):
        assert code(served.produce("s", records("old"))) == "none"
    topics = [
        {"name": name, "partition_data": [{"index": 0, "records": batch}]}
        for name, batch in (("r", large()), ("s", records("late")))
    ]
    body = served.produce_body({"acks": -1, "topic_data": topics}, 9)
    reply = asyncio.ensure_future(served.send(body, 9))
    await asyncio.sleep(0)
    served.delete("s")
    served.topic("s")
    assert code(served.produce("s", records("new"))) == "none"
    folder = served.partition("s").log.folder
    before = sorted(path.name for path in folder.iterdir())
    told = [one.partition_responses[0] for one in read_answer(PRODUCE, 9, await reply).responses]
    assert [code(one) for one in told] == ["none", "unknown_topic_or_partition"]
    assert sorted(path.name for path in folder.iterdir()) == before


async def test_heavy_batches_of_one_request_keep_their_order(served: Served) -> None:
    served.topic("r", partitions=2, compression_type="zstd")
    parts = [{"index": index, "records": large(size=100_000 - index)} for index in (0, 1, 0, 1)]
    body = served.produce_body({"acks": -1, "topic_data": [{"name": "r", "partition_data": parts}]}, 9)
    answer = read_answer(PRODUCE, 9, await served.send(body, 9))
    told = [(p.index, p.base_offset) for p in answer.responses[0].partition_responses]
    assert told == [(0, 0), (1, 0), (0, 1), (1, 1)]


async def test_threads_see_bytes_of_their_own(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The frame's buffer is filled with the next request while a thread works on this one."""
    served.topic("r", compression_type="gzip")
    seen = threading.Event()
    real = compression.compress

    def slow(codec: int, data: Any, level: int | None = None) -> Any:
        seen.wait(60)
        return real(codec, data, level)

    body = served.produce_body(
        {"acks": -1, "topic_data": [{"name": "r", "partition_data": [{"index": 0, "records": large()}]}]}, 9
    )
    monkeypatch.setattr("anabranch.records.builder.compress", slow)
    frame = memoryview(bytearray(b"head" + body))
    context = module.RequestContext(9, "test", 1, served.services, served.peer)
    work: Any = module.produce(frame, 4, context)
    frame[:] = bytes(len(frame))
    task = asyncio.ensure_future(work)
    await asyncio.sleep(0.01)
    seen.set()
    told = read_answer(PRODUCE, 9, await task).responses[0].partition_responses[0]
    assert code(told) == "none"


# --- requests


def test_topics_and_partitions_that_are_not_there(served: Served) -> None:
    assert code(served.produce("none", GOOD)) == "unknown_topic_or_partition"
    assert code(served.produce("none", GOOD, version=13)) == "unknown_topic_id"
    for partition in (2, -1, 2**31 - 1, -(2**31)):
        assert code(served.produce("t", GOOD, partition=partition)) == "unknown_topic_or_partition"
    for name in ("", ".", "..", "../t", "t/../t", "t\0", "x" * 250, "ü", "persistent://public/default/../t"):
        assert code(served.produce(name, GOOD)) == "unknown_topic_or_partition"
    assert code(served.produce("persistent://public/default/t", GOOD)) == "none"


@pytest.mark.parametrize("acks", [2, -2, 32767, -32768])
def test_acks_that_there_are_not(served: Served, acks: int) -> None:
    for version in (3, 9, 13):
        assert code(served.produce("t", GOOD, acks=acks, version=version)) == "invalid_required_acks"
    assert served.partition("t").log_end == 0


def test_acks_0_has_no_answer(served: Served) -> None:
    for _ in range(3):
        assert served.produce_raw("t", GOOD, acks=0) is None
    assert served.partition("t").log_end == 9


@pytest.mark.parametrize("batch", [WRONG["checksum"][0], None, b""])
def test_acks_0_and_an_error_close_the_connection(served: Served, batch: bytes | None) -> None:
    with pytest.raises(Corrupt, match="acks=0"):
        served.produce_raw("t", batch, acks=0)


async def test_acks_0_and_heavy(served: Served) -> None:
    served.topic("r", compression_type="gzip")
    assert await served.produce_raw("r", large(), acks=0) is None
    assert served.partition("r").log_end == 1
    with pytest.raises(Corrupt, match="acks=0"):
        await served.produce_raw("r", changed(large(), crc=1), acks=0)


def test_an_empty_request_has_an_empty_answer(served: Served) -> None:
    for version in range(3, 14):
        reply = served.send(served.produce_body({"acks": 1, "topic_data": []}, version), version)
        assert read_answer(PRODUCE, version, reply).responses == ()


def test_good_and_bad_in_one_request(served: Served) -> None:
    parts = [
        {"index": 0, "records": GOOD},
        {"index": 1, "records": WRONG["checksum"][0]},
        {"index": 7, "records": GOOD},
        {"index": 0, "records": GOOD},
    ]
    topics = [{"name": "t", "partition_data": parts}, {"name": "none", "partition_data": parts[:1]}]
    reply = served.send(served.produce_body({"acks": -1, "topic_data": topics}, 9), 9)
    first, second = read_answer(PRODUCE, 9, reply).responses
    assert [(p.index, code(p), p.base_offset) for p in first.partition_responses] == [
        (0, "none", 0),
        (1, "corrupt_message", -1),
        (7, "unknown_topic_or_partition", -1),
        (0, "none", 3),
    ]
    assert [code(p) for p in second.partition_responses] == ["unknown_topic_or_partition"]


def test_a_disk_that_fails_is_a_storage_error_without_details(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert code(served.produce("t", GOOD)) == "none"
    for error in (OSError(5, "Input/output error", "/a/path"), DiskFull("no room in /a/path")):

        def fail(*_: Any, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr("anabranch.base.disk.File.append", fail)
        answer = served.produce("t", GOOD)
        assert code(answer) == "kafka_storage_error"
        assert "/a/path" not in (answer.error_message or "") or isinstance(error, DiskFull)
    monkeypatch.undo()
    assert served.produce("t", GOOD).base_offset == 3


async def test_logs_are_opened_a_few_at_a_time(served: Served) -> None:
    served.topic("wide", partitions=60)
    parts = [{"index": index, "records": bytes(records(f"{index}"))} for index in range(61)]
    body = served.produce_body({"acks": -1, "topic_data": [{"name": "wide", "partition_data": parts}]}, 9)
    others: list[int] = []

    async def somebody_else() -> None:
        while True:
            others.append(len(list(served.host.open_replicas())))
            await asyncio.sleep(0)

    task = asyncio.ensure_future(somebody_else())
    answer = read_answer(PRODUCE, 9, await served.send(body, 9))
    task.cancel()
    assert max(after - before for before, after in pairwise(others)) <= 17
    codes = [code(part) for part in answer.responses[0].partition_responses]
    assert codes == ["none"] * 60 + ["unknown_topic_or_partition"]
    assert contents(served.partition("wide", 59).log) == [(0, b"59")]
    assert isinstance(served.send(body, 9), tuple), "now they are open"


async def test_logs_that_cannot_be_opened(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    served.topic("wide", partitions=60)

    def full(*_: Any, **__: Any) -> None:
        raise DiskFull("no room")

    monkeypatch.setattr("anabranch.base.disk.DirectDisk.write_whole", full)
    parts = [{"index": index, "records": GOOD} for index in range(60)]
    body = served.produce_body({"acks": -1, "topic_data": [{"name": "wide", "partition_data": parts}]}, 9)
    answer = read_answer(PRODUCE, 9, await served.send(body, 9))
    assert {code(part) for part in answer.responses[0].partition_responses} == {"kafka_storage_error"}


# --- the short way of producers that repeat themselves


def repeated(served: Served, version: int = 9) -> bytes:
    """The body of a request that has a lane."""
    topic = {"name": "t", "topic_id": served.ids["t"], "partition_data": [{"index": 0, "records": GOOD}]}
    body = served.produce_body({"acks": -1, "topic_data": [topic]}, version)
    for _ in range(2):
        served.send(body, version)
    return body


@pytest.mark.parametrize("version", [8, 9, 13])
def test_a_repeated_request_cut_anywhere_is_corrupt_or_refused(served: Served, version: int) -> None:
    body = repeated(served, version)
    end = served.partition("t").log_end
    for size in range(len(body)):
        try:
            reply = served.send(body[:size], version)
        except Corrupt:
            continue
        told = read_answer(PRODUCE, version, reply).responses
        assert all(code(p) != "none" or size >= len(body) - 1 for t in told for p in t.partition_responses)
    assert served.partition("t").log_end - end <= 3, "tags at the end are nothing that a batch needs"


@pytest.mark.parametrize("version", [8, 9, 13])
def test_a_repeated_request_with_any_byte_changed(served: Served, version: int) -> None:
    body = repeated(served, version)
    for at in range(len(body)):
        for value in (0x00, 0x01, 0x7F, 0x80, 0xFF, body[at] ^ 1):
            mangled = bytearray(body)
            mangled[at] = value
            try:
                reply = served.send(bytes(mangled), version)
            except Corrupt:
                continue
            if reply is not None:
                with suppress(InvalidUnicode):  # a name is told as it was asked for
                    read_answer(PRODUCE, version, reply)
    log = served.partition("t").log
    assert {value for _, value in contents(log)} == {b"a", b"b", b"c"}


def test_a_repeated_request_follows_the_topic(served: Served) -> None:
    body = repeated(served)
    served.delete("t")
    told = read_answer(PRODUCE, 9, served.send(body, 9)).responses[0].partition_responses[0]
    assert code(told) == "unknown_topic_or_partition"
    served.topic("t", cleanup_policy=("compact",))
    told = read_answer(PRODUCE, 9, served.send(body, 9)).responses[0].partition_responses[0]
    assert code(told) == "invalid_record"
    served.host.configure_topic(
        served.host.topic("t").name, LogConfig(message_timestamp_type="LogAppendTime")
    )
    told = read_answer(PRODUCE, 9, served.send(body, 9)).responses[0].partition_responses[0]
    assert (code(told), told.base_offset) == ("none", 0)
    assert told.log_append_time is not None


def test_lanes_do_not_mix_up_topics_partitions_or_acks(served: Served) -> None:
    served.topic("u", partitions=2)
    for turn in range(3):
        for topic in ("t", "u"):
            for partition in (0, 1):
                for acks in (1, -1, 0):
                    reply = served.produce_raw(topic, GOOD, partition=partition, acks=acks)
                    if acks == 0:
                        assert reply is None
                        continue
                    (response,) = read_answer(PRODUCE, 9, reply).responses
                    (told,) = response.partition_responses
                    assert (response.name, told.index) == (topic, partition)
                    assert told.base_offset == turn * 9 + (0 if acks == 1 else 3)


def test_lanes_of_one_connection_are_few(served: Served) -> None:
    for timeout in range(3000):
        topic = {"name": "t", "partition_data": [{"index": 0, "records": GOOD}]}
        body = served.produce_body({"acks": -1, "timeout": timeout, "topic_data": [topic]}, 9)
        served.send(body, 9)
    assert len(served.peer.lanes._lanes) <= 256


def test_ids_that_are_names_and_names_that_are_ids(served: Served) -> None:
    """16 bytes of a name are not an id."""
    name = UUID(int=1000).bytes.decode("latin-1")
    assert code(served.produce(name, GOOD, version=12)) == "unknown_topic_or_partition"
