"""Cost of translation: what it takes of the broker when consumers of one protocol read the other's data.

    python bench/crossing.py [--rounds 5] [--records 150000] [--out bench/results/DATE-crossing.json]

Records of 100 B with a key, in batches of 1,000, not compressed.  A round writes them to a new topic with one
protocol's producer and has them read three times: by the other protocol's reader, for whom they are
translated; by another one, for whom they have been; and by one of the same protocol.  The first is to get
200,000 records per second and core at least, and the second is to be free of the cost.

`records_per_core_s` is records by the broker's CPU seconds, `us` the CPU a record; medians of the rounds.
How long the reader took says more about the client.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pulsar

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench" / "anchors")]

from process import cpu_s, rss_mb  # noqa: E402
from run import machine  # noqa: E402

from tests.compat.crossing import made_topic  # noqa: E402
from tests.support.broker import BrokerProcess  # noqa: E402

VALUE = b"x" * 100
BATCH = 1000
TARGET = 200_000

Read = Callable[[BrokerProcess, pulsar.Client, str, int], None]


def kafka_writes(broker: BrokerProcess, client: pulsar.Client, topic: str, count: int) -> None:
    settings = {"linger.ms": 1000, "batch.num.messages": BATCH, "queue.buffering.max.messages": count + 1}
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, **settings})
    for number in range(count):
        producer.produce(topic, VALUE, key=b"key%d" % (number % 100))
    producer.flush(60)


def pulsar_writes(broker: BrokerProcess, client: pulsar.Client, topic: str, count: int) -> None:
    producer = client.create_producer(
        topic,
        batching_enabled=True,
        batching_max_messages=BATCH,
        batching_max_allowed_size_in_bytes=1 << 20,
        batching_max_publish_delay_ms=1000,
        block_if_queue_full=True,
    )
    for number in range(count):
        producer.send_async(VALUE, None, partition_key=f"key{number % 100}")
    producer.flush()
    producer.close()


def kafka_reads(broker: BrokerProcess, client: pulsar.Client, topic: str, count: int) -> None:
    consumer = ck.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "bench"})
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    while count > 0:
        count -= len(consumer.consume(min(count, 10_000), timeout=5))
    consumer.close()


def pulsar_reads(broker: BrokerProcess, client: pulsar.Client, topic: str, count: int) -> None:
    reader = client.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=10_000)
    for _ in range(count):
        reader.read_next(20_000)
    reader.close()


WAYS: dict[str, tuple[Read, Read, Read]] = {
    "Kafka to Pulsar": (kafka_writes, pulsar_reads, kafka_reads),
    "Pulsar to Kafka": (pulsar_writes, kafka_reads, pulsar_reads),
}


def measure(
    broker: BrokerProcess, client: pulsar.Client, way: str, count: int
) -> dict[str, dict[str, float]]:
    write, cross, same = WAYS[way]
    topic = made_topic(broker, "bench")
    write(broker, client, topic, count)
    found = {}
    for name, read in (("first", cross), ("second", cross), ("same protocol", same)):
        before, started = cpu_s(broker.pid), time.monotonic()
        read(broker, client, topic, count)
        took_s, cpu = time.monotonic() - started, cpu_s(broker.pid) - before
        found[name] = {
            "records_per_core_s": round(count / max(cpu, 0.01)),
            "us": round(cpu / count * 1e6, 2),
            "records_s": round(count / took_s),
        }
    return found


def summary(way: str, rounds: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    row: dict[str, Any] = {"name": way, "rounds": rounds}
    for reader in rounds[0]:
        row[reader] = {
            figure: statistics.median(found[reader][figure] for found in rounds)
            for figure in rounds[0][reader]
        }
    row["target"] = f">= {TARGET}"
    row["met"] = row["first"]["records_per_core_s"] >= TARGET
    return row


def main() -> None:
    shown = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=shown)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=150_000)
    parser.add_argument("--out", type=Path, help="also write JSON")
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as temporary, BrokerProcess(Path(temporary)) as broker:
        client = pulsar.Client(broker.pulsar, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
        for way in WAYS:
            row = summary(way, [measure(broker, client, way, args.records) for _ in range(args.rounds)])
            rows.append(row)
            for reader in ("first", "second", "same protocol"):
                told = row[reader]
                rate = f"{told['records_per_core_s']:>12,.0f} records/s a core"
                print(f"{way}, {reader:14} {rate} {told['us']:>6.2f} us", flush=True)
        client.close()
        peak_mb = round(rss_mb(broker.pid), 1)
    if args.out:
        report = {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": "python " + " ".join(sys.argv),
            "machine": machine(),
            "rows": rows,
            "broker_rss_mb": peak_mb,
        }
        args.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
