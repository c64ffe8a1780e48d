"""The same random requests to Apache Kafka and to ours: the same answers, or a seed that shows the
difference.

    python bench/anchors/differential.py [--kafka HOST:PORT] [--seeds 1-20] [--steps 300]

A seed makes two topics on each broker and sends both the same requests, drawn at random: produce (plain,
compressed, idempotent, with lies), fetch at every version (offsets, limits, sessions, epochs), offsets by
time, deletion of records, changes of settings and of partitions, descriptions.  Ids, addresses and times
are taken out of the answers (as in tests/compat/clients/raw_versions.py); the rest must be equal.
"""

import argparse
import gzip
import itertools
import random
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from servers import ROOT, Kafka, Ours

sys.path.insert(0, str(ROOT / "tests" / "compat" / "clients"))
import raw
import raw_versions

BASE_MS = int(time.time()) * 1000 - 3_600_000
SETTINGS = {
    "retention.ms": ("3600000000", "-1", "soon", "-2"),
    "max.message.bytes": ("1000", "100000", "-1", "2000000"),
    "cleanup.policy": ("delete", "compact", "compact,delete", "shred", ""),
    "message.timestamp.type": ("CreateTime", "LogAppendTime", "Whenever"),
    "compression.type": ("producer", "gzip", "rar"),
    "min.insync.replicas": ("1", "2", "0"),
    "segment.bytes": ("1048576", "1", "2147483648"),
    "message.timestamp.after.max.ms": ("3600000", "-1"),
    "no.such.setting": ("1",),
}


