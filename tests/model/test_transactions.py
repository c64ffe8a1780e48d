"""Transactions against a naive model: several producers, zombies among them, time-outs, kills and restarts.

The model keeps, for each instance of a producer, the values that were accepted since its transaction began.
They are seen once a commit was answered with success, and never otherwise; offsets likewise.  A commit that a
kill cut off may have happened or not, but as a whole.
"""

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from anabranch.base.errors import AnabranchError
from anabranch.groups.effects import Producer
from anabranch.groups.transaction_records import TopicPartition
from tests.support.crashing_disk import Crash, CrashingDisk
from tests.support.transactions import Refused, Transacting

PLACES: list[TopicPartition] = [("out", 0), ("out", 1)]
IDS = ["left", "right"]
TIMEOUT_MS = 10_000


@dataclass
class Instance:
    """A producer that believes to be the one of its transactional id."""

    id: str
    producer: Producer
    version: int
    written: list[tuple[TopicPartition, str]] = field(default_factory=list)
    offset: int | None = None


class World:
    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = Random(seed)
        self.node = Transacting(folder)
        self.instances: list[Instance] = []
        self.seen: set[str] = set()
        self.offsets = dict.fromkeys(IDS, -1)
        self.count = 0
        self.refusals = 0

    # --- steps

    async def introduce(self) -> None:
        id, version = self.chance.choice(IDS), self.chance.choice((0, 2))
        try:
            producer = await self.node.introduce(id, timeout_ms=TIMEOUT_MS)
        except Refused:
            self.refusals += 1
            return
        for other in self.instances:
            if other.id == id:
                self.forget(other)
        self.instances = [*self.instances[-5:], Instance(id, producer, version)]

    async def write(self) -> None:
        one, place = self.anyone(), self.chance.choice(PLACES)
        self.count += 1
        value = f"{one.id}-{self.count}"
        try:
            if self.chance.random() < 0.2:
                self.node.store(one.id, one.producer, place, value)
            else:
                await self.node.write(one.id, one.producer, place, value, version=one.version)
        except (AnabranchError, Refused):
            self.refusals += 1
        else:
            one.written.append((place, value))

    async def commit_offset(self) -> None:
        one = self.anyone()
        self.count += 1
        try:
            await self.node.commit_offset(one.id, one.producer, one.id, self.count, version=one.version)
        except (AnabranchError, Refused):
            self.refusals += 1
        else:
            one.offset = self.count

    async def end(self) -> None:
        one, commit = self.anyone(), self.chance.random() < 0.7
        try:
            producer = await self.node.end(one.id, one.producer, commit=commit, version=one.version)
        except Refused:
            self.refusals += 1
            return
        if commit:
            self.show(one)
        self.forget(one)
        if one.version:
            one.producer = producer

    async def time_out(self) -> None:
        self.node.clock.advance(TIMEOUT_MS + 1)
        await self.node.look_after()
        for one in self.instances:
            self.forget(one)

    async def restart(self) -> None:
        if self.chance.random() < 0.5:
            self.node.stop()
        else:
            self.node.kill()
        self.node.start()
        await self.node.look_after()

    async def die_in_an_end(self) -> None:
        """A kill somewhere in an end.  Every client starts anew: nothing that is open hides the outcome."""
        one, commit = self.anyone(), self.chance.random() < 0.7
        self.node.kill()
        disk = CrashingDisk()
        self.node.start(disk)
        await self.node.look_after()
        disk.arm(self.chance.randrange(12))
        with suppress(Crash, Refused):
            await self.node.end(one.id, one.producer, commit=commit, version=one.version)
        self.node.kill()
        self.node.start()
        await self.node.look_after()
        producers = {id: await self.node.introduce(id, timeout_ms=TIMEOUT_MS) for id in IDS}
        values = {value for _, value in one.written}
        there = {value for place in PLACES for value in self.node.committed(*place)} & values
        assert there in (set(), values), "half a transaction"
        if one.offset is not None and values:
            assert (await self.node.offset(one.id) == one.offset) == (there == values), "half of it"
        if there or (one.offset is not None and await self.node.offset(one.id) == one.offset):
            assert commit
            self.show(one)
        self.instances = [
            Instance(id, producer, self.chance.choice((0, 2))) for id, producer in producers.items()
        ]

    # --- the model

    def anyone(self) -> Instance:
        return self.chance.choice(self.instances[-4:])

    def show(self, one: Instance) -> None:
        self.seen.update(value for _, value in one.written)
        if one.offset is not None:
            self.offsets[one.id] = one.offset

    def forget(self, one: Instance) -> None:
        one.written, one.offset = [], None

    async def check(self) -> None:
        hanging = {value for one in self.instances for _, value in one.written}
        for place in PLACES:
            committed, stored = self.node.committed(*place), self.node.stored(*place)
            assert len(committed) == len(set(committed)), "twice"
            # A reader stops at the first transaction that is open, so it may not see all there is yet.
            limit = next((i for i, value in enumerate(stored) if value in hanging), len(stored))
            assert committed == [value for value in stored[:limit] if value in self.seen]
        for id, offset in self.offsets.items():
            assert await self.node.offset(id) == offset


@pytest.mark.parametrize("seed", range(12))
async def test_random_transactions(tmp_path: Path, seed: int) -> None:
    world = World(tmp_path, seed)
    steps = (
        [world.introduce] * 2
        + [world.write] * 10
        + [world.commit_offset] * 2
        + [world.end] * 4
        + [world.time_out, world.restart, world.die_in_an_end]
    )
    await world.introduce()
    for _ in range(150):
        await world.chance.choice(steps)()
        await world.check()
    assert world.seen
    assert world.refusals
    world.node.kill()
