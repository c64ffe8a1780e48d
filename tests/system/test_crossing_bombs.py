"""Batches that grow when they are unpacked, read in the other protocol: bounded memory, others are served."""

import time
from pathlib import Path

import confluent_kafka as ck
import cramjam
import pulsar

from anabranch.records.builder import build_batch
from anabranch.records.compression import ZSTD
from anabranch.records.pulsar_metadata_pb2 import CompressionType
from anabranch.records.record import Record
from tests.compat.clients import raw
from tests.compat.crossing import kafka_reads, made_topic, send_entries
from tests.support.broker import BrokerProcess
from tests.support.entries import entry_of
from tests.support.hostile import Bystander
from tests.support.stalls import Stalls

BOMBS = 3
MOST_MB = 500
MANY = [Record(number, 1, None, b"") for number in range(30_000)]


def peak_mb(pid: int) -> float:
    """The most that a process ever had in memory."""
    [line] = [
        line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM:")
    ]
    return int(line.split()[1]) / 1024


def test_bombs_of_either_protocol(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker, Bystander(broker.bootstrap) as bystander:
        client = pulsar.Client(broker.pulsar, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
        topic = made_topic(broker, "kafka-bombs")
        single = bytes(build_batch([Record(0, 1, b"k", bytes(60 << 20))], codec=ZSTD))
        many = bytes(build_batch(MANY, codec=ZSTD))
        with raw.Connection(broker.bootstrap) as connection:
            for number in range(BOMBS):
                assert raw.produce(connection, topic, single if number else many).error_code == 0
        producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce(topic, b"after")
        assert producer.flush(60) == 0
        zeros = bytes(cramjam.zstd.compress(bytes(60 << 20)))
        bomb = entry_of(zeros, compression=CompressionType.ZSTD, uncompressed_size=60 << 20)
        client.create_producer("pulsar-bombs").send(b"before")
        send_entries(broker, "pulsar-bombs", *[bomb] * BOMBS)

        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        value = b""
        while value != b"after":
            value = reader.read_next(30_000).data()
        found = kafka_reads(broker, "pulsar-bombs", BOMBS + 1, **{"fetch.message.max.bytes": 64 << 20})
        assert [len(message.value() or b"") for message in found] == [6] + [60 << 20] * BOMBS
        assert peak_mb(broker.pid) < MOST_MB, peak_mb(broker.pid)
        with Stalls() as stalls:
            started = time.monotonic()
            bystander.check()
            assert time.monotonic() - started < 10 + stalls.lost_s
        client.close()