class Side:
    """One broker: a connection, and what is its own: topic ids, sessions, producers."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.broker = raw.Connection(bootstrap)
        self.prefix = prefix
        self.ids = {n: raw.create_topic(self.broker, prefix + n, 3) for n in ("one", "two")}
        self.ids["none"] = uuid.UUID(int=99)
        self.producers = [raw.new_producer(self.broker) for _ in range(2)]
        self.session = 0

    def topic(self, name: str) -> str:
        return self.prefix + name


Step = Callable[[Side], Any]


class Steps:
    """Draws requests.  A step holds no broker, so that it can be sent to both."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._sequences: dict[tuple[int, str, int], int] = {}
        self._epoch = 0

    def next(self) -> tuple[str, Step]:
        kinds = [self.produce] * 6 + [self.fetch] * 6 + [self.session_fetch] * 3 + [self.list_offsets] * 3
        kinds += [self.delete_records, self.alter, self.describe, self.epoch_end, self.grow, self.metadata]
        return self._chance.choice(kinds)()

    def _where(self) -> tuple[str, int]:
        names = ["one"] * 5 + ["two"] * 3 + ["none"]
        return self._chance.choice(names), self._chance.choice([0, 0, 0, 1, 2, 7])

    def produce(self) -> tuple[str, Step]:
        chance, (name, partition) = self._chance, self._where()
        count = chance.choice([1, 1, 2, 5, 20])
        values = [chance.randbytes(chance.choice([0, 10, 200, 1500])) for _ in range(count)]
        keys = [b"k%d" % chance.randrange(5) if chance.random() < 0.8 else None for _ in range(count)]
        base_ms = BASE_MS + chance.randrange(100_000)
        records = b"".join(raw.record(i, v, k, i) for i, (v, k) in enumerate(zip(values, keys, strict=True)))
        who, sequence = -1, -1
        if chance.random() < 0.4:
            who = chance.randrange(2)
            expected = self._sequences.get((who, name, partition), 0)
            sequence = max(0, expected + chance.choice([0, 0, 0, 0, -count, 3]))
            if sequence == expected and name != "none" and partition < 3:
                self._sequences[who, name, partition] = expected + count
        attributes = chance.choice([0, 0, 0, 1])
        lie = chance.choice(["", "", "", "", "", "", "crc", "count"])
        if attributes and lie == "count":
            lie = ""  # we do not unpack a batch to count it
        acks, version = chance.choice([-1, 1]), chance.randrange(3, 14)
        payload = gzip.compress(records) if attributes == 1 else records
        label = f"produce v{version} {name}/{partition} {count} records by {who}@{sequence} {lie}"

        def step(side: Side) -> Any:
            data = raw.batch(
                values,
                producer=(side.producers[who], 0, sequence) if who >= 0 else (-1, -1, -1),
                attributes=attributes,
                base_ms=base_ms,
                max_ms=base_ms + count - 1,
                payload=payload,
                crc_off_by=1 if lie == "crc" else 0,
                count=count + 1 if lie == "count" else None,
            )
            told = {"index": partition, "records": data}
            topic = {"name": side.topic(name), "topic_id": side.ids[name], "partition_data": [told]}
            return side.broker.call(
                raw.PRODUCE, version, {"acks": acks, "timeout": 5000, "topic_data": [topic]}
            )

        return label, step

    def _partitions(self) -> list[tuple[str, list[dict[str, Any]]]]:
        chance = self._chance
        topics = []
        for name in chance.sample(["one", "two", "none"], chance.choice([1, 1, 2])):
            partitions = [
                {
                    "partition": p,
                    "fetch_offset": chance.choice([0, 0, 5, chance.randrange(200), -1, 10_000]),
                    "partition_max_bytes": chance.choice([1, 100, 1000, 1 << 20]),
                    "current_leader_epoch": chance.choice([-1, -1, -1, 0, 1]),
                }
                for p in chance.sample([0, 1, 2, 7], chance.choice([1, 2, 3]))
            ]
            topics.append((name, partitions))
        return topics

    def fetch(self) -> tuple[str, Step]:
        chance, topics = self._chance, self._partitions()
        version = chance.randrange(4, 19)
        options = {
            "replica_id": -1,
            "max_wait": 0,
            "min_bytes": chance.choice([0, 1, 10_000]),
            # Nothing between: Kafka counts the bytes of a batch that it cuts, we send whole batches only.
            "max_bytes": chance.choice([1, 50 << 20]),
            "isolation_level": chance.choice([0, 1]),
        }

        def step(side: Side) -> Any:
            told = [
                {"topic": side.topic(name), "topic_id": side.ids[name], "partitions": partitions}
                for name, partitions in topics
            ]
            return side.broker.call(raw.FETCH, version, options | {"topics": told})

        return f"fetch v{version} {topics} {options}", step

    def session_fetch(self) -> tuple[str, Step]:
        chance = self._chance
        fresh = self._epoch == 0 or chance.random() < 0.15
        topics = self._partitions() if fresh or chance.random() < 0.3 else []
        topics = [(name, parts) for name, parts in topics if name != "none"]
        if fresh:  # never empty, also after forgetting: what to do with an empty session is a matter of taste
            topics = [t for t in topics if t[0] == "one"]
            topics.append(("two", [{"partition": 0, "fetch_offset": 0}]))
        for _, partitions in topics:  # and never short of bytes: which partition comes first then is one, too
            for partition in partitions:
                partition["partition_max_bytes"] = 1 << 20
        forgotten = [chance.choice([0, 1, 2])] if not fresh and chance.random() < 0.3 else []
        epoch = 0 if fresh else self._epoch if chance.random() < 0.9 else 77
        if epoch != 77:
            self._epoch = epoch + 1

        def step(side: Side) -> Any:
            told = [
                {"topic_id": side.ids[name], "partitions": partitions, "topic": side.topic(name)}
                for name, partitions in topics
            ]
            gone = [{"topic_id": side.ids["one"], "partitions": forgotten}] if forgotten else []
            request = {
                "max_wait": 0,
                "min_bytes": 1,
                "max_bytes": 50 << 20,
                "session_id": side.session,
                "session_epoch": epoch,
                "topics": told,
                "forgotten_topics_data": gone,
            }
            answer = side.broker.call(raw.FETCH, 17, request)
            if epoch == 0:
                side.session = answer.session_id
            return answer

        return f"session fetch, epoch {epoch} {topics} forgotten {forgotten}", step

    def list_offsets(self) -> tuple[str, Step]:
        chance, (name, partition) = self._chance, self._where()
        at = chance.choice([-1, -2, -3, -4, BASE_MS, BASE_MS + chance.randrange(120_000), 0])
        version = chance.randrange(8 if at == -4 else 7 if at == -3 else 1, 12)
        epoch = chance.choice([-1, -1, 0, 2])

        def step(side: Side) -> Any:
            told = {"partition_index": partition, "timestamp": at, "current_leader_epoch": epoch}
            topic = {"name": side.topic(name), "partitions": [told]}
            return side.broker.call(raw.LIST_OFFSETS, version, {"replica_id": -1, "topics": [topic]})

        return f"list offsets v{version} {name}/{partition} at {at}", step

    def delete_records(self) -> tuple[str, Step]:
        chance, (name, partition) = self._chance, self._where()
        offset = chance.choice([0, 1, 3, chance.randrange(60), -2, 10_000])

        def step(side: Side) -> Any:
            told = {"partition_index": partition, "offset": offset}
            topic = {"name": side.topic(name), "partitions": [told]}
            return side.broker.call(raw.DELETE_RECORDS, 2, {"timeout": 5000, "topics": [topic]})

        return f"delete records {name}/{partition} before {offset}", step

    def alter(self) -> tuple[str, Step]:
        chance, (name, _) = self._chance, self._where()
        key = chance.choice(list(SETTINGS))
        operation = chance.choice([0, 0, 0, 1, 2, 3])
        value = None if operation == 1 else chance.choice(SETTINGS[key])
        only_check = chance.random() < 0.3

        def step(side: Side) -> Any:
            change = {"name": key, "config_operation": operation, "value": value}
            resource = {"resource_type": 2, "resource_name": side.topic(name), "configs": [change]}
            request = {"resources": [resource], "validate_only": only_check}
            answer = side.broker.call(raw.INCREMENTAL_ALTER_CONFIGS, 1, request)
            time.sleep(0.15)  # Kafka applies it after its answer
            return answer

        return f"alter {name} {key} op {operation} {value!r} {only_check=}", step

    def describe(self) -> tuple[str, Step]:
        (name, _) = self._where()

        def step(side: Side) -> Any:
            resource = {"resource_type": 2, "resource_name": side.topic(name), "configuration_keys": None}
            answer = side.broker.call(
                raw.DESCRIBE_CONFIGS, 4, {"resources": [resource], "include_synonyms": True}
            )
            found = raw_versions.shown(answer)
            found["results"][0]["configs"].sort(key=lambda entry: entry["name"])
            for entry in found["results"][0]["configs"]:
                if entry["name"] == "min.insync.replicas":  # KRaft's own (see confluent_admin.py)
                    entry |= {"config_source": 0, "synonyms": []}
            return found

        return f"describe {name}", step

    def epoch_end(self) -> tuple[str, Step]:
        chance, (name, partition) = self._chance, self._where()
        epoch, current = chance.choice([-1, 0, 1, 5]), chance.choice([-1, 0, 3])

        def step(side: Side) -> Any:
            told = {"partition": partition, "leader_epoch": epoch, "current_leader_epoch": current}
            topic = {"topic": side.topic(name), "partitions": [told]}
            return side.broker.call(raw.OFFSET_FOR_LEADER_EPOCH, 4, {"replica_id": -1, "topics": [topic]})

        return f"end of epoch {epoch} of {name}/{partition}, current {current}", step

    def grow(self) -> tuple[str, Step]:
        chance, (name, _) = self._chance, self._where()
        count = chance.choice([1, 3, 0, -1, 9])

        def step(side: Side) -> Any:
            told = {"name": side.topic(name), "count": count}
            request = {"topics": [told], "timeout": 5000, "validate_only": True}
            return side.broker.call(raw.CREATE_PARTITIONS, 3, request)

        return f"grow {name} to {count}", step

    def metadata(self) -> tuple[str, Step]:
        (name, _), version = self._where(), self._chance.randrange(4, 14)

        def step(side: Side) -> Any:
            request = {"topics": [{"name": side.topic(name)}], "allow_auto_topic_creation": False}
            return side.broker.call(raw.METADATA, version, request)

        return f"metadata v{version} {name}", step


