"""A member of a consumer group, as a process: it reads, writes down what it has read, then commits.

    group_members.py --client aiokafka --bootstrap ADDRESS --topic T --group G --journal FILE

A line of the journal is a time, of the clock that all processes of the machine share, and what happened:

    owns GENERATION P ...   whenever what it owns changes; before it says so to the group, if it owns less
    read P OFFSET           for each record, before it is committed
    refused ERROR           a commit that was; it is tried again
    anew ERROR              the client has given up, and another one takes its place
    fenced                  another process is this static member now; it ends
    left                    it was told to end (SIGTERM), and has left the group
"""

import argparse
import asyncio
import os
import signal
import struct
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

SESSION_MS = 6_000 if os.environ.get("ANABRANCH_SOAK") else 4_000
"""Longer where members are many for long: one that gets no processor for this long is out, and rightly."""
HEARTBEAT_MS = 300
POLL_MS = 10_000
BACKOFF_MS = 50
_METADATA = struct.Struct("=7si")
_BEFORE_ANOTHER_S = 0.2


class Fenced(Exception):
    """Another process is this static member now."""


class GivenUp(Exception):
    """The client is of no use any more."""


class Journal:
    def __init__(self, path: Path) -> None:
        self._file = path.open("w", buffering=1)
        self._owned: set[int] = set()
        self._generation = -1

    def gained(self, partitions: Iterable[int], generation: int) -> None:
        self._owned |= set(partitions)
        self._generation = generation
        self._owns()

    def lost(self, partitions: Iterable[int]) -> None:
        """Nothing is written twice: clients tell of what they give up in the end as well."""
        if lost := self._owned & set(partitions):
            self._owned -= lost
            self._owns()

    def lost_all(self) -> None:
        self.lost(set(self._owned))

    def _owns(self) -> None:
        self._write(f"owns {self._generation} {' '.join(map(str, sorted(self._owned)))}")

    def read(self, records: Iterable[tuple[int, int]]) -> None:
        now = f"{time.monotonic():.6f}"
        self._file.write("".join(f"{now} read {partition} {offset}\n" for partition, offset in records))

    def committed(self, offsets: dict[int, int]) -> None:
        """What was read is, by partition; of clients that say so."""

    def refused(self, error: Exception) -> None:
        self._write(f"refused {type(error).__name__} {error}")

    def anew(self, error: Exception) -> None:
        self._write(f"anew {error}")

    def fenced(self) -> None:
        self._write("fenced")

    def left(self) -> None:
        self._write("left")

    def _write(self, what: str) -> None:
        self._file.write(f"{time.monotonic():.6f} {what}".replace("\n", " ").rstrip() + "\n")


Stopping = Callable[[], bool]


def with_confluent(args: argparse.Namespace, journal: Journal, stopping: Stopping) -> None:
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
        "max.poll.interval.ms": args.poll_ms,
        "log_level": 0,
    }
    if args.instance:
        conf["group.instance.id"] = args.instance
    if args.protocol == "classic":
        conf |= {
            "session.timeout.ms": args.session_ms,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "partition.assignment.strategy": args.assignor,
        }

    def gained(consumer: ck.Consumer, places: list[ck.TopicPartition]) -> None:
        # librdkafka tells the generation only inside what it passes on to producers.
        _, generation = _METADATA.unpack_from(consumer.consumer_group_metadata())
        journal.gained([place.partition for place in places], generation)

    def lost(_: ck.Consumer, places: list[ck.TopicPartition]) -> None:
        journal.lost(place.partition for place in places)

    consumer = ck.Consumer(conf)
    consumer.subscribe([args.topic], on_assign=gained, on_revoke=lost, on_lost=lost)
    is_behind = False
    try:
        while not stopping():
            messages = consumer.consume(500, 0.1)
            for error in (message.error() for message in messages):
                if error is not None and (fatal := _fatal(error)) is not None:
                    raise fatal
            records = [message for message in messages if message.error() is None]
            journal.read((record.partition(), record.offset()) for record in records)
            if records or is_behind:
                try:
                    done = consumer.commit(asynchronous=False)
                    is_behind = False
                    journal.committed({one.partition: one.offset for one in done if one.error is None})
                except ck.KafkaException as error:
                    is_behind = error.args[0].code() != ck.KafkaError._NO_OFFSET  # its partitions were taken
                    journal.refused(error)
    finally:
        journal.lost_all()
        consumer.close()


