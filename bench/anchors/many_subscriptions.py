"""Many Pulsar topics with a subscription each: what they cost when nobody uses them, and after a restart.

    python bench/anchors/many_subscriptions.py --topics 10000

Topics are made by use (a producer sends one message, a consumer acknowledges it), then everybody goes.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import pulsar
from process import cpu_s, idle_cpu_percent, rss_mb
from servers import Ours

IDLE_S = 20.0


def client_of(broker: Ours) -> pulsar.Client:
    return pulsar.Client(broker.pulsar, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull))


def use(broker: Ours, topics: range) -> None:
    """Make, write and read each of `topics` once."""
    client = client_of(broker)
    for number in topics:
        consumer = client.subscribe(f"many-{number}", "s")
        producer = client.create_producer(f"many-{number}")
        producer.send(b"x")
        consumer.acknowledge(consumer.receive(5000))
        producer.close()
        consumer.close()
    client.close()


def measure(folder: Path, count: int) -> dict[str, Any]:
    report: dict[str, Any] = {"topics": count}
    with Ours(folder) as broker:
        use(broker, range(1))
        before_mb = rss_mb(broker.pid)
        began, cpu = time.monotonic(), cpu_s(broker.pid)
        use(broker, range(1, count))
        report["seconds_to_use_all"] = round(time.monotonic() - began, 1)
        report["cpu_ms_a_topic"] = round((cpu_s(broker.pid) - cpu) / count * 1000, 2)
        report["rss_mb"] = round(rss_mb(broker.pid), 1)
        report["kb_a_topic"] = round((rss_mb(broker.pid) - before_mb) * 1024 / count, 1)
        report["idle_cpu_percent"] = round(idle_cpu_percent(broker.pid, IDLE_S), 2)
        report["seconds_to_stop"] = round(broker.stop(), 1)
        report["seconds_to_start"] = round(broker.start(), 2)
        report["rss_mb_after_restart"] = round(rss_mb(broker.pid), 1)
        report["idle_cpu_percent_after_restart"] = round(idle_cpu_percent(broker.pid, IDLE_S), 2)
        client = client_of(broker)
        began = time.monotonic()
        client.subscribe("many-17", "s").close()
        report["seconds_to_first_subscribe"] = round(time.monotonic() - began, 2)
        client.close()
    return report


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--out", type=Path, metavar="FILE")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        report = measure(Path(temporary), args.topics)
    print(json.dumps(report, indent=1))
    if args.out:
        args.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
