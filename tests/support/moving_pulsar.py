"""Pulsar's clients of the test of leaders that move: each notes what it was told, and says what was wrong.

`Receipts` speaks the protocol itself, to know what the broker has confirmed: it shares a subscription with
itself, asks for a receipt of everything that it acknowledges, and is told nothing again that has one.
"""

import asyncio
import itertools
import os
import threading
import time
from collections import Counter, defaultdict
from contextlib import suppress

import pulsar

from anabranch.wire.pulsar import commands_pb2 as pb
from anabranch.wire.pulsar.frames import Frame
from tests.support.broker import BrokerProcess
from tests.support.pulsar_socket import SocketClient, connected

C = pb.BaseCommand
KEYS = 10
SHARED = 1
_LOST = (ConnectionError, asyncio.IncompleteReadError, TimeoutError)


def client_of(broker: BrokerProcess) -> pulsar.Client:
    silent = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
    return pulsar.Client(broker.pulsar, logger=silent, operation_timeout_seconds=60)


class Sender(threading.Thread):
    """A producer of numbers with keys, on a topic that deduplicates."""

    def __init__(self, broker: BrokerProcess, topic: str, *, batched: bool, pause_s: float = 0.002) -> None:
        super().__init__(daemon=True)
        self.topic = topic
        self._client = client_of(broker)
        self._producer = self._client.create_producer(
            topic,
            producer_name="counter",
            # Else it counts anew when it comes back before its first receipt, and is taken to repeat itself.
            initial_sequence_id=1,
            send_timeout_millis=0,
            batching_enabled=batched,
            batching_max_publish_delay_ms=5,
            block_if_queue_full=True,
        )
        self._pause_s = pause_s
        self.stopping = threading.Event()
        self.sent = 0
        self.told = Counter[str]()

    def run(self) -> None:
        for number in itertools.count():
            if self.stopping.is_set():
                break
            key = str(number % KEYS)
            self._producer.send_async(
                str(number).encode(), lambda result, _: self.told.update([str(result)]), partition_key=key
            )
            self.sent = number + 1
            time.sleep(self._pause_s)
        self._producer.flush()
        self._client.close()

    def check(self) -> None:
        assert self.told == {str(pulsar.Result.Ok): self.sent}


