"""Exactly once, the Pulsar way: applications that copy in transactions die, and their broker does.

Two applications share a subscription.  Each takes a few messages, sends each to two topics and acknowledges
them, all in one transaction, and commits it, or now and then aborts it, or goes without a word.  The broker
is killed under way.  In the end readers of both protocols find every input once in each output.

4 kills; 40 with ANABRANCH_SOAK=1.
"""

import asyncio
import os
import random
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pulsar
import pytest

from anabranch.wire.pulsar.commands_pb2 import BaseCommand
from tests.compat.crossing import kafka_reads, pulsar_reads
from tests.support.broker import BrokerProcess
from tests.support.pulsar_socket import SocketClient, connected
from tests.support.pulsar_transactions import Refused, Transacting

KILLS = 40 if os.environ.get("ANABRANCH_SOAK") else 4
SEED = int(os.environ.get("ANABRANCH_SEED", "7"))
INPUTS_A_KILL = 150
TIMEOUT_MS = 4000
DIGITS = 6
OUTPUTS = ("out-a", "out-b")
C = BaseCommand
SHARED = 1
LOST = (ConnectionError, asyncio.IncompleteReadError, TimeoutError)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, {"transactionCoordinatorEnabled": "true"}) as running:
        yield running


class Copier:
    def __init__(self, broker: BrokerProcess, seed: int) -> None:
        self._broker = broker
        self._chance = random.Random(seed)
        self.committed = 0

    async def run(self) -> None:
        """Until it is cancelled, through whatever becomes of the broker."""
        while True:
            with suppress(*LOST, Refused):
                async with connected(self._broker.pulsar) as client:
                    await self._copy(client)
            await asyncio.sleep(0.05)

    async def _copy(self, client: SocketClient) -> None:
        who = Transacting(client)
        for id, topic in enumerate(OUTPUTS):
            await who.produce(id, topic)
        await who.consume(9, "in", kind=SHARED, permits=10)
        while True:
            txn = await who.begin(timeout_ms=TIMEOUT_MS)
            for _ in range(self._chance.randint(1, 5)):
                said = await client.message()
                assert said.entry is not None
                client.tell(C.FLOW, consumer_id=9, message_permits=1)
                for id in range(len(OUTPUTS)):
                    await who.send(txn, id, bytes(said.entry[-DIGITS:]))
                await who.ack(txn, 9, said.command.message.message_id)
            fate = self._chance.random()
            if fate < 0.05:
                return  # without a word: its time runs out
            commit = fate > 0.2
            await who.end(txn, commit=commit)
            self.committed += commit


async def fill(broker: BrokerProcess, numbers: Iterator[int], inputs: int) -> None:
    async with connected(broker.pulsar) as client:
        who = Transacting(client)
        await who.produce(1, "in")
        for _ in range(inputs):
            await who.plain(1, b"%0*d" % (DIGITS, next(numbers)))


async def drained(broker: BrokerProcess) -> None:
    """Return when the subscription has nothing left, and no transaction is open."""
    async with asyncio.timeout(180):
        async with connected(broker.pulsar) as client:
            who = Transacting(client)
            await who.consume(1, "in", kind=SHARED, permits=0)
            while True:
                answer = await client.ask(C.CONSUMER_STATS, consumer_id=1, request_id=next(who.requests))
                said = answer.consumer_stats_response
                assert not said.HasField("error_code"), said.error_message
                if said.msg_backlog == 0:
                    return
                await asyncio.sleep(0.1)


def read(broker: BrokerProcess, topic: str, expected: int) -> tuple[list[int], list[int]]:
    """What readers of both protocols find."""
    settings = {"isolation.level": "read_committed"}
    by_kafka = [int(message.value() or b"") for message in kafka_reads(broker, topic, expected, **settings)]
    client = pulsar.Client(broker.pulsar, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull))
    by_pulsar = [int(message.data()) for message in pulsar_reads(client, topic, expected)]
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    more = 0
    while reader.has_message_available():
        reader.read_next(30_000)
        more += 1
    client.close()
    assert more == expected
    return by_kafka, by_pulsar


@pytest.mark.timeout(600)
async def test_every_input_once(broker: BrokerProcess) -> None:
    chance, numbers = random.Random(SEED), count()
    async with connected(broker.pulsar) as client:  # before the first input
        who = Transacting(client)
        # Outputs that nobody subscribes to are not kept for readers who come later.
        for id, topic in enumerate(("in", *OUTPUTS)):
            await who.consume(id, topic, kind=SHARED, permits=0)
    copiers = [Copier(broker, SEED + number) for number in range(2)]
    tasks = [asyncio.ensure_future(copier.run()) for copier in copiers]
    loop = asyncio.get_running_loop()
    try:
        for _ in range(KILLS):
            await fill(broker, numbers, INPUTS_A_KILL)
            await asyncio.sleep(chance.random() * 0.5)
            broker.kill()
            await loop.run_in_executor(None, broker.start)
        await fill(broker, numbers, 20)
        await drained(broker)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    inputs = next(numbers)
    assert sum(copier.committed for copier in copiers) > KILLS
    for topic in OUTPUTS:
        by_kafka, by_pulsar = await loop.run_in_executor(None, read, broker, topic, inputs)
        assert sorted(by_kafka) == list(range(inputs))
        assert by_pulsar == by_kafka
