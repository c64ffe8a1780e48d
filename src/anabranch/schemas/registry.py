"""Schema registry, as Pulsar's clients see it: subjects whose versions count from 0, each with a definition.

What was deleted leaves its number behind, and a deletion takes a number of its own, as Pulsar has it.

What is registered here is there for Kafka's clients (`schemas/subject_registry.py`) where they have such a
type (`schemas/faces.py`): the versions of a subject are the same ones.  The key of a key and a value goes
into the subject of the topic's keys.
"""

import asyncio
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from anabranch.base.errors import NotFound
from anabranch.schemas.compatibility import Checked, check, why_not
from anabranch.schemas.definition import Definition, check_size
from anabranch.schemas.documents import SubjectDocument, VersionDocument
from anabranch.schemas.errors import IncompatibleSchema, InvalidSchema
from anabranch.schemas.modes import check_writable
from anabranch.schemas.schema import AVRO, is_loaded
from anabranch.schemas.strategy import Strategy
from anabranch.schemas.subject_store import MAX_VERSIONS, SubjectStore
from anabranch.schemas.subjects import key_subject

if TYPE_CHECKING:
    from anabranch.schemas.reading import Reading


class Version(NamedTuple):
    number: int
    definition: Definition
    created_ms: int


class Registry:
    def __init__(self, store: SubjectStore) -> None:
        self._store = store

    # --- what there is

    async def topic_of(self, subject: str) -> str:
        """The topic that it goes with, as Pulsar calls it; empty if it stands alone."""
        return (await self._store.document(subject)).topic

    async def has_any(self, subject: str) -> bool:
        return bool((await self._store.document(subject)).for_pulsar)

    async def latest(self, subject: str) -> Version | None:
        living = (await self._store.document(subject)).for_pulsar
        return await self._version(living[-1]) if living else None

    async def at(self, subject: str, number: int) -> Version | None:
        """Also of one that was deleted: messages that carry its number are still there."""
        known = (await self._store.document(subject)).versions
        found = (version for version in known if version.number == number and version.definition)
        version = next(found, None)
        return None if version is None else await self._version(version)

    async def versions(self, subject: str) -> list[Version]:
        document = await self._store.document(subject)
        return [await self._version(version) for version in document.for_pulsar]

    async def find(self, subject: str, definition: Definition) -> int | None:
        """The version that means the same.  InvalidSchema if it is none of its type."""
        checked = await self._checked(definition)
        return _same(await self._store.document(subject), checked)

    # --- what may be

    async def check(self, subject: str, definition: Definition, strategy: Strategy) -> None:
        """IncompatibleSchema if it cannot come next, or is none of the versions if none comes next."""
        checked = await self._checked(definition)
        document = await self._store.document(subject)
        if _same(document, checked) is None:
            await self._check_next(document, definition, strategy)

    async def check_reader(self, subject: str, definition: Definition, strategy: Strategy) -> None:
        """IncompatibleSchema if who knows it could not read what is written by the subject's."""
        await self._checked(definition)
        document = await self._store.document(subject)
        if not document.for_pulsar:
            raise IncompatibleSchema(f"subject {subject} does not have a schema to check")
        await self._check_next(document, definition, strategy.for_readers)

    async def _check_next(
        self, document: SubjectDocument, definition: Definition, strategy: Strategy
    ) -> None:
        living = document.for_pulsar
        for version in living if strategy.is_transitive else living[-1:]:
            before = await self._store.definition(version)
            size = len(definition.data) + len(before.data)
            problem = await self._store.aside.run(size, why_not, definition, before, strategy)
            await asyncio.sleep(0)  # a subject may have many
            if problem is not None:
                raise IncompatibleSchema(f"{problem} (version {version.number}, {strategy.value})")

    # --- changing

    async def register(
        self, subject: str, definition: Definition, strategy: Strategy, *, topic: str = ""
    ) -> int:
        """The version that means the same, made if there is none and it may follow those there are."""
        checked = await self._checked(definition)
        async with self._store.turn(subject):
            document, stored = await self._store.read(subject)
            known = _same(document, checked)
            if known is not None:
                return known
            await check_writable(self._store, subject)
            if len(document.versions) >= MAX_VERSIONS:
                raise InvalidSchema(f"subject {subject} has {MAX_VERSIONS} schemas and can have no more")
            await self._check_next(document, definition, strategy)
            value, key = await self._for_kafka(definition)
            if key is not None:
                await self._keep_key(key_subject(subject), key, topic)
            new = VersionDocument(
                document.next,
                self._store.now_ms(),
                await self._store.keep_definition(definition),
                checked.form,
                await self._id(value),
            )
            if stored is None:
                document = SubjectDocument(topic=topic)
            await self._store.write(subject, document.with_new(new), stored)
            return new.number

    async def _for_kafka(self, definition: Definition) -> "tuple[Reading | None, Reading | None]":
        """What Kafka's clients see: of a value, and of a key if there is one."""
        return await self._store.aside.run(None, _seen_by_kafka, definition)

    async def _keep_key(self, subject: str, key: "Reading", topic: str) -> None:
        """What may follow has been decided on the keys before it; Kafka's clients see it from now on."""
        id = await self._id(key)
        document, stored = await self._store.read(subject)
        if any(version.schema == id and not version.is_deleted for version in document.versions):
            return
        if stored is None:
            document = SubjectDocument(topic=topic)
        new = VersionDocument(document.next, self._store.now_ms(), schema=id)
        await self._store.write(subject, document.with_new(new), stored)

    async def _id(self, reading: "Reading | None") -> int:
        return 0 if reading is None else await self._store.keep_schema(reading.schema)

    async def delete(self, subject: str) -> int:
        """Delete all versions; the number that this takes.  NotFound if there is none, NotPermitted."""
        await check_writable(self._store, subject)
        async with self._store.turn(subject):
            document, stored = await self._store.read(subject)
            if not document.for_pulsar:
                raise NotFound(f"subject {subject} has no schema")
            changed = SubjectDocument(_deleted(document.versions), document.next + 1, document.topic)
            await self._store.write(subject, changed, stored)
            keys = key_subject(subject)
            its, stored = await self._store.read(keys)
            if its.topic:
                await self._store.write(
                    keys, SubjectDocument(_deleted(its.versions), its.next, its.topic), stored
                )
            return document.next

    async def remove(self, subject: str) -> None:
        """Forget that the subject was ever there; that of the keys too, if it was made with it."""
        async with self._store.turn(subject):
            await self._store.remove(subject)
            if await self.topic_of(key_subject(subject)):
                await self._store.remove(key_subject(subject))

    async def _version(self, version: VersionDocument) -> Version:
        return Version(version.number, await self._store.definition(version), version.created_ms)

    async def _checked(self, definition: Definition) -> Checked:
        check_size(definition)
        size = len(definition.data) if is_loaded(AVRO) else None
        return await self._store.aside.run(size, check, definition)


def _seen_by_kafka(definition: Definition) -> "tuple[Reading | None, Reading | None]":
    from anabranch.schemas import faces  # and all types of schemas with it, not before there is one

    return faces.for_kafka(definition), faces.key_for_kafka(definition)


def _deleted(versions: list[VersionDocument]) -> list[VersionDocument]:
    return [msgspec.structs.replace(version, is_deleted=True) for version in versions]


def _same(document: SubjectDocument, checked: Checked) -> int | None:
    return next((version.number for version in document.for_pulsar if version.form == checked.form), None)