class Receiver(threading.Thread):
    """A consumer, or several of a subscription that share its messages."""

    def __init__(
        self, name: str, kind: pulsar.ConsumerType, sender: Sender, *, cumulative: bool = False
    ) -> None:
        super().__init__(daemon=True)
        self.name = name
        self._kind = kind
        self._sender = sender
        self._cumulative = cumulative
        self._consumers: list[pulsar.Consumer] = []
        self.stopping = threading.Event()
        self.deliveries: dict[int, int] = {}

    def attach(self, client: pulsar.Client) -> None:
        self._consumers.append(
            client.subscribe(
                self._sender.topic,
                self.name,
                self._kind,
                initial_position=pulsar.InitialPosition.Earliest,
                batch_index_ack_enabled=True,
            )
        )

    @property
    def lacks(self) -> int:
        return self._sender.sent - len(self.deliveries)

    def run(self) -> None:
        threads = [threading.Thread(target=self._receive, args=(one,)) for one in self._consumers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _receive(self, consumer: pulsar.Consumer) -> None:
        while not self.stopping.is_set():
            try:
                message = consumer.receive(timeout_millis=200)
            except pulsar.Timeout:
                continue
            number = int(message.data())
            self.deliveries.setdefault(number, len(self.deliveries))
            with suppress(pulsar.NotConnected, pulsar.AlreadyClosed):
                if self._cumulative:
                    consumer.acknowledge_cumulative(message)
                else:
                    consumer.acknowledge(message)

    def check(self) -> None:
        sent = self._sender.sent
        missing = set(range(sent)) - self.deliveries.keys()
        assert not missing, f"{self.name}: {len(missing)} of {sent} never came: {sorted(missing)[:5]}"
        assert len(self.deliveries) == sent
        if self._kind == pulsar.ConsumerType.Shared:
            return
        keyed = self._kind == pulsar.ConsumerType.KeyShared
        by_key = defaultdict(list)
        for number in sorted(self.deliveries, key=self.deliveries.__getitem__):
            by_key[number % KEYS if keyed else 0].append(number)
        for numbers in by_key.values():
            late = [(a, b) for a, b in itertools.pairwise(numbers) if a > b]
            assert not late, f"{self.name}: messages came out of order: {late[:3]}"


class TopicReader(threading.Thread):
    """A reader: the topic as it is, in order, whatever becomes of its leader."""

    def __init__(self, client: pulsar.Client, topic: str) -> None:
        super().__init__(daemon=True)
        self._reader = client.create_reader(topic, pulsar.MessageId.earliest)
        self.stopping = threading.Event()
        self.read: list[int] = []

    def run(self) -> None:
        while not self.stopping.is_set():
            with suppress(pulsar.Timeout):
                self.read.append(int(self._reader.read_next(200).data()))


_STAYS_SILENT = 7  # of so many messages one is not acknowledged when it comes first


class Receipts(threading.Thread):
    """Two consumers of a shared subscription, and the receipts of what they acknowledge."""

    def __init__(self, broker: BrokerProcess, topic: str) -> None:
        super().__init__(daemon=True)
        self._broker = broker
        self._topic = topic
        self._asked: dict[int, int] = {}
        self._requests = itertools.count(100)
        self._subscribing: dict[int, int] = {}
        self.stopping = threading.Event()
        self.deliveries: Counter[int] = Counter()
        """How often the message at an offset came."""
        self.acknowledged: set[int] = set()
        self.confirmed: set[int] = set()
        self.wrong: list[str] = []
        self.closed = 0

    def run(self) -> None:
        asyncio.run(self._stay())

    async def _stay(self) -> None:
        while not self.stopping.is_set():
            with suppress(*_LOST):
                async with connected(self._broker.pulsar) as client:
                    self._asked.clear()
                    for id in (1, 2):
                        self._subscribe(client, id)
                    await self._listen(client)

    def _subscribe(self, client: SocketClient, id: int) -> None:
        request_id = next(self._requests)
        self._subscribing[request_id] = id
        client.tell(
            C.SUBSCRIBE,
            topic=self._topic,
            subscription="receipts",
            type=SHARED,
            consumer_id=id,
            request_id=request_id,
            initial_position=1,
        )

    async def _listen(self, client: SocketClient) -> None:
        hearing = asyncio.ensure_future(client.wait_for(lambda _: True))
        while not self.stopping.is_set():
            await asyncio.wait((hearing,), timeout=0.2)
            if hearing.done():
                await self._hear(client, hearing.result())
                hearing = asyncio.ensure_future(client.wait_for(lambda _: True))
        hearing.cancel()
        await asyncio.wait((hearing,))

    async def _hear(self, client: SocketClient, said: Frame) -> None:
        command = said.command
        if command.type == C.PING:
            client.tell(C.PONG)
        elif command.type == C.SUCCESS and command.success.request_id in self._subscribing:
            id = self._subscribing.pop(command.success.request_id)
            client.tell(C.FLOW, consumer_id=id, message_permits=50)
        elif command.type == C.ERROR and command.error.request_id in self._subscribing:
            await asyncio.sleep(0.02)
            self._subscribe(client, self._subscribing.pop(command.error.request_id))
        elif command.type == C.CLOSE_CONSUMER:
            self.closed += 1
            self._subscribe(client, command.close_consumer.consumer_id)
        elif command.type == C.MESSAGE:
            self._delivered(client, command.message)
        elif command.type == C.ACK_RESPONSE:
            answered = command.ack_response
            id = self._asked.pop(answered.request_id, None)
            if id is not None and not answered.HasField("error"):
                self.confirmed.add(id)

    def _delivered(self, client: SocketClient, message: pb.Message) -> None:
        id = message.message_id.entry_id
        if id in self.confirmed:
            self.wrong.append(f"{id} came again, its acknowledgement was confirmed")
        self.deliveries[id] += 1
        client.tell(C.FLOW, consumer_id=message.consumer_id, message_permits=1)
        if id % _STAYS_SILENT == 0 and self.deliveries[id] == 1:
            return
        request_id = next(self._requests)
        self._asked[request_id] = id
        self.acknowledged.add(id)
        client.tell(
            C.ACK,
            consumer_id=message.consumer_id,
            type=pb.Ack.Individual,
            message_id=[message.message_id],
            request_id=request_id,
        )
