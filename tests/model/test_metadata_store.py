"""Random changes, faults and crashes against a dictionary.

Each step sends a handful of changes at once, so they share a frame of the journal.  The model does
them one after the other.  A crash keeps what was durable and any part of what was on its way: the
store that comes back must be the model before the step or after it, never something in between.
"""

import asyncio
import os
import random
from pathlib import Path

import pytest

from anabranch.base.errors import AnabranchError, Conflict, Exists, Invalid, NotFound, Unavailable
from anabranch.meta import journal
from anabranch.meta.embedded import EmbeddedStore
from anabranch.meta.store import MUST_NOT_EXIST, MetadataStore, Versioned, parent_of
from tests.unit.meta.faulty_disk import FaultyDisk

SEEDS = range(400 if os.environ.get("ANABRANCH_SOAK") else 40)
STEPS = 60
NAMES = ["/a", "/b", "/a/x", "/a/y", "/a/x/1", "/a/x/2", "/b/x"]


class Model:
    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, int, bool]] = {}  # data, version, ephemeral
        self.counts: dict[str, int] = {}

    def copy(self) -> "Model":
        other = Model()
        other.nodes, other.counts = dict(self.nodes), dict(self.counts)
        return other

    def shown(self) -> dict[str, Versioned]:
        return {path: Versioned(data, version) for path, (data, version, _) in self.nodes.items()}

    def restarted(self) -> "Model":
        other = self.copy()
        other.nodes = {path: node for path, node in self.nodes.items() if not node[2]}
        return other

    def make_parents(self, path: str) -> None:
        parent = parent_of(path)
        if parent == "/":
            return
        if parent in self.nodes:
            if self.nodes[parent][2]:
                raise Invalid(parent)
            return
        self.make_parents(parent)
        self.nodes[parent] = (b"", 0, False)

    def put(self, path: str, data: bytes, expected: int | None) -> int:
        if path not in self.nodes:
            if expected is not None and expected >= 0:
                raise Conflict(path)
            self.make_parents(path)
            self.nodes[path] = (data, 0, False)
            return 0
        _, version, ephemeral = self.nodes[path]
        if expected == MUST_NOT_EXIST:
            raise Exists(path)
        if expected is not None and expected != version:
            raise Conflict(path)
        self.nodes[path] = (data, version + 1, ephemeral)
        return version + 1

    def create(self, path: str, data: bytes, ephemeral: bool, sequential: bool) -> str:
        if path in self.nodes and not sequential:
            raise Exists(path)
        self.make_parents(path)
        if sequential:
            parent = parent_of(path)
            number = self.counts.get(parent, 0)
            self.counts[parent] = number + 1
            path = f"{path}{number:010d}"
        self.nodes[path] = (data, 0, ephemeral)
        return path

    def delete(self, path: str, expected: int | None) -> None:
        if path not in self.nodes:
            raise NotFound(path)
        if expected is not None and expected != self.nodes[path][1]:
            raise Conflict(path)
        if any(other.startswith(path + "/") for other in self.nodes):
            raise Conflict(path)
        del self.nodes[path]
        self.counts.pop(path, None)


class Step:
    """One random change, for the store and for the model alike."""

    def __init__(self, chance: random.Random, model: Model) -> None:
        self.path = chance.choice([*NAMES, *model.nodes])
        self.data = chance.randbytes(chance.choice([0, 3, 40]))
        self.kind = chance.choice(["put", "put", "put", "create", "delete"])
        self.expected = chance.choice([None, None, MUST_NOT_EXIST, 0, 1, 2])
        if self.kind == "delete" and self.expected == MUST_NOT_EXIST:
            self.expected = None
        self.ephemeral = chance.random() < 0.5
        self.sequential = chance.random() < 0.3

    def on_model(self, model: Model) -> object:
        if self.kind == "put":
            return model.put(self.path, self.data, self.expected)
        if self.kind == "create":
            return model.create(self.path, self.data, self.ephemeral, self.sequential)
        return model.delete(self.path, self.expected)

    async def on_store(self, store: MetadataStore) -> object:
        if self.kind == "put":
            return await store.put(self.path, self.data, self.expected)
        if self.kind == "create":
            return await store.create(
                self.path, self.data, ephemeral=self.ephemeral, sequential=self.sequential
            )
        return await store.delete(self.path, self.expected)


def expected_outcomes(steps: list[Step], model: Model) -> list[object]:
    outcomes: list[object] = []
    for step in steps:
        before = model.copy()
        try:
            outcomes.append(step.on_model(model))
        except AnabranchError as error:
            model.nodes, model.counts = before.nodes, before.counts
            outcomes.append(type(error))
    return outcomes


async def real_outcomes(steps: list[Step], store: MetadataStore) -> list[object]:
    outcomes = await asyncio.gather(*(step.on_store(store) for step in steps), return_exceptions=True)
    return [type(outcome) if isinstance(outcome, BaseException) else outcome for outcome in outcomes]


def crash(path: Path, chance: random.Random, durable_bytes: int) -> Path:
    """A copy of the journal as a crash might have left it."""
    content = path.read_bytes()
    keep = chance.randint(durable_bytes, len(content))
    left = path.with_name("crashed.journal")
    left.write_bytes(content[:keep] + chance.randbytes(chance.choice([0, 0, 5])))
    return left


@pytest.mark.parametrize("seed", SEEDS)
async def test_the_store_is_a_dictionary(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(journal, "_MIN_REWRITE_BYTES", chance.choice([300, 3000]))
    path, disk, model = tmp_path / "journal", FaultyDisk(), Model()
    store = EmbeddedStore.open(path, disk)
    for _ in range(STEPS):
        steps = [Step(chance, model) for _ in range(chance.randint(1, 6))]
        fault = chance.random()
        before, durable_before, inode = model.copy(), path.stat().st_size, path.stat().st_ino
        disk.room_bytes = 5 if fault < 0.10 else None
        disk.failing_syncs = 1 if 0.10 <= fault < 0.15 else 0
        expected, real = expected_outcomes(steps, model), await real_outcomes(steps, store)
        disk.room_bytes = None
        if any(isinstance(outcome, type) and issubclass(outcome, Unavailable) for outcome in real):
            assert fault < 0.15
            model = before
        else:
            assert real == expected
        disk.failing_syncs = 0
        assert dict(await store.scan("/")) == model.shown()
        rewritten = path.stat().st_ino != inode
        left = crash(path, chance, disk.durable_bytes[path] if rewritten else durable_before)
        survivor = EmbeddedStore.open(left, FaultyDisk())
        survived = dict(survivor.tree.scan("/"))
        assert survived in (before.restarted().shown(), model.restarted().shown())
        await survivor.close()
        if chance.random() < 0.1:
            await store.close()
            model = model.restarted()
            store = EmbeddedStore.open(path, disk)
            assert dict(await store.scan("/")) == model.shown()
    await store.close()
