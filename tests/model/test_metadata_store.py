"""Random changes, faults and crashes against a dictionary.

Each step sends a handful of changes at once, from two sessions, so they share a frame of the journal.  The
model does them one after the other.  A crash keeps what was durable and any part of what was on its way: the
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
from anabranch.meta.store import (
    MUST_NOT_EXIST,
    Check,
    Create,
    Delete,
    MetadataStore,
    Operation,
    Put,
    parent_of,
)
from tests.support.metadata import contents
from tests.unit.meta.faulty_disk import FaultyDisk

SEEDS = range(400 if os.environ.get("ANABRANCH_SOAK") else 40)
STEPS = 60
NOBODY, FIRST, SECOND = 0, 1, 2
NAMES = ["/a", "/b", "/a/x", "/a/y", "/a/x/1", "/a/x/2", "/b/x"]


class Model:
    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, int, int]] = {}  # data, version, session if it is ephemeral
        self.counts: dict[str, int] = {}

    def copy(self) -> "Model":
        other = Model()
        other.nodes, other.counts = dict(self.nodes), dict(self.counts)
        return other

    def shown(self) -> dict[str, tuple[bytes, int]]:
        return {path: (data, version) for path, (data, version, _) in self.nodes.items()}

    def without(self, *sessions: int) -> "Model":
        """After those sessions are over."""
        other = self.copy()
        other.nodes = {path: node for path, node in self.nodes.items() if node[2] not in sessions}
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
        self.nodes[parent] = (b"", 0, NOBODY)

    def put(self, path: str, data: bytes, expected: int | None) -> int:
        if path not in self.nodes:
            if expected is not None and expected >= 0:
                raise Conflict(path)
            self.make_parents(path)
            self.nodes[path] = (data, 0, NOBODY)
            return 0
        _, version, owner = self.nodes[path]
        if expected == MUST_NOT_EXIST:
            raise Exists(path)
        if expected is not None and expected != version:
            raise Conflict(path)
        self.nodes[path] = (data, version + 1, owner)
        return version + 1

    def create(self, path: str, data: bytes, owner: int, sequential: bool) -> str:
        if path in self.nodes and not sequential:
            raise Exists(path)
        self.make_parents(path)
        if sequential:
            parent = parent_of(path)
            number = self.counts.get(parent, 0)
            self.counts[parent] = number + 1
            path = f"{path}{number:010d}"
        self.nodes[path] = (data, 0, owner)
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

    def check(self, path: str, version: int) -> None:
        if path not in self.nodes or self.nodes[path][1] != version:
            raise Conflict(path)


class Step:
    """One random change, for the store and for the model alike."""

    def __init__(self, chance: random.Random, model: Model, session: int, is_part: bool = False) -> None:
        self.session = session
        self.path = chance.choice([*NAMES, *model.nodes])
        self.data = chance.randbytes(chance.choice([0, 3, 40]))
        self.kind = chance.choice(["put", "put", "put", "create", "delete", "check" if is_part else "multi"])
        self.expected = chance.choice([None, None, MUST_NOT_EXIST, 0, 1, 2])
        if self.kind == "delete" and self.expected == MUST_NOT_EXIST:
            self.expected = None
        self.ephemeral = chance.random() < 0.5
        self.sequential = chance.random() < 0.3
        if is_part and self.kind in ("put", "check") and (self.expected is None or self.kind == "check"):
            self.expected = chance.choice([0, 1])
        parts = chance.randint(0, 4) if self.kind == "multi" else 0
        self.parts = [Step(chance, model, session, is_part=True) for _ in range(parts)]

    def on_model(self, model: Model) -> object:
        if self.kind == "put":
            return model.put(self.path, self.data, self.expected)
        if self.kind == "create":
            return model.create(
                self.path, self.data, self.session if self.ephemeral else NOBODY, self.sequential
            )
        if self.kind == "multi":
            return [part.on_model(model) for part in self.parts]
        if self.kind == "check":
            assert self.expected is not None
            return model.check(self.path, self.expected)
        return model.delete(self.path, self.expected)

    def as_operation(self) -> Operation:
        if self.kind == "create":
            return Create(self.path, self.data, self.ephemeral, self.sequential)
        if self.kind == "delete":
            return Delete(self.path, self.expected)
        assert self.expected is not None
        return (
            Check(self.path, self.expected)
            if self.kind == "check"
            else Put(self.path, self.data, self.expected)
        )

    async def on_store(self, store: MetadataStore) -> object:
        if self.kind == "put":
            return await store.put(self.path, self.data, self.expected)
        if self.kind == "create":
            return await store.create(
                self.path, self.data, ephemeral=self.ephemeral, sequential=self.sequential
            )
        if self.kind == "multi":
            return await store.multi([part.as_operation() for part in self.parts])
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


async def real_outcomes(steps: list[Step], sessions: dict[int, EmbeddedStore]) -> list[object]:
    changes = (step.on_store(sessions[step.session]) for step in steps)
    outcomes = await asyncio.gather(*changes, return_exceptions=True)
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
    sessions = {FIRST: store, SECOND: store.new_session()}
    for _ in range(STEPS):
        steps = [Step(chance, model, chance.choice(list(sessions))) for _ in range(chance.randint(1, 6))]
        fault = chance.random()
        before, durable_before, inode = model.copy(), path.stat().st_size, path.stat().st_ino
        disk.room_bytes = 5 if fault < 0.10 else None
        disk.failing_syncs = 1 if 0.10 <= fault < 0.15 else 0
        expected, real = expected_outcomes(steps, model), await real_outcomes(steps, sessions)
        disk.room_bytes = None
        if any(isinstance(outcome, type) and issubclass(outcome, Unavailable) for outcome in real):
            assert fault < 0.15
            model = before
        else:
            assert real == expected
        disk.failing_syncs = 0
        assert dict(contents(await store.scan("/"))) == model.shown()
        rewritten = path.stat().st_ino != inode
        left = crash(path, chance, disk.durable_bytes[path] if rewritten else durable_before)
        survivor = EmbeddedStore.open(left, FaultyDisk())
        survived = dict(contents(survivor.tree.scan("/")))
        assert survived in (before.without(FIRST, SECOND).shown(), model.without(FIRST, SECOND).shown())
        await survivor.close()
        end = chance.random()
        if end < 0.2:
            await sessions[SECOND].close()
            model = model.without(SECOND)
            assert dict(contents(await store.scan("/"))) == model.shown()
            if end < 0.1:
                await store.close()
                model = model.without(FIRST)
                store = sessions[FIRST] = EmbeddedStore.open(path, disk)
                assert dict(contents(await store.scan("/"))) == model.shown()
            sessions[SECOND] = store.new_session()
    for session in sessions.values():
        await session.close()
