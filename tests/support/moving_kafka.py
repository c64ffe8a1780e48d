"""Kafka's clients of the test of leaders that move: each notes what it was told, and says what was wrong."""

import asyncio
import itertools
import threading
import time
from collections import defaultdict
from contextlib import suppress

import confluent_kafka as ck
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError
from confluent_kafka.admin import AdminClient, NewTopic

PARTITIONS = 4
KEYS = 20
_QUIET = {"log_level": 0, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}


def create_topics(bootstrap: str, **partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, **_QUIET})
    wanted = [NewTopic(name, count, 1) for name, count in partitions.items()]
    for future in admin.create_topics(wanted).values():
        future.result(timeout=60)


class Sender(threading.Thread):
    """An idempotent producer of numbers; those of one key go to one partition, in order."""

    def __init__(self, bootstrap: str, topic: str, pause_s: float = 0.001) -> None:
        super().__init__(daemon=True)
        self._topic = topic
        self._pause_s = pause_s
        self._producer = ck.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, **_QUIET}
        )
        self.stopping = threading.Event()
        self.acknowledged: dict[tuple[int, int], int] = {}
        self.failed: list[str] = []
        self.sent = 0

    def run(self) -> None:
        for number in itertools.count():
            if self.stopping.is_set():
                break
            key = str(number % KEYS)
            self._producer.produce(self._topic, str(number), key, on_delivery=self._told)
            self._producer.poll(0)
            self.sent = number + 1
            time.sleep(self._pause_s)
        if self._producer.flush(60):
            self.failed.append("not all was sent within a minute")

    def _told(self, error: ck.KafkaError | None, message: ck.Message) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        place = (message.partition() or 0, message.offset() or 0)
        self.acknowledged[place] = int(message.value() or b"")

    def check(self, bootstrap: str) -> None:
        """All that was sent was acknowledged; it is there once, in order, where the answers said."""
        assert not self.failed, self.failed[:3]
        there = {place: int(value) for place, value in read_all(bootstrap, self._topic).items()}
        assert there == self.acknowledged
        assert sorted(there.values()) == list(range(self.sent)), "a record is missing, or there twice"
        by_key = defaultdict(list)
        for _, number in sorted(there.items()):
            by_key[number % KEYS].append(number)
        for numbers in by_key.values():
            assert numbers == sorted(numbers), "the records of a key are out of order"


def read_all(bootstrap: str, topic: str) -> dict[tuple[int, int], bytes]:
    """What is in a topic and committed, by partition and offset."""
    consumer = ck.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "judge", "enable.partition.eof": True, **_QUIET}
    )
    consumer.assign([ck.TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    found: dict[tuple[int, int], bytes] = {}
    ended: set[int | None] = set()
    deadline = time.monotonic() + 60
    while len(ended) < PARTITIONS and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is None:
            continue
        error = message.error()
        if error is None:
            found[message.partition() or 0, message.offset() or 0] = message.value() or b""
        elif error.code() == ck.KafkaError._PARTITION_EOF:
            ended.add(message.partition())
    consumer.close()
    return found


class Reader(threading.Thread):
    """A member of a group: reads, and commits now and then what it has read."""

    def __init__(self, group: str) -> None:
        super().__init__(daemon=True)
        self.group = group
        self.stopping = threading.Event()
        self.got: dict[tuple[int, int], int] = {}
        self.committed: dict[int, int] = {}
        self.wrong: list[str] = []
        self.commits = 0

    def run(self) -> None:
        try:
            self.read()
        except Exception as error:  # noqa: BLE001  the test says it
            self.wrong.append(repr(error))

    def read(self) -> None:
        raise NotImplementedError

    def note(self, partition: int, offset: int, value: bytes) -> None:
        if offset < self.committed.get(partition, 0):
            self.wrong.append(f"{partition}, {offset} came again, {self.committed[partition]} was committed")
        self.got.setdefault((partition, offset), int(value))

    def note_committed(self, ends: dict[int, int]) -> None:
        self.committed |= ends
        self.commits += 1

    def check(self, sent: dict[tuple[int, int], int]) -> None:
        assert not self.wrong, f"{self.group}: {self.wrong[:3]}"
        missing = sent.keys() - self.got.keys()
        assert not missing, f"{self.group}: {len(missing)} of {len(sent)} never came: {sorted(missing)[:5]}"
        assert self.got == sent, f"{self.group}: a record came from where it is not"
        assert self.commits, f"{self.group} could never commit"


class ConfluentReader(Reader):
    """librdkafka's, of either protocol."""

    def __init__(self, bootstrap: str, topic: str, protocol: str) -> None:
        super().__init__(f"readers-{protocol}")
        self._topic = topic
        self._consumer = ck.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": self.group,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **_QUIET,
            }
        )

    def read(self) -> None:
        self._consumer.subscribe([self._topic])
        ends: dict[int, int] = {}
        commit_at = time.monotonic()
        while not self.stopping.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                partition, offset = message.partition() or 0, message.offset() or 0
                self.note(partition, offset, message.value() or b"")
                ends[partition] = offset + 1
            if ends and time.monotonic() > commit_at:
                commit_at = time.monotonic() + 0.3
                self._commit(ends)
                ends = {}
        self._consumer.close()

    def _commit(self, ends: dict[int, int]) -> None:
        places = [ck.TopicPartition(self._topic, partition, end) for partition, end in ends.items()]
        try:
            told = self._consumer.commit(offsets=places, asynchronous=False)
        except ck.KafkaException:  # not committed: it may come again
            return
        self.note_committed({one.partition: one.offset for one in told or [] if one.error is None})


class AsyncioReader(Reader):
    """aiokafka's."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__("readers-aiokafka")
        self._servers = bootstrap
        self._topic = topic

    def read(self) -> None:
        asyncio.run(self._read())

    async def _read(self) -> None:
        consumer = AIOKafkaConsumer(
            self._topic,
            bootstrap_servers=self._servers,
            group_id=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await consumer.start()
        commit_at = time.monotonic()
        while not self.stopping.is_set():
            for messages in (await consumer.getmany(timeout_ms=100)).values():
                for message in messages:
                    self.note(message.partition, message.offset, message.value)
            if time.monotonic() > commit_at:
                commit_at = time.monotonic() + 0.3
                ends = {place: await consumer.position(place) for place in consumer.assignment()}
                with suppress(KafkaError):  # not committed: it may come again
                    await consumer.commit(ends)
                    self.note_committed({place.partition: end for place, end in ends.items()})
        await consumer.stop()
