"""Random operations by both faces of the registry, against a model that keeps lists."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from anabranch.base.clock import SystemClock
from anabranch.base.disk import DirectDisk
from anabranch.base.errors import AnabranchError, NotFound
from anabranch.base.executors import thread_pool
from anabranch.meta.embedded import EmbeddedStore
from anabranch.schemas.definition import Definition
from anabranch.schemas.registry import Registry
from anabranch.schemas.schema import Schema
from anabranch.schemas.strategy import Rules, Strategy
from anabranch.schemas.subject_deletion import SubjectDeletion
from anabranch.schemas.subject_lists import SubjectLists
from anabranch.schemas.subject_registry import SubjectRegistry
from anabranch.schemas.subject_store import SubjectStore

SUBJECTS = ("a-value", "b-value", "c")
STRING = "STRING"  # of Pulsar's alone
FREELY = Strategy.ALWAYS_COMPATIBLE


def text(number: int) -> str:
    field = {"name": f"f{number}", "type": "int"}
    return json.dumps({"type": "record", "name": "R", "fields": [field]})


class Model:
    """Versions as [what, is deleted, number]; what is a number, or STRING."""

    def __init__(self) -> None:
        self.subjects: dict[str, list[list[Any]]] = {subject: [] for subject in SUBJECTS}
        self.next = dict.fromkeys(SUBJECTS, 0)
        self.ids: dict[int, int] = {}

    def register(self, subject: str, what: Any) -> int:
        for known, is_deleted, number in self.subjects[subject]:
            if known == what and not is_deleted:
                return int(number)
        self.next[subject] += 1
        self.subjects[subject].append([what, False, self.next[subject] - 1])
        if what != STRING:
            self.ids.setdefault(what, len(self.ids) + 1)
        return self.next[subject] - 1

    def shown(self, subject: str, *, deleted: bool = False) -> list[int]:
        """What Kafka's clients see."""
        return [
            number + 1
            for what, is_deleted, number in self.subjects[subject]
            if what != STRING and (deleted or not is_deleted)
        ]

    def delete(self, subject: str, *, permanent: bool) -> None:
        kept = self.subjects[subject]
        if permanent:
            self.subjects[subject] = [one for one in kept if one[0] == STRING]
            if not self.subjects[subject]:
                self.next[subject] = 0
        else:
            for one in kept:
                one[1] = one[1] or one[0] != STRING


class Real:
    def __init__(self, path: Path) -> None:
        self.metadata = EmbeddedStore.open(path, DirectDisk(4))
        self.store = SubjectStore(self.metadata, SystemClock(), thread_pool)
        self.kafka = SubjectRegistry(self.store)
        self.pulsar = Registry(self.store)
        self.lists = SubjectLists(self.store)
        self.deletion = SubjectDeletion(self.store)


async def check(real: Real, model: Model) -> None:
    expected = sorted(subject for subject in SUBJECTS if model.shown(subject))
    assert await real.lists.subjects("") == expected
    for subject in SUBJECTS:
        for deleted in (False, True):
            versions = model.shown(subject, deleted=deleted)
            try:
                assert await real.lists.versions(subject, deleted=deleted) == versions
            except NotFound:
                assert versions == []
        for what, is_deleted, number in model.subjects[subject]:
            if what == STRING:
                continue
            found = await real.kafka.version(subject, number + 1, deleted=True)
            assert (found.id, found.is_deleted) == (model.ids[what], is_deleted)
            assert json.loads(found.schema.text) == json.loads(text(what))
        if subject != "c":  # which is no topic's
            living = [number for _, is_deleted, number in model.subjects[subject] if not is_deleted]
            assert [version.number for version in await real.pulsar.versions(subject)] == living


async def step(real: Real, model: Model, dice: random.Random) -> None:
    subject, what = dice.choice(SUBJECTS), dice.randrange(6)
    match dice.choice(["kafka", "kafka", "pulsar", "pulsar", "string", "delete", "delete one", "for good"]):
        case "kafka":
            found = await real.kafka.register(subject, Schema(text(what)), Rules(FREELY))
            assert found.version == model.register(subject, what) + 1
            assert found.id == model.ids[what]
        case "pulsar" if subject != "c":
            definition = Definition("AVRO", text(what).encode(), {"by": "Pulsar"})
            assert await real.pulsar.register(subject, definition, FREELY) == model.register(subject, what)
        case "string" if subject != "c":
            number = await real.pulsar.register(subject, Definition(STRING), FREELY)
            assert number == model.register(subject, STRING)
        case "delete" if model.shown(subject):
            assert await real.deletion.delete_subject(subject) == model.shown(subject)
            model.delete(subject, permanent=False)
        case "delete one" if model.shown(subject):
            version = dice.choice(model.shown(subject))
            assert await real.deletion.delete_version(subject, version) == version
            next(one for one in model.subjects[subject] if one[2] == version - 1)[1] = True
        case "for good" if model.shown(subject, deleted=True):
            if model.shown(subject):
                with pytest.raises(AnabranchError):
                    await real.deletion.delete_subject(subject, permanent=True)
            else:
                gone = model.shown(subject, deleted=True)
                assert await real.deletion.delete_subject(subject, permanent=True) == gone
                model.delete(subject, permanent=True)


@pytest.mark.parametrize("seed", range(4))
async def test_both_faces_against_a_model(tmp_path: Path, seed: int) -> None:
    dice, model = random.Random(seed), Model()
    real = Real(tmp_path / "metadata")
    for n in range(120):
        await step(real, model, dice)
        if n % 10 == 0:
            await check(real, model)
        if n % 50 == 49:
            await real.metadata.close()
            real = Real(tmp_path / "metadata")
    await check(real, model)
    await real.metadata.close()
