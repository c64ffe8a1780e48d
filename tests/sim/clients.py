"""Simulated clients: producers that number what they send, and readers, on hosts of their own.

    clients = Clients(world, cluster, history)
    clients.start("orders", 2)             for each partition some of each kind
    await clients.finish()                 they end what they began
    await clients.check()                  what is there in the end

They try for ever: what is refused is sent again until somebody takes it, as it was the first time.
"""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from anabranch.base.errors import AnabranchError, OffsetOutOfRange, Unavailable
from anabranch.client.aio import AsyncClient
from anabranch.client.answers import check
from anabranch.client.destinations import ANY, Leader, To, TopicPartition
from anabranch.client.requests import FETCH, INIT_PRODUCER_ID, PRODUCE, Request
from anabranch.client.settings import Settings
from anabranch.client.visible import Aborted, visible_batches, whole_batches
from anabranch.records.record import iter_records
from anabranch.wire.kafka.schema import ErrorCode
from tests.sim.cluster import SimCluster
from tests.sim.history import UNKNOWN, History, Violation
from tests.sim.world import Machine, SimWorld
from tests.support.logs import records

_ON_THEIR_WAY = 2
_TRY_S = 20.0


class Client:
    """Something on a host of its own that talks to the cluster."""

    def __init__(self, world: SimWorld, cluster: SimCluster, name: str) -> None:
        self.world = world
        self.name = name
        self.machine: Machine = world.machine(name)
        self.machine.start()
        self.random: Random = world.random(f"client {name}")
        brokers = ",".join(f"{host}:9092" for host in cluster.hosts())
        self._settings = Settings(brokers, name, _TRY_S, topics_come_s=_TRY_S)
        self.is_over = False
        self.is_done = False
        self.client = self.new_client()

    def new_client(self) -> AsyncClient:
        return AsyncClient(
            self._settings, self.world.wire.host(self.name), self.machine.clock, Random(self.random.random())
        )

    def run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def do() -> None:
            try:
                await work()
            except Exception as error:  # noqa: BLE001  # none of them is expected
                self.world.failed(error)
            self.is_done = True

        assert self.machine.process is not None
        self.world.loop.run_in(self.machine.process, do())

    async def send(self, to: To, request: Request) -> Any:
        """The answer, whenever somebody gives one."""
        while True:
            try:
                return await self.client.send(to, request)
            except AnabranchError as error:
                if not isinstance(error, Unavailable):
                    self.world.say(self.name, f"{type(error).__name__}: {error}")
                await self.pause(0.5)

    async def pause(self, most_s: float) -> None:
        await asyncio.sleep(self.random.uniform(0, most_s))


class Producer(Client):
    """Numbers what it sends, acks=all, a few requests on their way."""

    def __init__(
        self, world: SimWorld, cluster: SimCluster, name: str, place: TopicPartition, history: History
    ) -> None:
        super().__init__(world, cluster, name)
        self._place = place
        self._history = history.of(place)
        self._history.acknowledged[name] = []
        self._values = ("transactional_id", "transaction_timeout", "producer_id", "producer_epoch")
        self.run(self._produce)

    async def _produce(self) -> None:
        values = dict(zip(self._values, (None, 0, -1, -1), strict=True))
        id = (await self.send(ANY, Request(INIT_PRODUCER_ID, values))).producer_id
        free = asyncio.Semaphore(_ON_THEIR_WAY)
        settled = asyncio.Event()
        settled.set()
        number = 0
        async with asyncio.TaskGroup() as sending:
            while not self.is_over:
                await free.acquire()
                count = self.random.randint(1, 3)
                batch = records(
                    *(f"{self.name}.{n}" for n in range(number, number + count)),
                    timestamp=self.machine.clock.now_ms(),
                    producer_id=id,
                    producer_epoch=0,
                    base_sequence=number,
                )
                before, settled = settled, asyncio.Event()
                sending.create_task(self._store(batch, number, count, (before, settled, free)))
                if not number:
                    await settled.wait()  # whom a leader does not know may begin anywhere
                number += count
                await self.pause(0.02 if self.random.random() < 0.2 else 1.0)

    async def _store(self, batch: bytearray, number: int, count: int, turn: Any) -> None:
        """Send `batch` until it is stored.  What is out of order waits for the one before it."""
        before, settled, free = turn
        place = self._place
        values = {
            "transactional_id": None,
            "acks": -1,
            "timeout": 10_000,
            "topic_data": [
                {"name": place.topic, "partition_data": [{"index": place.partition, "records": batch}]}
            ],
        }
        while True:
            is_next = before.is_set()
            answer = await self.send(Leader(place), Request(PRODUCE, values))
            stored = answer.responses[0].partition_responses[0]
            if stored.error_code != ErrorCode.out_of_order_sequence_number:
                break
            if is_next:
                raise Violation(f"{place}: {self.name}.{number} is out of order, all before is acknowledged")
            await before.wait()
        await before.wait()
        if stored.error_code == ErrorCode.duplicate_sequence_number:
            self._history.stored(self.name, number, UNKNOWN, count)
        else:
            check(stored.error_code, f"{place}: {self.name}.{number}")
            self._history.stored(self.name, number, stored.base_offset, count)
        settled.set()
        free.release()