def plain(side: Side, answer: Any) -> str:
    """An answer without what is a broker's own, or free: the order of topics, partitions and settings."""
    shown = answer if isinstance(answer, dict) else raw_versions.shown(answer)
    if type(answer).__name__ == "FetchResponse":
        names = {ident: name for name, ident in side.ids.items()}
        rows = []
        for topic in answer.responses:
            name = getattr(topic, "topic", None) or names.get(topic.topic_id, "?")
            for partition in map(raw_versions.shown, topic.partitions):
                partition["aborted_transactions"] = partition["aborted_transactions"] or []
                rows.append((name, partition["partition_index"], sorted(partition.items(), key=str)))
        shown["responses"] = sorted(rows)
    if type(answer).__name__ == "ProduceResponse":
        for partition in shown["responses"][0]["partition_responses"]:
            if partition["error_code"]:  # Kafka fills it in or not, by how far the batch got
                partition["log_start_offset"] = -1
    return str(shown).replace(side.prefix, "")


def run_seed(seed: int, kafka: str, ours: str, steps: int, trace: str = "") -> bool:
    prefix = f"diff-{uuid.uuid4().hex[:8]}-"
    sides = [Side(kafka, prefix), Side(ours, prefix)]
    time.sleep(0.3)
    draw = Steps(seed)
    for number in itertools.count(1):
        if number > steps:
            break
        label, step = draw.next()
        theirs, mine = (plain(side, step(side)) for side in sides)
        if trace and trace in label:
            print(f"{number} {label}\n    {theirs}", flush=True)
        if theirs != mine:
            print(
                f"seed {seed}, step {number}: {label}\n  Apache Kafka {theirs}\n  ours         {mine}",
                flush=True,
            )
            return False
    for side in sides:
        names = [side.topic(name) for name in ("one", "two")]
        side.broker.call(raw.DELETE_TOPICS, 1, {"topic_names": names, "timeout": 5000})
        side.broker.close()
    print(f"seed {seed}: {steps} answers the same", flush=True)
    return True


def main() -> None:
    shown = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=shown)
    parser.add_argument("--kafka", metavar="HOST:PORT", help="a Kafka that runs already")
    parser.add_argument("--seeds", default="1-10", help="one, or FIRST-LAST")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument(
        "--trace", default="", metavar="TEXT", help="also show the steps with this in their label"
    )
    args = parser.parse_args()
    first, _, last = args.seeds.partition("-")
    wrong = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "ours").mkdir()
        kafka = None if args.kafka else Kafka(folder / "kafka")
        if kafka:
            kafka.start()
        try:
            with Ours(folder / "ours") as ours:
                for seed in range(int(first), int(last or first) + 1):
                    at = kafka.bootstrap if kafka else args.kafka
                    wrong += not run_seed(seed, at, ours.bootstrap, args.steps, args.trace)
        finally:
            if kafka:
                kafka.stop()
    sys.exit(f"{wrong} seeds differ" if wrong else 0)


if __name__ == "__main__":
    main()
