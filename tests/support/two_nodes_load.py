"""Load on a topic of two nodes, and what must be true of it afterwards.

    async with Load(nodes, "moved", partitions=3) as load:
        ...                                # leaders move
    await load.check()                     # acknowledged: there, once, in order; what readers saw: still so

For each partition there are producers with sequence numbers and two requests on their way each, a writer of
transactions, and a reader of either isolation.  All go on until what they began is done, however often they
are refused; what a transaction writes goes to the leader itself, as its coordinator would have it.  Besides
there is a real client with transactions over all partitions for each of the two protocols, which commits an
offset with each of them.
"""

import asyncio
from typing import Any, Self

from anabranch.base.clock import SystemClock
from anabranch.base.errors import AnabranchError
from anabranch.client.aio import AsyncClient
from anabranch.client.answers import check
from anabranch.client.destinations import ANY, Leader, TopicPartition
from anabranch.client.requests import FETCH, INIT_PRODUCER_ID, PRODUCE, Request
from anabranch.client.visible import Aborted, visible_batches, whole_batches
from anabranch.partition.partition_log import Appended
from anabranch.records.control import Marker
from anabranch.records.record import iter_records
from anabranch.wire.kafka.schema import ErrorCode
from tests.support.logs import records
from tests.support.transactions_over_wire import WireProducer, committed_offset
from tests.support.two_nodes import TwoNodes

_PRODUCERS = 2
_ON_THEIR_WAY = 2
_PAUSE_S = 0.005
_FIRST_TRANSACTIONAL_ID = 900_000
WIRE = ("wire", "wire-second")  # transactional ids, and groups