class Reader(Client):
    """Reads a partition from the beginning to its end, and waits for more."""

    def __init__(
        self,
        world: SimWorld,
        cluster: SimCluster,
        name: str,
        place: TopicPartition,
        history: History,
        *,
        committed: bool,
    ) -> None:
        super().__init__(world, cluster, name)
        self._place = place
        self._history = history.of(place)
        self._committed = committed
        self.found: dict[int, bytes] | None = None
        """Of a second reading, everything there is."""
        self.at = 0
        self.run(self._read)

    async def _read(self) -> None:
        while not self.is_over:
            await self.fetch()
            await self.pause(0.1)

    async def read_again(self) -> None:
        """Everything, from the beginning to where all is known to be safe."""
        self.at, self.found, before = 0, {}, -1
        while self.at != before:
            before = self.at
            await self.fetch()

    async def fetch(self) -> None:
        answer = (await self.send(Leader(self._place), self._request())).responses[0].partitions[0]
        try:
            check(answer.error_code, f"{self._place}: a fetch at {self.at}")
        except OffsetOutOfRange as error:
            self.world.say(self.name, f"out of range: {error}")
            await self.pause(1.0)
            return
        stored = list(whole_batches(answer.records or b""))
        end = stored[-1].header.last_offset + 1 if stored else self.at
        limit = answer.last_stable_offset if self._committed else answer.high_watermark
        if end > max(limit, self.at):
            raise Violation(f"{self._place}: records up to {end} were read, readers stop at {limit}")
        aborted = [Aborted(one.producer_id, one.first_offset) for one in answer.aborted_transactions or ()]
        shown = visible_batches(answer.records or b"", stored, aborted if self._committed else ())
        for batch in shown:
            payload = bytes(memoryview(answer.records)[batch.start : batch.end])
            for record in iter_records(batch.header, payload):
                if record.offset >= self.at:
                    self._note(record.offset, bytes(record.value or b""))
        self.at = end

    def _note(self, offset: int, value: bytes) -> None:
        if self.found is not None:
            self.found[offset] = value
            return
        self._history.note(offset, value, f"reader {self.name}")
        if self._committed:
            self._history.committed.append(value)

    def _request(self) -> Request:
        part = {
            "partition": self._place.partition,
            "current_leader_epoch": -1,
            "fetch_offset": self.at,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": 1 << 16,
        }
        values = {
            "replica_id": -1,
            "max_wait": 50 if self.found is not None else 500,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "isolation_level": int(self._committed),
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic": self._place.topic, "partitions": [part]}],
            "forgotten_topics_data": [],
            "rack_id": "",
        }
        return Request(FETCH, values)


class Clients:
    def __init__(self, world: SimWorld, cluster: SimCluster, history: History) -> None:
        self._world = world
        self._cluster = cluster
        self.history = history
        self.writers: list[Client] = []
        self.readers: dict[TopicPartition, tuple[Reader, Reader]] = {}

    def start(self, topic: str, partitions: int, producers: int = 2) -> None:
        world, cluster, history = self._world, self._cluster, self.history
        for index in range(partitions):
            place = TopicPartition(topic, index)
            for number in range(producers):
                self.writers.append(Producer(world, cluster, f"p{index}{number}", place, history))
            self.readers[place] = (
                Reader(world, cluster, f"r{index}", place, history, committed=False),
                Reader(world, cluster, f"c{index}", place, history, committed=True),
            )

    async def finish(self) -> None:
        """All that was begun is done."""
        for each in self.writers:
            each.is_over = True
        late = "a producer does not get through"
        await self._cluster.until(lambda: all(each.is_done for each in self.writers), late)
        both = [reader for readers in self.readers.values() for reader in readers]
        for reader in both:
            reader.is_over = True
        await self._cluster.until(lambda: all(each.is_done for each in both), "a reader gets no answer")

    async def check(self) -> None:
        shown: dict[TopicPartition, list[bytes]] = {}
        for place, (plain, committed) in self.readers.items():
            for reader in (plain, committed):
                reader.is_done = False
                reader.run(reader.read_again)
            both = (plain, committed)
            await self._cluster.until(
                lambda both=both: all(each.is_done for each in both), f"{place}: no answer"
            )
            assert plain.found is not None
            assert committed.found is not None
            shown[place] = [value for _, value in sorted(committed.found.items())]
            self.history.check(place, plain.found, shown[place])
        self.history.check_transactions(shown)
