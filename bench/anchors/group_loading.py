"""Coordinator loading: how long 100,000 committed offsets take to be read back after a restart.

The offsets of a hundred groups are committed in bulk, a thousand in a request.  Then the broker is stopped
and started, and asked for all offsets of every group until all are there: from the first answer of the broker
to the last group.  Twice: the groups spread over the 50 partitions of `__consumer_offsets`, and all in
one partition, which is the worst case, since a partition is read by one task.

Ours is to need less than five seconds; Kafka is measured beside it.
"""

import itertools
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import commit_load
import raw
import raw_transactions
from group_rows import make_topic
from servers import Kafka, Ours, wait_for_metadata

OFFSETS, PARTITIONS = 100_000, 1_000
SHARDS = 50
OFFSET_FETCH = 9
TARGET_S = 5.0
TIMEOUT_S = 120.0


def shard_of(group: str) -> int:
    """The partition that Kafka keeps a group in: the absolute value of Java's hash of a string."""
    number = 0
    for character in group:
        number = (31 * number + ord(character)) & 0xFFFFFFFF
    signed = number - (1 << 32) if number >> 31 else number
    return (0 if signed == -(1 << 31) else abs(signed)) % SHARDS


def group_names(*, one_shard: bool) -> list[str]:
    names: Iterator[str] = (f"loaded-{number}" for number in itertools.count())
    if one_shard:
        names = (name for name in names if shard_of(name) == 0)
    return list(itertools.islice(names, OFFSETS // PARTITIONS))


def fill(bootstrap: str, groups: list[str]) -> float:
    """Offsets a second."""
    topic = make_topic(bootstrap, PARTITIONS)
    with raw.Connection(bootstrap) as broker:
        raw_transactions.find(broker, groups[0], 0)  # or Kafka does not make the offsets' topic
    frames = [commit_load.commit_frame(group, topic, PARTITIONS) for group in groups]
    started = time.monotonic()
    for frame in frames:
        commit_load.Committer(bootstrap, frame, 1).socket.close()  # its first request is accepted
    return OFFSETS / (time.monotonic() - started)


def read_back(bootstrap: str, groups: list[str]) -> None:
    """Ask until every group has all its offsets."""
    deadline = time.monotonic() + TIMEOUT_S
    with raw.Connection(bootstrap, TIMEOUT_S) as broker:
        for group in groups:
            while offsets_of(broker, group) < PARTITIONS:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{group} is not loaded after {TIMEOUT_S:.0f} s")
                time.sleep(0.02)


def offsets_of(broker: raw.Connection, group: str) -> int:
    told = {"groups": [{"group_id": group, "topics": None}], "require_stable": False}
    answer = broker.call(OFFSET_FETCH, 8, told).groups[0]
    if answer.error_code in commit_load.LOADING:
        return 0
    return sum(1 for topic in answer.topics for part in topic.partitions if part.committed_offset == 7)


def one(broker: Kafka | Ours, *, one_shard: bool) -> dict[str, float]:
    groups = group_names(one_shard=one_shard)
    broker.start()
    try:
        rate = fill(broker.bootstrap, groups)
        broker.stop()
        if isinstance(broker, Kafka):
            broker.start(keep=True)
        else:
            broker.start()
        wait_for_metadata(broker.bootstrap, 60)
        started = time.monotonic()
        read_back(broker.bootstrap, groups)
        return {"load_s": round(time.monotonic() - started, 3), "filled_offsets_s": round(rate)}
    finally:
        broker.kill()


def measure(folder: Path, rounds: int) -> dict[str, Any]:
    report: dict[str, Any] = {"offsets": OFFSETS, "target_s": TARGET_S, "runs": {}, "median": {}}
    for where in ("spread", "one partition"):
        runs: dict[str, list[dict[str, float]]] = {"kafka": [], "anabranch": []}
        for number in range(rounds):
            place = folder / f"loading-{where.replace(' ', '-')}-{number}"
            (place / "ours").mkdir(parents=True)
            shard = where != "spread"
            runs["anabranch"].append(one(Ours(place / "ours"), one_shard=shard))
            runs["kafka"].append(one(Kafka(place / "kafka"), one_shard=shard))
        report["runs"][where] = runs
        report["median"][where] = {
            name: {key: statistics.median(r[key] for r in results) for key in results[0]}
            for name, results in runs.items()
        }
    worst = max(r["load_s"] for runs in report["runs"].values() for r in runs["anabranch"])
    report["met"] = worst < TARGET_S
    return report


def show(report: dict[str, Any]) -> None:
    for where, median in report["median"].items():
        for name, figures in median.items():
            print(f"    {where:14} {name:10} {figures}")
    print(f"    {'ok' if report['met'] else 'MISS'} (target < {TARGET_S} s)")
