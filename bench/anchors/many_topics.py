"""Cost must not grow with what is not touched: a broker with 1,000 topics of 10 partitions beside an empty
one.

Both are ours.  Produce throughput in alternating pairs, then memory, descriptors, idle CPU, and the seconds
from the start after a clean stop to the first answer.
"""

import time
from pathlib import Path
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, NewTopic
from matrix import AT_LEAST, Row
from pairs import ratios, run_load, run_pairs
from process import descriptors, idle_cpu_percent, rss_mb
from servers import Ours

TARGETS = {"rss_mb": 300.0, "restart_s": 5.0}
LOAD = Row("produce 1 KB, 6 partitions", "produce", 300_000, {"--size": "1000", "--partitions": "6"})


class Empty(Ours):
    name = "empty"


class Full(Ours):
    name = "full"


def create_topics(bootstrap: str, topics: int, partitions: int) -> float:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    started = time.monotonic()
    for start in range(0, topics, 100):
        some = range(start, min(start + 100, topics))
        new = [NewTopic(f"many-{i}", partitions, 1) for i in some]
        for future in admin.create_topics(new, request_timeout=120).values():
            future.result(timeout=120)
    return time.monotonic() - started


def touch(bootstrap: str, topics: int, partitions: int) -> None:
    """One record into every partition: each has a segment that is not empty."""
    conf = {"bootstrap.servers": bootstrap, "log_level": 0, "queue.buffering.max.messages": 10**6}
    producer = ck.Producer(conf)
    for i in range(topics):
        for partition in range(partitions):
            producer.produce(f"many-{i}", b"x" * 100, partition=partition)
        producer.poll(0)
    if producer.flush(300):
        raise RuntimeError("could not write to every partition")


def measure(
    folder: Path, rounds: int, share: float, topics: int = 1000, partitions: int = 10
) -> dict[str, Any]:
    (folder / "empty").mkdir(parents=True)
    (folder / "full").mkdir(parents=True)
    with Empty(folder / "empty") as empty, Full(folder / "full") as full:
        created_s = create_topics(full.bootstrap, topics, partitions)
        touch(full.bootstrap, topics, partitions)
        pairs = run_pairs(lambda _: [*LOAD.load(share), "--delete-after"], empty, full, rounds)
        report: dict[str, Any] = {
            "topics": topics,
            "partitions": topics * partitions,
            "create_s": round(created_s, 2),
            "ratios": ratios(pairs, "empty", "full", {"records_s": (AT_LEAST, 0.9)}),
            "rss_mb": round(rss_mb(full.pid), 1),
            "descriptors": descriptors(full.pid),
            "idle_cpu_percent": round(idle_cpu_percent(full.pid, 10), 2),
            "stop_s": round(full.stop(), 2),
        }
        report["restart_s"] = round(full.start(), 2)
        report["rss_after_restart_mb"] = round(rss_mb(full.pid), 1)
        report["after_restart_ok"] = run_load(full, [*LOAD.load(share / 10), "--delete-after"]) is not None
        report["descriptors_after_restart"] = descriptors(full.pid)
        touch(full.bootstrap, topics, partitions)
        full.kill()
        report["restart_after_kill_s"] = round(full.start(), 2)
    report["targets"] = TARGETS
    report["met"] = {key: report[key] <= bound for key, bound in TARGETS.items()}
    return report


def show(report: dict[str, Any]) -> None:
    produce = report["ratios"].get("records_s", {})
    print(f"    produce, full / empty    {produce.get('ratio')}x  met: {produce.get('met')} (target >= 0.9)")
    for key in (
        "rss_mb",
        "restart_s",
        "restart_after_kill_s",
        "stop_s",
        "create_s",
        "descriptors",
        "idle_cpu_percent",
    ):
        bound = f"(target <= {TARGETS[key]})" if key in TARGETS else ""
        verdict = {True: "ok", False: "MISS", None: ""}[report["met"].get(key)]
        print(f"    {key:24} {report[key]}  {verdict} {bound}")
