"""Subjects as Kafka's clients see them: versions, ids, references, modes, deletion; and both faces of one."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.base.clock import SystemClock
from anabranch.base.disk import DirectDisk
from anabranch.base.executors import thread_pool
from anabranch.base.ids import TopicName
from anabranch.meta.embedded import EmbeddedStore
from anabranch.schemas import errors, subject_registry
from anabranch.schemas.definition import Definition, key_and_value, of_key_and_value
from anabranch.schemas.documents import NO_SETTINGS
from anabranch.schemas.registry import Registry
from anabranch.schemas.schema import JSON, PROTOBUF, Reference, Schema
from anabranch.schemas.strategy import Rules, Strategy
from anabranch.schemas.subject_deletion import SubjectDeletion
from anabranch.schemas.subject_lists import SubjectLists
from anabranch.schemas.subject_registry import SubjectRegistry
from anabranch.schemas.subject_store import FOR_ALL, SubjectStore
from anabranch.schemas.subjects import key_subject, stem_of, subject_of, topic_of

S = Strategy
BACKWARD, NONE = Rules(S.BACKWARD), Rules(S.ALWAYS_COMPATIBLE)


def avro(*fields: str, name: str = "R", **optional: Any) -> Schema:
    told: list[dict[str, Any]] = [{"name": field, "type": "int"} for field in fields]
    told += [{"name": field, "type": "int", "default": value} for field, value in optional.items()]
    return Schema(json.dumps({"type": "record", "name": name, "fields": told}))


class Faces:
    """One registry, and all ways to it."""

    def __init__(self, store: SubjectStore) -> None:
        self.store = store
        self.kafka = SubjectRegistry(store)
        self.pulsar = Registry(store)
        self.lists = SubjectLists(store)
        self.deletion = SubjectDeletion(store)

    async def add(
        self, subject: str, schema: Schema, rules: Rules = BACKWARD, **more: Any
    ) -> tuple[int, int]:
        found = await self.kafka.register(subject, schema, rules, **more)
        return found.version, found.id


@pytest.fixture
async def faces(tmp_path: Path) -> AsyncIterator[Faces]:
    store = EmbeddedStore.open(tmp_path / "metadata", DirectDisk(4))
    yield Faces(SubjectStore(store, SystemClock(), thread_pool))
    await store.close()


async def test_versions_count_from_one_and_ids_are_for_all(faces: Faces) -> None:
    assert await faces.add("a", avro("x")) == (1, 1)
    assert await faces.add("a", avro("x", y=0)) == (2, 2)
    assert await faces.add("b", avro("x", y=0)) == (1, 2)
    assert await faces.add("a", Schema(json.dumps(json.loads(avro("x").text), indent=4))) == (1, 1)
    assert (await faces.kafka.version("a", -1)).id == 2
    assert (await faces.kafka.find("a", avro("x"))).version == 1
    assert await faces.lists.uses(2) == [("a", 2), ("b", 1)]
    assert await faces.store.ids() == [1, 2]
    for wrong in (faces.kafka.version("none", 1), faces.kafka.find("none", avro("x"))):
        with pytest.raises(errors.SubjectNotFound):
            await wrong
    with pytest.raises(errors.VersionNotFound):
        await faces.kafka.version("a", 3)
    with pytest.raises(errors.SchemaNotFound):
        await faces.kafka.find("a", avro("z"))


async def test_everybody_at_once(faces: Faces) -> None:
    subjects = [f"s{n}" for n in range(20)]
    got = await asyncio.gather(*(faces.add(subject, avro("x")) for subject in subjects))
    assert got == [(1, 1)] * 20
    assert await faces.lists.subjects("") == sorted(subjects)


async def test_ids_outlive_the_process(tmp_path: Path) -> None:
    for expected in ((1, 1), (2, 2)):
        store = EmbeddedStore.open(tmp_path / "metadata", DirectDisk(4))
        faces = Faces(SubjectStore(store, SystemClock(), thread_pool))
        assert await faces.add("a", avro("x")) == (1, 1)
        assert await faces.add("a", avro("x", **{f"y{expected[0]}": 0})) == (expected[0] + 1, expected[1] + 1)
        await store.close()


@pytest.mark.parametrize(
    ("strategy", "allowed"),
    [
        (S.BACKWARD, {"less", "optional"}),
        (S.FORWARD, {"more", "optional"}),
        (S.FULL, {"optional"}),
        (S.ALWAYS_COMPATIBLE, {"less", "more", "optional", "another type"}),
        (S.ALWAYS_INCOMPATIBLE, set()),
    ],
)
async def test_what_may_follow(faces: Faces, strategy: Strategy, allowed: set[str]) -> None:
    await faces.add("s", avro("a", "b"))
    candidates = {
        "more": avro("a", "b", "c"),
        "less": avro("a"),
        "optional": avro("a", "b", c=0),
        "another type": Schema('{"type": "string"}', JSON),
    }
    for name, schema in candidates.items():
        told = await faces.kafka.why_not("s", schema, Rules(strategy))
        assert (not told) == (name in allowed), (name, told)
        if told:
            with pytest.raises(errors.IncompatibleSchema, match="earlier schema"):
                await faces.add("s", schema, Rules(strategy))


async def test_of_all_versions_or_the_last(faces: Faces) -> None:
    await faces.add("s", avro())
    await faces.add("s", avro(a=0))
    assert not await faces.kafka.why_not("s", avro("a"), BACKWARD)
    told = await faces.kafka.why_not("s", avro("a"), Rules(S.BACKWARD_TRANSITIVE))
    assert "{oldSchemaVersion: 1}" in told
    assert "{compatibility: 'BACKWARD_TRANSITIVE'}" in told
    assert await faces.kafka.why_not("s", avro("a"), BACKWARD, 1)
    assert not await faces.kafka.why_not("s", avro("a"), BACKWARD, -1)
    with pytest.raises(errors.VersionNotFound):
        await faces.kafka.why_not("s", avro("a"), BACKWARD, 7)
    assert not await faces.kafka.why_not("none", avro("a"), BACKWARD, -1)


async def test_groups_are_compared_apart(faces: Faces) -> None:
    rules = Rules(S.BACKWARD, group="major")

    def of(major: str, schema: Schema) -> Schema:
        return Schema(schema.text, metadata={"properties": {"major": major}})

    await faces.add("s", of("1", avro("a")), rules)
    await faces.add("s", of("2", avro("b")), rules)
    with pytest.raises(errors.IncompatibleSchema):
        await faces.add("s", of("1", avro("b")), rules)
    assert (await faces.add("s", of("1", avro("a", c=0)), rules))[0] == 3


async def test_references(faces: Faces) -> None:
    await faces.add("inner", avro("x", name="n.I"))
    text = json.dumps({"type": "record", "name": "n.O", "fields": [{"name": "i", "type": "I"}]})
    with pytest.raises(errors.InvalidSchema, match="UnknownType"):
        await faces.add("outer-value", Schema(text))
    outer = Schema(text, references=[Reference("n.I", "inner", -1)])
    assert await faces.add("outer-value", outer) == (1, 2)
    assert (await faces.kafka.version("outer-value", 1)).schema.references == [Reference("n.I", "inner", 1)]
    assert await faces.lists.referring("inner", 1) == [2]
    seen = await faces.pulsar.latest("outer-value")
    assert seen is not None
    assert b'"x"' in seen.definition.data
    for wrong in (faces.deletion.delete_subject("inner"), faces.deletion.delete_version("inner", 1)):
        with pytest.raises(errors.Referenced):
            await wrong
    await faces.deletion.delete_subject("outer-value")
    assert await faces.deletion.delete_subject("inner") == [1]
    with pytest.raises(errors.Referenced):  # what is deleted, but not for good, may come back
        await faces.deletion.delete_subject("inner", permanent=True)


async def test_a_schema_with_what_it_refers_to_in_its_text_is_the_same(faces: Faces) -> None:
    """So the classes send it that were generated from it."""
    await faces.add("inner", avro("x", name="n.I"))
    inner = json.loads(avro("x", name="n.I").text)

    def outer(type: Any, **more: Any) -> Schema:
        fields = [{"name": "i", "type": type}, {"name": "j", "type": "n.I"}]
        return Schema(json.dumps({"type": "record", "name": "n.O", "fields": fields}), **more)

    references = [Reference("n.I", "inner", 1)]
    assert await faces.add("s", outer("I", references=references)) == (1, 2)
    whole = outer(inner)
    assert await faces.add("s", whole) == (1, 2)
    found = await faces.kafka.find("s", whole)
    assert (found.version, found.id, found.schema.references) == (1, 2, references)
    for other in (outer({**inner, "fields": []}), outer(inner, metadata={"properties": {"a": "b"}})):
        with pytest.raises(errors.SchemaNotFound):
            await faces.kafka.find("s", other)
    await faces.deletion.delete_subject("s")
    assert await faces.add("s", whole) == (2, 3), "what is deleted is not the same as anything"


async def test_what_a_schema_refers_to_may_go_with_its_topic(faces: Faces) -> None:
    """A topic is deleted whoever refers to its schemas; then nothing can be compared with theirs."""
    inner = Definition("AVRO", avro("x", name="n.I").text.encode())
    await faces.pulsar.register("inner-value", inner, S.FULL, topic="persistent://public/default/inner")
    text = json.dumps({"type": "record", "name": "n.O", "fields": [{"name": "i", "type": "I"}]})
    outer = Schema(text, references=[Reference("n.I", "inner-value", 1)])
    assert await faces.add("s", outer) == (1, 2)
    await faces.pulsar.remove("inner-value")
    with pytest.raises(errors.SchemaNotFound):
        await faces.kafka.find("s", avro("a"))
    with pytest.raises(errors.InvalidSchema, match="to refer to"):
        await faces.add("s", avro("a"))
    assert await faces.add("s", avro("a"), NONE) == (2, 3)
    assert await faces.add("s", avro("a", b=0)) == (3, 4)


@pytest.mark.parametrize(
    ("reference", "complaint"),
    [
        (Reference("n.I", "none", 1), "no version 1"),
        (Reference("n.I", "inner", 2), "no version 2"),
        (Reference("n.I", "json", 1), "of type JSON"),
    ],
)
async def test_references_to_nothing(faces: Faces, reference: Reference, complaint: str) -> None:
    await faces.add("inner", avro("x", name="n.I"))
    await faces.add("json", Schema("{}", JSON))
    with pytest.raises(errors.InvalidSchema, match=complaint):
        await faces.add("s", Schema('"int"', references=[reference]))


async def test_references_have_a_bound(faces: Faces) -> None:
    """Each of 32 levels twice: as many as 2 to the 32nd if somebody counted them one by one."""
    await faces.add("level-0", avro("x", name="n.L0"))
    for n in range(1, 40):
        below = Reference(f"n.L{n - 1}", f"level-{n - 1}", 1)
        fields = [{"name": name, "type": f"n.L{n - 1}"} for name in "ab"]
        text = json.dumps({"type": "record", "name": f"n.L{n}", "fields": fields})
        if n > 31:
            with pytest.raises(errors.InvalidSchema, match="levels deep"):
                await faces.add(f"level-{n}", Schema(text, references=[below]))
            break
        await faces.add(f"level-{n}", Schema(text, references=[below]))


async def test_deleting(faces: Faces) -> None:
    for field in ("a", "b", "c"):
        await faces.add("s", avro(field), NONE)
    assert await faces.deletion.delete_version("s", 2) == 2
    assert await faces.lists.versions("s") == [1, 3]
    assert await faces.lists.versions("s", deleted=True) == [1, 2, 3]
    assert await faces.lists.versions("s", deleted_only=True) == [2]
    assert (await faces.kafka.version("s", 2, deleted=True)).is_deleted
    with pytest.raises(errors.VersionNotFound):
        await faces.kafka.version("s", 2)
    with pytest.raises(errors.VersionDeleted):
        await faces.deletion.delete_version("s", 2)
    with pytest.raises(errors.VersionNotDeleted):
        await faces.deletion.delete_version("s", 1, permanent=True)
    assert await faces.deletion.delete_version("s", 2, permanent=True) == 2
    assert await faces.deletion.delete_version("s", -1) == 3
    with pytest.raises(errors.SubjectNotDeleted):
        await faces.deletion.delete_subject("s", permanent=True)
    assert await faces.deletion.delete_subject("s") == [1]
    with pytest.raises(errors.SubjectDeleted):
        await faces.deletion.delete_subject("s")
    assert await faces.lists.subjects("") == []
    assert await faces.lists.subjects("", deleted=True) == ["s"]
    assert await faces.add("s", avro("a"), NONE) == (4, 1)
    await faces.deletion.delete_subject("s")
    assert await faces.deletion.delete_subject("s", permanent=True) == [1, 3, 4]
    assert await faces.lists.subjects("", deleted=True) == []
    with pytest.raises(errors.SubjectNotFound):
        await faces.deletion.delete_subject("s")
    assert await faces.store.schema(1) is not None
    assert await faces.add("s", avro("a"), NONE) == (1, 1)


async def test_settings_go_with_their_subject(faces: Faces) -> None:
    await faces.add("s", avro("a"))
    await faces.store.set("s", level="FULL", mode="IMPORT", alias="t")
    await faces.deletion.delete_version("s", 1)
    assert (await faces.store.settings("s")).level == "FULL", "as long as only versions are deleted"
    assert await faces.add("s", avro("a"), id=1, version=2) == (2, 1)
    await faces.deletion.delete_subject("s")
    assert await faces.store.settings("s") == NO_SETTINGS
    await faces.store.set("s", level="NONE")
    await faces.deletion.delete_subject("s", permanent=True)
    assert await faces.store.settings("s") == NO_SETTINGS


async def test_modes(faces: Faces) -> None:
    await faces.add("s", avro("a"))
    await faces.store.set("s", mode="READONLY")
    for wrong in (
        faces.add("s", avro("b")),
        faces.deletion.delete_subject("s"),
        faces.pulsar.register("s", Definition("STRING"), S.ALWAYS_COMPATIBLE),
        faces.pulsar.delete("s"),
    ):
        with pytest.raises(errors.NotPermitted, match="read-only"):
            await wrong
    assert await faces.add("s", avro("a")) == (1, 1), "what is there is found, as producers do who start"
    assert await faces.add("s", avro("a"), id=1) == (1, 1)
    with pytest.raises(errors.NotPermitted, match="read-only"):
        await faces.add("s", avro("a"), id=2)
    await faces.store.set("s", mode=None)
    with pytest.raises(errors.NotPermitted, match="import"):
        await faces.add("s", avro("a", b=0), id=7)
    await faces.store.set(FOR_ALL, mode="READONLY_OVERRIDE")
    await faces.store.set("s", mode="READWRITE")
    with pytest.raises(errors.NotPermitted):
        await faces.add("s", avro("a", b=0))


async def test_importing(faces: Faces) -> None:
    await faces.add("before", avro("z"))
    await faces.store.set("s", mode="IMPORT")
    assert await faces.add("s", avro("a"), id=100, version=5) == (5, 100)
    assert await faces.add("s", avro("b"), id=101, version=3) == (3, 101)
    assert await faces.add("s", avro("b"), id=101, version=3) == (3, 101)
    with pytest.raises(errors.NotPermitted, match="id 100"):
        await faces.add("s", avro("c"), id=100, version=6)
    with pytest.raises(errors.NotPermitted, match="has the id 1"):
        await faces.add("s", avro("z"), id=9)
    with pytest.raises(errors.NotPermitted, match="version 5"):
        await faces.add("s", avro("c"), id=102, version=5)
    with pytest.raises(errors.NotPermitted, match="read-write"):
        await faces.add("s", avro("c"))
    assert await faces.add("s", avro("b")) == (3, 101)
    with pytest.raises(errors.NotPermitted, match="no id"):
        await faces.add("s", avro("c"), id=1 << 31)
    with pytest.raises(errors.InvalidVersion):
        await faces.add("s", avro("c"), id=102, version=1 << 31)
    await faces.store.set("s", mode=None)
    assert (await faces.add("s", avro("a", q=0)))[0] == 6
    with pytest.raises(errors.InvalidSchema, match="one more"):
        await faces.add("s", avro("a", r=0), version=9)


async def test_bounds(faces: Faces, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(errors.SchemaTooLarge):
        await faces.add("s", Schema('"' + "x" * 300_000 + '"'))
    with pytest.raises(errors.SchemaTooLarge):
        await faces.add("s", Schema('"int"', metadata={"properties": {"a": "x" * 70_000}}))
    for wrong in ("", "a\nb", "x" * 2000):
        with pytest.raises(errors.InvalidSubject):
            await faces.add(wrong, avro())
    for text in ("", "  ", "\ud800"):
        with pytest.raises(errors.InvalidSchema):
            await faces.add("s", Schema(text))
    with pytest.raises(errors.InvalidSchema, match="no schema is of type"):
        await faces.add("s", Schema('"int"', "THRIFT"))
    monkeypatch.setattr(subject_registry, "MAX_VERSIONS", 1)
    await faces.add("s", avro())
    with pytest.raises(errors.InvalidSchema, match="no more"):
        await faces.add("s", avro(a=0))


async def test_without_the_library(faces: Faces, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fastavro.schema", "jsonschema.exceptions"):
        monkeypatch.setitem(sys.modules, name, None)
    for schema in (avro("a"), Schema("{}", JSON)):
        with pytest.raises(errors.LibraryMissing, match=r"anabranch\[schemas\]"):
            await faces.add("s", schema)


# --- both faces


async def test_avro_is_for_both(faces: Faces) -> None:
    first = Definition("AVRO", avro("a").text.encode(), {"made": "by Pulsar"})
    assert await faces.pulsar.register("t-value", first, S.FULL, topic="persistent://public/default/t") == 0
    assert await faces.add("t-value", avro("a")) == (1, 1)
    assert await faces.add("t-value", avro("a", b=0)) == (2, 2)
    seen = await faces.pulsar.at("t-value", 1)
    assert seen is not None
    assert json.loads(seen.definition.data) == json.loads(avro("a", b=0).text)
    again = Definition("AVRO", avro("a", b=0).text.encode())
    assert await faces.pulsar.register("t-value", again, S.FULL) == 1
    with pytest.raises(errors.IncompatibleSchema):
        await faces.add("t-value", avro("z"))
    assert await faces.pulsar.delete("t-value") == 2
    assert await faces.lists.subjects("") == []


async def test_what_only_one_side_knows(faces: Faces) -> None:
    assert await faces.pulsar.register("t-value", Definition("STRING"), S.FULL) == 0
    assert await faces.lists.subjects("") == []
    assert await faces.add("t-value", Schema('{"type": "string"}', JSON)) == (2, 1)
    latest = await faces.pulsar.latest("t-value")
    assert latest is not None
    assert latest.definition.type == "STRING"
    assert await faces.pulsar.at("t-value", 1) is None
    assert await faces.deletion.delete_subject("t-value") == [2]
    assert await faces.deletion.delete_subject("t-value", permanent=True) == [2]
    assert await faces.pulsar.has_any("t-value")


async def test_protobuf_is_for_both(faces: Faces) -> None:
    text = 'syntax = "proto3"; package shop; message Order { string id = 1; }'
    assert await faces.add("t-value", Schema(text, PROTOBUF)) == (1, 1)
    seen = await faces.pulsar.latest("t-value")
    assert seen is not None
    assert seen.definition.type == "PROTOBUF_NATIVE"
    assert json.loads(seen.definition.data)["rootMessageTypeName"] == "shop.Order"
    assert await faces.pulsar.register("u-value", seen.definition, S.FULL) == 0
    assert (await faces.kafka.version("u-value", 1)).id == 1


def pair(key: Schema, value: Schema) -> Definition:
    types = {"key.schema.type": "AVRO", "value.schema.type": "AVRO", "kv.encoding.type": "SEPARATED"}
    return Definition("KEY_VALUE", of_key_and_value(key.text.encode(), value.text.encode()), types)


async def pulsars(faces: Faces) -> tuple[Any, Any, dict[str, str]]:
    latest = await faces.pulsar.latest("t-value")
    assert latest is not None
    key, value = (json.loads(part.data) for part in key_and_value(latest.definition))
    return key, value, latest.definition.properties


async def test_a_key_and_a_value_are_two_subjects(faces: Faces) -> None:
    pulsar = {"topic": "persistent://public/default/t"}
    assert await faces.pulsar.register("t-value", pair(avro("k"), avro("v")), S.FULL, **pulsar) == 0
    assert await faces.lists.subjects("") == ["t-key", "t-value"]
    assert await faces.add("t-key", avro("k")) == (1, 1)
    assert (await faces.add("t-value", avro("v")))[0] == 1
    assert (await faces.add("t-value", avro("v", w=0)))[0] == 2
    assert (await faces.add("t-key", avro("k", l=0)))[0] == 2
    key, value, properties = await pulsars(faces)
    assert [len(key["fields"]), len(value["fields"])] == [2, 2]
    assert properties["kv.encoding.type"] == "SEPARATED"
    assert await faces.lists.versions("t-value") == [1, 2]
    newest = pair(avro("k", l=0), avro("v", w=0))
    assert await faces.pulsar.register("t-value", newest, S.FULL) == 2
    assert await faces.pulsar.register("t-value", pair(avro("k", m=0), avro("v")), S.ALWAYS_COMPATIBLE) == 3
    assert await faces.lists.versions("t-key") == [1, 2, 3]
    await faces.pulsar.delete("t-value")
    assert await faces.lists.subjects("") == []
    assert await faces.lists.subjects("", deleted=True) == ["t-key", "t-value"]
    await faces.pulsar.remove("t-value")
    assert await faces.lists.subjects("", deleted=True) == []


def test_whose_subject_it_is() -> None:
    assert [stem_of(subject) for subject in ("a-key", "a-value", "a", "a-value-key", "a-key-value")] == [
        *("a", "a", "a", "a-value", "a-key")
    ]
    topic = TopicName("t", "n", "a-key")
    assert subject_of(topic) == "persistent://t/n/a-key-value"
    assert topic_of(subject_of(topic)) == topic
    assert topic_of(key_subject(subject_of(topic))) == topic
    assert topic_of("a") is None
    assert topic_of("a b/c-value") is None