class Load:
    def __init__(self, nodes: TwoNodes, topic: str, partitions: int) -> None:
        self.nodes = nodes
        self._topic = topic
        self._places = [TopicPartition(topic, index) for index in range(partitions)]
        self._over = False
        self._clients: list[AsyncClient] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.acknowledged: dict[TopicPartition, dict[bytes, list[int]]] = {
            place: {} for place in self._places
        }
        """By partition and producer, the offset of each of its records, in order."""
        self.aborted: dict[TopicPartition, set[bytes]] = {place: set() for place in self._places}
        self.committed_offsets = dict.fromkeys(WIRE, -1)
        self._seen: dict[TopicPartition, dict[int, bytes]] = {place: {} for place in self._places}
        self._committed: dict[TopicPartition, list[bytes]] = {place: [] for place in self._places}

    async def __aenter__(self) -> Self:
        for place in self._places:
            for number in range(_PRODUCERS):
                self._begin(self._produce(self._client(), place, b"p%d" % number))
            self._begin(self._transact(place, b"t"))
            for committed in (False, True):
                self._begin(self._read(self._client(), place, committed=committed))
        for name in WIRE:
            self._begin(self._transact_over_wire(self._client(), name, second=name == WIRE[1]))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._over = True
        try:
            if kind is None:
                async with asyncio.timeout(60):
                    await asyncio.gather(*self._tasks)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for client in self._clients:
                client.close()

    def _client(self) -> AsyncClient:
        client = self.nodes.client("c")
        self._clients.append(client)
        return client

    def _begin(self, work: Any) -> None:
        self._tasks.append(asyncio.create_task(work))

    # --- writing

    async def _produce(self, client: AsyncClient, place: TopicPartition, name: bytes) -> None:
        values = {"transactional_id": None, "transaction_timeout": 0, "producer_id": -1, "producer_epoch": -1}
        id = (await client.send(ANY, Request(INIT_PRODUCER_ID, values))).producer_id
        offsets = self.acknowledged[place][name] = []
        free = asyncio.Semaphore(_ON_THEIR_WAY)
        settled = asyncio.Event()
        settled.set()
        number, now_ms = 0, SystemClock().now_ms()
        async with asyncio.TaskGroup() as sending:
            while not self._over:
                await free.acquire()
                count = 1 + number % 3
                values_of = [f"{name.decode()}.{n}" for n in range(number, number + count)]
                fields = {"producer_id": id, "producer_epoch": 0, "base_sequence": number}
                batch = records(*values_of, timestamp=now_ms + 10 * number, **fields)
                before, settled = settled, asyncio.Event()
                sending.create_task(
                    self._store(client, place, batch, offsets, (before, settled, free, count))
                )
                if not number:
                    await settled.wait()  # whom a leader does not know may begin anywhere
                number += count
                await asyncio.sleep(_PAUSE_S)

    async def _store(
        self, client: AsyncClient, place: TopicPartition, batch: bytearray, offsets: list[int], turn: Any
    ) -> None:
        """Send `batch` until it is stored.  What is out of order waits for the one before it."""
        before, settled, free, count = turn
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
            answer = await client.send(Leader(place), Request(PRODUCE, values), 60)
            stored = answer.responses[0].partition_responses[0]
            if stored.error_code != ErrorCode.out_of_order_sequence_number:
                break
            assert not is_next, f"{place}: all before is acknowledged: {stored.error_message}"
            await before.wait()
        check(stored.error_code, f"{place}")
        await before.wait()
        offsets += range(stored.base_offset, stored.base_offset + count)
        settled.set()
        free.release()

    async def _transact(self, place: TopicPartition, name: bytes) -> None:
        """Transactions of three batches; every third is aborted."""
        id, sequence, number = _FIRST_TRANSACTIONAL_ID + place.partition, 0, 0
        offsets = self.acknowledged[place][name] = []
        while not self._over:
            for _ in range(3):
                value = f"{name.decode()}.{sequence}"
                fields = {"producer_id": id, "producer_epoch": 0, "base_sequence": sequence}
                fields["timestamp"] = SystemClock().now_ms()
                appended = await self._at_leader(
                    place,
                    lambda leader, value=value, fields=fields: leader.append(
                        memoryview(records(value, transactional=True, **fields)), -1
                    ),
                )
                offsets.append(appended.base_offset)
                if number % 3 == 2:
                    self.aborted[place].add(value.encode())
                sequence += 1
            marker = Marker(number % 3 != 2, 0)
            await self._at_leader(place, lambda leader, marker=marker: leader.end_transaction(id, 0, marker))
            number += 1
            await asyncio.sleep(_PAUSE_S)

    async def _transact_over_wire(self, client: AsyncClient, name: str, *, second: bool) -> None:
        """Transactions of a record in each partition, and an offset; every third is aborted."""
        producer = WireProducer(client, name, second=second)
        await producer.introduce()
        number = 0
        while not self._over:
            is_committed = number % 3 != 2
            value = f"{name}.{number}"
            for place in self._places:
                offset = await producer.write(place, value)
                self.acknowledged[place].setdefault(name.encode(), []).append(offset)
                if not is_committed:
                    self.aborted[place].add(value.encode())
            await producer.commit_offset(name, self._places[0], number)
            await producer.end(commit=is_committed)
            if is_committed:
                self.committed_offsets[name] = number
            number += 1

    async def _at_leader(self, place: TopicPartition, write: Any) -> Appended:
        """Written, and safe."""
        while True:
            for node in self.nodes.nodes.values():
                try:
                    appended: Appended = write(node.parts.host.partition(*place))
                    if appended.acknowledged is not None:
                        await appended.acknowledged
                except AnabranchError:
                    continue
                return appended
            await asyncio.sleep(_PAUSE_S)

    # --- reading

    async def _read(self, client: AsyncClient, place: TopicPartition, *, committed: bool) -> None:
        offset = 0
        while not self._over:
            offset = await self._fetch(client, place, offset, committed=committed)

    async def _fetch(
        self, client: AsyncClient, place: TopicPartition, offset: int, *, committed: bool
    ) -> int:
        """What is there from `offset` on is noted.  Where to go on."""
        part = {
            "partition": place.partition,
            "current_leader_epoch": -1,
            "fetch_offset": offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": 1 << 16,
        }
        values = {
            "replica_id": -1,
            "max_wait": 50,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "isolation_level": int(committed),
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic": place.topic, "partitions": [part]}],
            "forgotten_topics_data": [],
            "rack_id": "",
        }
        answer = (await client.send(Leader(place), Request(FETCH, values))).responses[0].partitions[0]
        check(answer.error_code, f"{place}: a fetch at {offset}")
        stored = list(whole_batches(answer.records or b""))
        end = stored[-1].header.last_offset + 1 if stored else offset
        limit = answer.last_stable_offset if committed else answer.high_watermark
        assert end <= max(limit, offset), f"{place}: {end} was given, {limit} is the end"
        aborted = [Aborted(one.producer_id, one.first_offset) for one in answer.aborted_transactions or ()]
        for batch in visible_batches(answer.records or b"", stored, aborted if committed else ()):
            payload = bytes(memoryview(answer.records)[batch.start : batch.end])
            for record in iter_records(batch.header, payload):
                if record.offset >= offset:
                    self._note(place, record.offset, bytes(record.value or b""), committed=committed)
        return end

    def _note(self, place: TopicPartition, offset: int, value: bytes, *, committed: bool) -> None:
        known = self._seen[place].setdefault(offset, value)
        assert known == value, f"{place}: offset {offset} was {known!r} and is {value!r}"
        if committed:
            self._committed[place].append(value)

    # --- afterwards

    @property
    def least_acknowledged(self) -> int:
        """Records of the producer that got the fewest through; those over the wire are slower."""
        wire = {name.encode() for name in WIRE}
        return min(
            len(one)
            for producers in self.acknowledged.values()
            for name, one in producers.items()
            if name not in wire
        )

    async def check(self) -> None:
        client = self.nodes.client("c")
        try:
            for place in self._places:
                await self._check(client, place)
            for group, number in self.committed_offsets.items():
                assert await committed_offset(client, group, self._places[0]) == number
        finally:
            client.close()

    async def _check(self, client: AsyncClient, place: TopicPartition) -> None:
        before = dict(self._seen[place])
        self._seen[place] = {}
        read_before, self._committed[place] = self._committed[place], []
        for committed in (False, True):
            offset, end = -1, 0
            while offset != end:
                offset, end = end, await self._fetch(client, place, end, committed=committed)
        found = self._seen[place]
        gone = {offset: value for offset, value in before.items() if found.get(offset) != value}
        assert not gone, f"{place}: readers saw what is not there: {gone}"
        assert len(set(found.values())) == len(found), f"{place}: something is there twice"
        for name, offsets in self.acknowledged[place].items():
            mine = [offset for offset, value in sorted(found.items()) if value.startswith(name + b".")]
            assert mine == offsets, f"{place}: of {name!r}"
            assert [found[offset] for offset in mine] == [b"%s.%d" % (name, n) for n in range(len(mine))]
        shown = [value for _, value in sorted(found.items()) if value not in self.aborted[place]]
        assert self._committed[place] == shown, f"{place}: committed"
        assert read_before == shown[: len(read_before)], f"{place}: what a committed reader saw"
