"""Kafka's verifiable producer and consumers on three brokers of ours, one of which is killed with -9 in the
middle and started again: nothing lost, nothing twice.

One producer (idempotent, `acks=all`) counts up, at a steady rate; two groups read beside it, one of either
protocol.  The broker that is killed leads a third of the partitions and coordinates both groups.

    every number was acknowledged, and is in the log once, in order within its partition
    a group was given every offset from 0 to the end, with the value that was acknowledged there
    (more than once only where it had not committed: the consumer says what it was given)
"""

import json
import subprocess
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clusters import OurCluster, wait_for
from failover import GROUP, coordinated, create, is_at_rest
from side_by_side import java

TOPIC = "counted"
REPLICAS = [[2, 3, 1], [3, 1, 2], [1, 2, 3]]
VICTIM = 2
RECORDS, RECORDS_A_SECOND = 15_000, 500
PATIENCE_S = 120.0
PROTOCOLS = ("classic", "consumer")

Place = tuple[int, int]


class Wrong(Exception):
    """Something was lost, or came twice."""


class Verifiable:
    """A client in a process of its own, which prints a line of JSON per event."""

    def __init__(self, folder: Path, name: str, tool: str, arguments: str) -> None:
        self._file = folder / f"{name}.json"
        with self._file.open("wb") as out:
            self._process = subprocess.Popen(
                java(tool, f"{arguments} --topic {TOPIC}".split()), stdout=out, stderr=subprocess.STDOUT
            )

    def events(self, name: str) -> list[dict[str, Any]]:
        lines = self._file.read_text(errors="replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and f'"{name}"' in line]

    def until(self, name: str, holds: Callable[[list[dict[str, Any]]], bool], doing: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not holds(self.events(name)):
            if time.monotonic() > deadline or self._process.poll() not in (None, 0):
                raise Wrong(f"{doing} does not end:\n{self._file.read_text(errors='replace')[-2000:]}")
            time.sleep(0.25)

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def run() -> None:
    with tempfile.TemporaryDirectory() as temporary, OurCluster(Path(temporary)) as cluster:
        folder = Path(temporary)
        wait_for(cluster.bootstrap, is_at_rest)
        create(cluster.bootstrap, TOPIC, REPLICAS)
        at = f"--bootstrap-server {cluster.bootstrap}"
        groups = {protocol: coordinated(cluster, GROUP, VICTIM) for protocol in PROTOCOLS}
        consumers = [
            Verifiable(
                folder,
                protocol,
                "VerifiableConsumer",
                f"{at} --group-id {group} --group-protocol {protocol} --reset-policy earliest --verbose",
            )
            for protocol, group in groups.items()
        ]
        load = f"{at} --max-messages {RECORDS} --throughput {RECORDS_A_SECOND} --acks -1"
        producer = Verifiable(folder, "producer", "VerifiableProducer", load)
        try:
            producer.until(ACKED, lambda acks: len(acks) > RECORDS // 3, "the first third")
            cluster.kill(VICTIM)
            print(f"  broker {VICTIM} is killed", flush=True)
            producer.until(ACKED, lambda acks: len(acks) > 2 * RECORDS // 3, "the second third")
            cluster.restart(VICTIM)
            print(f"  broker {VICTIM} is started again", flush=True)
            producer.until("tool_data", bool, "the last third")
            acked = acknowledged(producer)
            for protocol, consumer in zip(PROTOCOLS, consumers, strict=True):
                consumer.until(READ, lambda read: len(places(read)) >= len(acked), f"reading as {protocol}")
                twice = check(protocol, consumer.events(READ), acked)
                print(f"  {protocol:8} {len(acked)} records read, {twice} of them again", flush=True)
            wait_for(cluster.bootstrap, is_at_rest)
        finally:
            for client in (producer, *consumers):
                client.stop()


ACKED, READ = "producer_send_success", "record_data"


def acknowledged(producer: Verifiable) -> dict[Place, str]:
    """What was acknowledged, by partition and offset: every number once, in order, without a gap."""
    acks = producer.events(ACKED)
    failed = producer.events("producer_send_error")
    values = Counter(ack["value"] for ack in acks)
    if failed or len(values) != RECORDS or max(values.values()) > 1:
        raise Wrong(f"{len(values)} of {RECORDS} acknowledged, {len(acks)} times; failed: {failed[:3]}")
    acked = {(ack["partition"], ack["offset"]): ack["value"] for ack in acks}
    by_partition: dict[int, list[int]] = defaultdict(list)
    offsets: dict[int, list[int]] = defaultdict(list)
    for (partition, offset), value in sorted(acked.items()):
        by_partition[partition].append(int(value))
        offsets[partition].append(offset)
    for partition, numbers in by_partition.items():
        if numbers != sorted(numbers) or offsets[partition] != list(range(len(numbers))):
            raise Wrong(f"{TOPIC}-{partition}: out of order, or with gaps: {offsets[partition][-1]}")
    return acked


def places(read: list[dict[str, Any]]) -> set[Place]:
    return {(record["partition"], record["offset"]) for record in read}


def check(protocol: str, read: list[dict[str, Any]], acked: dict[Place, str]) -> int:
    """How many records came again."""
    wrong = [one for one in read if acked.get((one["partition"], one["offset"])) != one["value"]]
    if wrong or places(read) != set(acked):
        missing = sorted(set(acked) - places(read))
        raise Wrong(f"{protocol}: never acknowledged {wrong[:3]}, never read {missing[:3]}")
    return len(read) - len(acked)
