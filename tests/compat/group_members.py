"""A member of a consumer group, as a process: it reads, writes down what it has read, then commits.

    group_members.py --client aiokafka --bootstrap ADDRESS --topic T --group G --journal FILE

The journal has a line "owns P ..." whenever that changes, "read P OFFSET" for each record before it is
committed, "refused ERROR" for a commit that was; it is tried again.  The member goes on until SIGTERM, leaves
the group, and writes "left".
"""

import argparse
import asyncio
import signal
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

SESSION_MS = 2_000
HEARTBEAT_MS = 300
POLL_MS = 10_000
BACKOFF_MS = 50


class Journal:
    def __init__(self, path: Path) -> None:
        self._file = path.open("w", buffering=1)
        self._owned: set[int] = set()

    def gained(self, partitions: Iterable[int]) -> None:
        self._owned |= set(partitions)
        self._owns()

    def lost(self, partitions: Iterable[int]) -> None:
        self._owned -= set(partitions)
        self._owns()

    def _owns(self) -> None:
        self._file.write(f"owns {' '.join(map(str, sorted(self._owned)))}\n")

    def read(self, records: Iterable[tuple[int, int]]) -> None:
        self._file.write("".join(f"read {partition} {offset}\n" for partition, offset in records))

    def refused(self, error: Exception) -> None:
        self._file.write(f"refused {type(error).__name__} {error}\n".replace("\n", " ") + "\n")

    def left(self) -> None:
        self._file.write("left\n")


def with_confluent(args: argparse.Namespace, journal: Journal, stopping: Callable[[], bool]) -> None:
    import confluent_kafka as ck

    conf: dict[str, Any] = {
        "bootstrap.servers": args.bootstrap,
        "group.id": args.group,
        "group.protocol": args.protocol,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "reconnect.backoff.ms": BACKOFF_MS,
        "reconnect.backoff.max.ms": 4 * BACKOFF_MS,
        "fetch.wait.max.ms": 100,
        "log_level": 0,
    }
    if args.instance:
        conf["group.instance.id"] = args.instance
    if args.protocol == "classic":
        conf |= {
            "session.timeout.ms": args.session_ms,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "max.poll.interval.ms": args.poll_ms,
            "partition.assignment.strategy": args.assignor,
        }
    consumer = ck.Consumer(conf)
    consumer.subscribe(
        [args.topic],
        on_assign=lambda _, places: journal.gained(place.partition for place in places),
        on_revoke=lambda _, places: journal.lost(place.partition for place in places),
        on_lost=lambda _, places: journal.lost(place.partition for place in places),
    )
    is_behind = False
    while not stopping():
        records = [record for record in consumer.consume(500, 0.1) if record.error() is None]
        journal.read((record.partition(), record.offset()) for record in records)
        if records or is_behind:
            try:
                consumer.commit(asynchronous=False)
                is_behind = False
            except ck.KafkaException as error:
                is_behind = error.args[0].code() != ck.KafkaError._NO_OFFSET  # its partitions were taken
                journal.refused(error)
    consumer.close()


def with_kafka_python(args: argparse.Namespace, journal: Journal, stopping: Callable[[], bool]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas the old way
        from kafka import ConsumerRebalanceListener, KafkaConsumer
        from kafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            journal.lost(place.partition for place in revoked)

        def on_partitions_assigned(self, assigned: Any) -> None:
            journal.gained(place.partition for place in assigned)

        def on_partitions_lost(self, lost: Any) -> None:
            journal.lost(place.partition for place in lost)

    consumer = KafkaConsumer(
        bootstrap_servers=args.bootstrap,
        group_id=args.group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=args.session_ms,
        heartbeat_interval_ms=HEARTBEAT_MS,
        max_poll_interval_ms=args.poll_ms,
        group_instance_id=args.instance or None,
        reconnect_backoff_max_ms=4 * BACKOFF_MS,
        fetch_max_wait_ms=100,
    )
    consumer.subscribe([args.topic], listener=Listener())
    is_behind = False
    while not stopping():
        found = consumer.poll(timeout_ms=100)
        journal.read((place.partition, one.offset) for place, batch in found.items() for one in batch)
        if found or is_behind:
            try:
                consumer.commit()
                is_behind = False
            except KafkaError as error:
                is_behind = True
                journal.refused(error)
    consumer.close()


async def _with_aiokafka(args: argparse.Namespace, journal: Journal, stopping: Callable[[], bool]) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            journal.lost(place.partition for place in revoked)

        def on_partitions_assigned(self, assigned: Any) -> None:
            journal.gained(place.partition for place in assigned)

    consumer = AIOKafkaConsumer(
        bootstrap_servers=args.bootstrap,
        group_id=args.group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=args.session_ms,
        heartbeat_interval_ms=HEARTBEAT_MS,
        max_poll_interval_ms=args.poll_ms,
        rebalance_timeout_ms=args.poll_ms,
        group_instance_id=args.instance or None,
        fetch_max_wait_ms=100,
    )
    consumer.subscribe([args.topic], listener=Listener())
    await consumer.start()
    is_behind = False
    while not stopping():
        found = await consumer.getmany(timeout_ms=100)
        journal.read((place.partition, one.offset) for place, batch in found.items() for one in batch)
        if found or is_behind:
            try:
                await consumer.commit()
                is_behind = False
            except KafkaError as error:
                is_behind = True
                journal.refused(error)
    await consumer.stop()


def with_aiokafka(args: argparse.Namespace, journal: Journal, stopping: Callable[[], bool]) -> None:
    asyncio.run(_with_aiokafka(args, journal, stopping))


CLIENTS = {"confluent": with_confluent, "kafka-python": with_kafka_python, "aiokafka": with_aiokafka}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--client", choices=CLIENTS, required=True)
    parser.add_argument("--protocol", choices=("classic", "consumer"), default="classic")
    parser.add_argument("--assignor", default="range", help="of confluent's classic protocol")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--instance", default="", help="group.instance.id: a static member")
    parser.add_argument("--session-ms", type=int, default=SESSION_MS)
    parser.add_argument("--journal", type=Path, required=True)
    args = parser.parse_args()
    args.poll_ms = max(POLL_MS, args.session_ms)
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda signum, frame: told.append(signum))
    journal = Journal(args.journal)
    CLIENTS[args.client](args, journal, lambda: bool(told))
    journal.left()


if __name__ == "__main__":
    main()
