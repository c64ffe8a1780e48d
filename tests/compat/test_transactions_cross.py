"""Transactions of one protocol as the other's clients see them: by the same log, so all of it or nothing."""

import asyncio
import time
from collections.abc import Callable

import confluent_kafka as ck
import pulsar
import pytest

from tests.compat.crossing import kafka_reads, made_topic
from tests.support.broker import BrokerProcess
from tests.support.pulsar_socket import connected
from tests.support.pulsar_transactions import Refused, Transacting

ENABLED = {"transactionCoordinatorEnabled": "true"}
SHARED = 1
SHORT_MS = 6000  # and long enough for what is done in it, on a machine that stands still for a while


@pytest.fixture
def broker(own_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    return own_broker(ENABLED)


def values(broker: BrokerProcess, topic: str, count: int, level: str) -> list[bytes]:
    found = kafka_reads(broker, topic, count, **{"isolation.level": level})
    return [message.value() or b"" for message in found]


@pytest.mark.plain_broker
async def test_kafka_reads_what_pulsar_committed(broker: BrokerProcess) -> None:
    topic = made_topic(broker, "t", partitions=2)
    async with connected(broker.pulsar) as client:
        who = Transacting(client)
        await who.produce(1, f"{topic}-partition-0")
        committed, aborted = await who.begin(), await who.begin()
        await who.send(committed, 1, b"a")
        await who.send(aborted, 1, b"b", b"c")
        await who.send(committed, 1, b"d", b"e")
        await who.plain(1, b"f")
        await who.end(aborted, commit=False)
        loop = asyncio.get_running_loop()
        uncommitted = await loop.run_in_executor(None, values, broker, topic, 6, "read_uncommitted")
        assert uncommitted == [b"a", b"b", b"c", b"d", b"e", b"f"]
        await who.end(committed, commit=True)
        await who.plain(1, b"g")
        seen = await loop.run_in_executor(None, values, broker, topic, 5, "read_committed")
        assert seen == [b"a", b"d", b"e", b"f", b"g"]


async def test_pulsar_reads_what_kafka_committed(broker: BrokerProcess) -> None:
    topic = made_topic(broker, "t")
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "log_level": 0})

    def write() -> None:
        producer.init_transactions(60)
        for commit in (True, False, True):
            producer.begin_transaction()
            producer.produce(topic, f"{commit}")
            producer.flush(60)
            producer.commit_transaction(60) if commit else producer.abort_transaction(60)
        producer.begin_transaction()
        producer.produce(topic, "open")
        producer.flush(60)

    def read() -> list[bytes]:
        client = pulsar.Client(broker.pulsar, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
        consumer = client.subscribe(
            f"{topic}-partition-0", "s", initial_position=pulsar.InitialPosition.Earliest
        )
        found = [consumer.receive(30_000).data() for _ in range(2)]
        with pytest.raises(pulsar.Timeout):
            consumer.receive(300)
        producer.abort_transaction(60)
        with pytest.raises(pulsar.Timeout):
            consumer.receive(300)
        client.close()
        return found

    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, write)
    assert await loop.run_in_executor(None, read) == [b"True", b"True"]


@pytest.mark.plain_broker
async def test_kafka_lists_pulsars_transactions_and_can_fence_them(broker: BrokerProcess) -> None:
    topic = made_topic(broker, "t")
    async with connected(broker.pulsar) as client:
        who = Transacting(client)
        await who.produce(1, f"{topic}-partition-0")
        txn = await who.begin()
        await who.send(txn, 1, b"a")
        usurper = ck.Producer(
            {"bootstrap.servers": broker.bootstrap, "transactional.id": txn.transactional_id, "log_level": 0}
        )
        await asyncio.get_running_loop().run_in_executor(None, usurper.init_transactions, 60)
        with pytest.raises(Refused):
            await who.end(txn, commit=True)
        await who.plain(1, b"b")
        following = await who.begin()
        assert following.transactional_id != txn.transactional_id
        loop = asyncio.get_running_loop()
        assert await loop.run_in_executor(None, values, broker, topic, 1, "read_committed") == [b"b"]


@pytest.mark.plain_broker
async def test_a_client_that_dies_loses_its_transaction_in_time(broker: BrokerProcess) -> None:
    topic = made_topic(broker, "t")
    name = f"{topic}-partition-0"
    async with connected(broker.pulsar) as client:
        dies = Transacting(client)
        await dies.produce(1, name)
        await dies.plain(1, b"a")
        await dies.consume(2, name, kind=SHARED)
        message, _ = await dies.received()
        began = time.monotonic()
        txn = await dies.begin(timeout_ms=SHORT_MS)
        await dies.send(txn, 1, b"b")
        await dies.ack(txn, 2, message)
    async with connected(broker.pulsar) as client:
        lives = Transacting(client)
        await lives.produce(1, name)
        await lives.consume(2, name, kind=SHARED)
        await lives.plain(1, b"c")
        came = sorted([(await lives.received())[1] for _ in range(2)])
        assert came == [b"a", b"c"]
        assert time.monotonic() - began > SHORT_MS / 1000 - 0.1


@pytest.mark.plain_broker
async def test_a_broker_that_dies_knows_them_again(broker: BrokerProcess) -> None:
    topic = made_topic(broker, "t")
    name = f"{topic}-partition-0"
    async with connected(broker.pulsar) as client:
        who = Transacting(client)
        await who.produce(1, name)
        await who.plain(1, b"a")
        await who.consume(2, name, kind=SHARED)
        message, _ = await who.received()
        first, second, short = await who.begin(), await who.begin(), await who.begin(timeout_ms=SHORT_MS)
        for txn, value in ((first, b"b"), (second, b"c"), (short, b"d")):
            await who.send(txn, 1, value)
        await who.ack(first, 2, message)
    broker.kill()
    broker.start()
    async with connected(broker.pulsar) as client:
        who = Transacting(client)
        await who.consume(2, name, kind=SHARED)
        await who.end(first, commit=True)
        await who.end(second, commit=False)
        assert (await who.received())[1] == b"b"
        await who.produce(1, name)
        await who.plain(1, b"e")
        assert (await who.received())[1] == b"e"
