"""Subjects and versions: what is the same, what may follow, what is deleted, what outlives the process."""

import asyncio
import json
import sys
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from anabranch.base.clock import SystemClock
from anabranch.base.disk import DirectDisk
from anabranch.base.errors import NotFound
from anabranch.base.executors import thread_pool
from anabranch.meta.embedded import EmbeddedStore
from anabranch.meta.paths import SCHEMA_DEFINITIONS, SCHEMA_IDS, SUBJECTS
from anabranch.schemas import registry as registries
from anabranch.schemas.definition import (
    MAX_DEFINITION_BYTES,
    Definition,
    of_key_and_value,
)
from anabranch.schemas.errors import IncompatibleSchema, InvalidSchema, LibraryMissing
from anabranch.schemas.registry import Registry
from anabranch.schemas.strategy import Strategy, strategy_of
from anabranch.schemas.subject_store import SubjectStore

S = Strategy
STRING = Definition("STRING")


def avro(*fields: str, optional: tuple[str, ...] = (), **more: str) -> Definition:
    told: list[Any] = [{"name": name, "type": "int"} for name in fields]
    told += [{"name": name, "type": "int", "default": 0} for name in optional]
    return Definition("AVRO", json.dumps({"type": "record", "name": "R", "fields": told, **more}).encode())


def native(message: str, file: str = "a.proto") -> Definition:
    files = descriptor_pb2.FileDescriptorSet()
    files.file.add(name="a.proto").message_type.add(name=message)
    told = {
        "fileDescriptorSet": b64encode(files.SerializeToString()).decode(),
        "rootMessageTypeName": message,
        "rootFileDescriptorName": file,
    }
    return Definition("PROTOBUF_NATIVE", json.dumps(told).encode())


def key_value(key: Definition, value: Definition) -> Definition:
    properties = {"key.schema.type": key.type, "value.schema.type": value.type}
    return Definition("KEY_VALUE", of_key_and_value(key.data, value.data), properties)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[EmbeddedStore]:
    store = EmbeddedStore.open(tmp_path / "metadata", DirectDisk(4))
    yield store
    await store.close()


@pytest.fixture
def registry(store: EmbeddedStore) -> Registry:
    return Registry(SubjectStore(store, SystemClock(), thread_pool))


async def test_versions_count_and_the_same_is_the_same(registry: Registry) -> None:
    assert await registry.latest("s") is None
    assert not await registry.has_any("s")
    assert await registry.register("s", avro("a"), S.FULL) == 0
    assert await registry.register("s", avro("a", optional=("b",)), S.FULL) == 1
    assert await registry.register("s", avro("a", doc="of it"), S.FULL) == 0
    assert await registry.find("s", avro("a", optional=("b",))) == 1
    assert await registry.find("s", avro("z")) is None
    assert [version.number for version in await registry.versions("s")] == [0, 1]
    latest, first = await registry.latest("s"), await registry.at("s", 0)
    assert latest is not None
    assert first is not None
    assert (latest.definition, first.definition) == (avro("a", optional=("b",)), avro("a"))
    assert await registry.at("s", 2) is None


async def test_a_definition_is_kept_once(registry: Registry, store: EmbeddedStore) -> None:
    subjects = [f"s{n}" for n in range(10)]
    await asyncio.gather(*(registry.register(subject, avro("a"), S.FULL) for subject in subjects))
    assert await store.children(SUBJECTS) == subjects
    assert len(await store.children(SCHEMA_IDS)) == len(await store.children(SCHEMA_DEFINITIONS)) == 1
    assert [(await registry.versions(subject))[0].definition for subject in subjects] == [avro("a")] * 10


async def test_everybody_at_once(registry: Registry) -> None:
    wanted = [avro("a", optional=("b",) * (n % 2)) for n in range(20)]
    got = await asyncio.gather(*(registry.register("s", one, S.FULL) for one in wanted))
    assert got == [n % 2 for n in range(20)]


async def test_it_is_there_after_a_restart(tmp_path: Path) -> None:
    for expected in (0, 0):
        store = EmbeddedStore.open(tmp_path / "metadata", DirectDisk(4))
        subjects = SubjectStore(store, SystemClock(), thread_pool)
        registry = Registry(subjects)
        assert await registry.register("a b/ü", STRING, S.FULL, topic="persistent://a/b/c") == expected
        assert await subjects.subjects() == ["a b/ü"]
        assert await registry.topic_of("a b/ü") == "persistent://a/b/c"
        await store.close()


async def test_deleting(registry: Registry) -> None:
    with pytest.raises(NotFound):
        await registry.delete("s")
    await registry.register("s", avro("a"), S.FULL)
    assert await registry.delete("s") == 1
    assert await registry.latest("s") is None
    with pytest.raises(NotFound):
        await registry.delete("s")
    old = await registry.at("s", 0)
    assert old is not None
    assert await registry.register("s", STRING, S.FULL) == 2
    await registry.remove("s")
    await registry.remove("s")
    assert await registry.at("s", 0) is None
    assert await registry.register("s", avro("b"), S.FULL) == 0