def _fatal(error: Any) -> Exception | None:
    """What ends a client for good, if the error does.  librdkafka puts the reason into words only."""
    import confluent_kafka as ck

    if not error.fatal() and error.code() != ck.KafkaError._FATAL:
        return None
    return Fenced() if "Static consumer fenced" in error.str() else GivenUp(error.str())


def with_kafka_python(args: argparse.Namespace, journal: Journal, stopping: Stopping) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas the old way
        from kafka import ConsumerRebalanceListener, KafkaConsumer
        from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
        from kafka.coordinator.assignors.range import RangePartitionAssignor
        from kafka.errors import FencedInstanceIdError, KafkaError, KafkaTimeoutError, RetriableError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            journal.lost(place.partition for place in revoked)

        def on_partitions_assigned(self, assigned: Any) -> None:
            generation = consumer._coordinator._generation.generation_id
            journal.gained((place.partition for place in assigned), generation)

        def on_partitions_lost(self, lost: Any) -> None:
            journal.lost(place.partition for place in lost)

    assignors = {"range": RangePartitionAssignor, "cooperative-sticky": CooperativeStickyAssignor}
    consumer = KafkaConsumer(
        bootstrap_servers=args.bootstrap,
        group_id=args.group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        partition_assignment_strategy=(assignors[args.assignor],),
        session_timeout_ms=args.session_ms,
        heartbeat_interval_ms=HEARTBEAT_MS,
        max_poll_interval_ms=args.poll_ms,
        group_instance_id=args.instance or None,
        reconnect_backoff_max_ms=4 * BACKOFF_MS,
        fetch_max_wait_ms=100,
    )
    consumer.subscribe([args.topic], listener=Listener())
    is_behind = False
    try:
        while not stopping():
            try:
                found = consumer.poll(timeout_ms=100)
            except (RetriableError, KafkaTimeoutError):  # its polls may raise while the broker is away
                continue
            journal.read((place.partition, one.offset) for place, batch in found.items() for one in batch)
            if found or is_behind:
                try:
                    consumer.commit()
                    is_behind = False
                except FencedInstanceIdError:
                    raise
                except KafkaError as error:
                    is_behind = True
                    journal.refused(error)
    except FencedInstanceIdError:
        raise Fenced from None
    finally:
        journal.lost_all()
        consumer.close()


async def _with_aiokafka(args: argparse.Namespace, journal: Journal, stopping: Stopping) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            journal.lost(place.partition for place in revoked)

        def on_partitions_assigned(self, assigned: Any) -> None:
            if not over.is_set():  # a rebalance may end while the consumer stops: nobody reads any more
                generation = consumer._coordinator.generation
                journal.gained((place.partition for place in assigned), generation)

    over = asyncio.Event()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=args.bootstrap,
        group_id=args.group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        partition_assignment_strategy=(RangePartitionAssignor,),
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
    try:
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
    finally:
        over.set()
        journal.lost_all()
        await consumer.stop()


def with_aiokafka(args: argparse.Namespace, journal: Journal, stopping: Stopping) -> None:
    asyncio.run(_with_aiokafka(args, journal, stopping))


CLIENTS = {"confluent": with_confluent, "kafka-python": with_kafka_python, "aiokafka": with_aiokafka}


def be_member(args: argparse.Namespace, journal: Journal, stopping: Stopping) -> None:
    """With one client after the other, until told to stop."""
    while not stopping():
        try:
            CLIENTS[args.client](args, journal, stopping)
        except GivenUp as error:
            journal.anew(error)
            time.sleep(_BEFORE_ANOTHER_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--client", choices=CLIENTS, required=True)
    parser.add_argument("--protocol", choices=("classic", "consumer"), default="classic")
    parser.add_argument("--assignor", default="range", help="of the classic protocol")
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
    try:
        be_member(args, journal, lambda: bool(told))
    except Fenced:
        journal.fenced()
    else:
        journal.left()


if __name__ == "__main__":
    main()
