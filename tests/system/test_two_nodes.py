"""Leaders move between two nodes under load, acks=all: nothing acknowledged is lost, twice, or out of order.

Idempotent producers write with several requests on their way, transactional ones commit and abort, over the
wire and at the leader itself, readers read to the high watermark and to the last stable offset.  Meanwhile
leaders are elected to and fro, some with nobody in between, and the nodes lose each other for a moment.  A
seed chooses; the times are the machine's.

ANABRANCH_SOAK=1 has 500 moves, which take half a minute; ANABRANCH_SEED is another seed.
"""

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest

from anabranch.base.ids import BrokerId, TopicName
from anabranch.log.producers import Producer
from anabranch.meta.image import NO_BROKER
from tests.support.logs import batches
from tests.support.two_nodes import BOTH, TwoNodes, two_nodes
from tests.support.two_nodes_load import Load
from tests.support.waiting import until

SOAK = bool(os.environ.get("ANABRANCH_SOAK"))
MOVES = 500 if SOAK else 60
SEED = int(os.environ.get("ANABRANCH_SEED", "14"))
MOVED = TopicName.from_kafka("moved")
PARTITIONS = 3
SEGMENT = {
    "segment_ms": "2000",
    "file_delete_delay_ms": "0",
    "retention_ms": "-1",
}  # of the records' own time


async def a_move(nodes: TwoNodes, chance: Random) -> None:
    """Another leader, the same in another epoch, or for a moment none."""
    index = chance.randrange(PARTITIONS)
    kind = chance.random()
    if kind < 0.3:
        await nodes.elect(MOVED, index, NO_BROKER)
        await asyncio.sleep(chance.uniform(0, 0.02))
        await nodes.elect(MOVED, index, chance.choice(BOTH))
    elif kind < 0.5:
        await nodes.elect(MOVED, index, chance.choice(BOTH))
        await nodes.elect(MOVED, index, chance.choice(BOTH))
    else:
        leader = nodes.state(MOVED, index).leader
        await nodes.elect(MOVED, index, BrokerId(BOTH[0] if leader == BOTH[1] else BOTH[1]))


async def trouble(nodes: TwoNodes, chance: Random) -> None:
    """Between the nodes, for a moment."""
    kind, moment_s = chance.randrange(4), chance.uniform(0, 0.05)
    if kind == 0:
        nodes.wire.cut("a", "b")
        await asyncio.sleep(moment_s)
        nodes.wire.mend("a", "b")
    elif kind == 1:
        nodes.wire.delay("a", "b", moment_s / 5)
        await asyncio.sleep(moment_s)
        nodes.wire.delay("a", "b", 0.0)
    elif kind == 2:
        nodes.wire.reset("a", "b")


async def move_and_trouble(nodes: TwoNodes, chance: Random, load: Load) -> None:
    for number in range(MOVES):
        await asyncio.sleep(chance.choice((0.0, 0.01, 0.03, 0.06)))
        await until(lambda number=number: load.least_acknowledged >= number / 4)  # type: ignore[misc]
        if chance.random() < 0.3:
            async with asyncio.TaskGroup() as both:
                both.create_task(trouble(nodes, chance))
                both.create_task(a_move(nodes, chance))
        else:
            await a_move(nodes, chance)
    for index in range(PARTITIONS):
        if nodes.state(MOVED, index).leader == NO_BROKER:
            await nodes.elect(MOVED, index, BOTH[0])


async def check_replicas(nodes: TwoNodes) -> None:
    """What one has, the other has: batches, epochs, what is known of producers."""
    for index in range(PARTITIONS):
        await nodes.settled(MOVED, index)
        one, other = nodes.replicas(MOVED, index)
        assert batches(one.log) == batches(other.log)
        ends = [one.log.epochs.end_of(epoch, one.log.log_end) for epoch in range(one.log.epochs.latest + 1)]
        assert ends == [
            other.log.epochs.end_of(epoch, other.log.log_end) for epoch in range(one.log.epochs.latest + 1)
        ]
        assert one.last_stable == other.last_stable == one.log.log_end
        assert producers(one.log.producers) == producers(other.log.producers)


def producers(known: Iterable[Producer]) -> dict[int, object]:
    """Without times: a snapshot has one for each producer, that of a marker if that came last."""
    return {
        one.producer_id: (
            one.epoch,
            [(batch.last_sequence, batch.last_offset, batch.offset_delta) for batch in one.batches],
            one.txn_first_offset,
        )
        for one in known
    }


@pytest.mark.parametrize("seed", [SEED])
async def test_leaders_move_between_two_nodes(tmp_path: Path, seed: int) -> None:
    chance = Random(seed)
    async with two_nodes(tmp_path) as nodes:
        await nodes.create(MOVED, PARTITIONS, **SEGMENT)
        async with Load(nodes, MOVED.kafka, PARTITIONS) as load:
            await move_and_trouble(nodes, chance, load)
        await check_replicas(nodes)
        await load.check()
    async with two_nodes(tmp_path) as nodes:
        await check_replicas(nodes)
        load.nodes = nodes
        await load.check()