MORE, LESS, OPTIONAL = avro("a", "b", "c"), avro("a"), avro("a", "b", optional=("c",))


@pytest.mark.parametrize(
    ("strategy", "allowed"),
    [
        (S.BACKWARD, [LESS, OPTIONAL]),
        (S.FORWARD, [MORE, OPTIONAL]),
        (S.FULL, [OPTIONAL]),
        (S.ALWAYS_COMPATIBLE, [MORE, LESS, OPTIONAL, STRING]),
        (S.ALWAYS_INCOMPATIBLE, []),
    ],
)
async def test_what_may_follow(registry: Registry, strategy: Strategy, allowed: list[Definition]) -> None:
    await registry.register("s", avro("a", "b"), strategy)
    for definition in (MORE, LESS, OPTIONAL, STRING):
        if definition in allowed:
            await registry.check("s", definition, strategy)
        else:
            with pytest.raises(IncompatibleSchema):
                await registry.check("s", definition, strategy)
            with pytest.raises(IncompatibleSchema):
                await registry.register("s", definition, strategy)
    await registry.check("s", avro("a", "b"), strategy)
    assert len(await registry.versions("s")) == 1


async def test_of_all_versions_or_the_last(registry: Registry) -> None:
    await registry.register("s", avro(), S.BACKWARD)
    await registry.register("s", avro(optional=("a",)), S.BACKWARD)
    with pytest.raises(IncompatibleSchema, match="version 0"):
        await registry.check("s", avro("a"), S.BACKWARD_TRANSITIVE)
    await registry.check("s", avro("a"), S.BACKWARD)


async def test_readers(registry: Registry) -> None:
    with pytest.raises(IncompatibleSchema):
        await registry.check_reader("s", avro("a"), S.FULL)
    await registry.register("s", avro("a", "b"), S.FULL)
    for strategy in (S.FULL, S.FORWARD, S.BACKWARD):
        await registry.check_reader("s", avro("a"), strategy)
        with pytest.raises(IncompatibleSchema):
            await registry.check_reader("s", avro("a", "c"), strategy)


async def test_protobuf_messages_stay_themselves(registry: Registry) -> None:
    await registry.register("s", native("M"), S.FULL)
    with pytest.raises(IncompatibleSchema, match="M"):
        await registry.register("s", native("N"), S.FULL)


async def test_keys_and_values_each_follow_their_own(registry: Registry) -> None:
    await registry.register("s", key_value(STRING, avro("a")), S.FULL)
    assert await registry.register("s", key_value(STRING, avro("a", optional=("b",))), S.FULL) == 1
    for bad in (key_value(STRING, avro("b")), key_value(Definition("INT32"), avro("a"))):
        with pytest.raises(IncompatibleSchema):
            await registry.register("s", bad, S.FULL)


@pytest.mark.parametrize(
    "definition",
    [
        Definition("AVRO", b"{"),
        Definition("JSON", b""),
        Definition("PROTOBUF", b"x" * 5000),
        Definition("STRING", b"x" * (MAX_DEFINITION_BYTES + 1)),
        Definition("STRING", b"", {"a": "x" * 20_000}),
        Definition("PROTOBUF_NATIVE", b"{}"),
        Definition("PROTOBUF_NATIVE", native("M").data.replace(b'Set": "', b'Set": "!')),
        native("M", file="other.proto"),
        Definition("KEY_VALUE", b""),
        Definition("KEY_VALUE", b"\x7f\xff\xff\xff"),
        Definition("KEY_VALUE", of_key_and_value(b"", b"") + b"x"),
        Definition("KEY_VALUE", of_key_and_value(b"", b"")),
        key_value(STRING, Definition("KEY_VALUE", of_key_and_value(b"", b""))),
        key_value(Definition("AVRO", b"{"), STRING),
    ],
    ids=lambda definition: f"{definition.type} {definition.data[:20]!r}",
)
async def test_what_is_no_schema(registry: Registry, definition: Definition) -> None:
    with pytest.raises(InvalidSchema):
        await registry.register("s", definition, S.ALWAYS_COMPATIBLE)
    assert not await registry.has_any("s")


async def test_there_is_a_last_version(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registries, "MAX_VERSIONS", 2)
    for n in range(2):
        await registry.register("s", avro(f"f{n}"), S.ALWAYS_COMPATIBLE)
    with pytest.raises(InvalidSchema, match="no more"):
        await registry.register("s", avro("g"), S.ALWAYS_COMPATIBLE)


async def test_without_the_library(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro.schema", None)
    with pytest.raises(LibraryMissing, match=r"anabranch\[schemas\]"):
        await registry.register("s", avro("a"), S.FULL)
    assert await registry.register("s", STRING, S.FULL) == 0


def test_strategies_in_both_spellings() -> None:
    assert strategy_of(None, "UNDEFINED", None, "FORWARD") is S.FORWARD
    assert strategy_of(None, "UNDEFINED", "AutoUpdateDisabled", "FORWARD") is S.ALWAYS_INCOMPATIBLE
    assert strategy_of("BACKWARD_TRANSITIVE", "FULL") is S.BACKWARD_TRANSITIVE
    assert strategy_of() is S.FULL
