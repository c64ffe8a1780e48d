"""Subjects, schemas and settings in the metadata store (`schemas/documents.py` has the picture).

What a document names stands before the document does, so that a crash leaves at most a schema that nobody
names; whoever brings it again finds it.  Schemas and definitions stay forever: messages carry their ids.

The metadata store rather than a topic of its own: schemas are few, small, read seldom, and must be agreed
upon by several nodes, which is what the store is for.  Nothing is kept here but turns, so nothing is loaded.
"""

from contextlib import AbstractAsyncContextManager, suppress

import msgspec

from anabranch.base.clock import Clock
from anabranch.base.errors import Corrupt, Exists, NotFound
from anabranch.base.executors import Executors
from anabranch.base.path_parts import path_part, text_of
from anabranch.base.turns import Turns
from anabranch.meta.documents import decode, encode
from anabranch.meta.paths import (
    SCHEMA_DEFINITIONS,
    SCHEMA_GUIDS,
    SCHEMA_IDS,
    SCHEMA_SETTINGS,
    SUBJECTS,
)
from anabranch.meta.store import MUST_NOT_EXIST, MetadataStore, Versioned
from anabranch.schemas.aside import Aside
from anabranch.schemas.definition import Definition
from anabranch.schemas.documents import (
    NO_SETTINGS,
    IdDocument,
    SettingsDocument,
    SubjectDocument,
    VersionDocument,
)
from anabranch.schemas.errors import NotPermitted
from anabranch.schemas.schema import Schema
from anabranch.schemas.subjects import stem_of

MAX_VERSIONS = 1000
MAX_ID = (1 << 31) - 1
FOR_ALL = ""
"""The subject whose settings hold for those that have none."""


class SubjectStore:
    def __init__(self, store: MetadataStore, clock: Clock, executors: Executors) -> None:
        self._store = store
        self._clock = clock
        self._turns = Turns()
        self.aside = Aside(executors)

    def turn(self, subject: str) -> AbstractAsyncContextManager[None]:
        """Alone with a subject; a topic's keys and values are changed together."""
        return self._turns.of(stem_of(subject))

    def now_ms(self) -> int:
        return self._clock.now_ms()

    # --- subjects

    async def subjects(self) -> list[str]:
        return [text_of(part) for part in await self._store.children(SUBJECTS)]

    async def document(self, subject: str) -> SubjectDocument:
        return (await self.read(subject))[0]

    async def read(self, subject: str) -> tuple[SubjectDocument, Versioned | None]:
        path = _path(SUBJECTS, subject)
        stored = await self._store.get(path)
        if stored is None:
            return SubjectDocument(), None
        return decode(stored.data, SubjectDocument, path), stored

    async def write(self, subject: str, document: SubjectDocument, before: Versioned | None) -> None:
        expected = MUST_NOT_EXIST if before is None else before.version
        await self._store.put(_path(SUBJECTS, subject), encode(document), expected)

    async def remove(self, subject: str) -> None:
        """Forget that the subject was ever there."""
        with suppress(NotFound):
            await self._store.delete(_path(SUBJECTS, subject))
        await self.forget_settings(subject)

    # --- what Pulsar's clients brought

    async def definition(self, version: VersionDocument) -> Definition:
        path = f"{SCHEMA_DEFINITIONS}/{version.definition}"
        stored = await self._store.get(path)
        if stored is None:
            raise Corrupt(f"metadata node {path} is gone, and version {version.number} of a subject names it")
        return decode(stored.data, Definition, path)

    async def keep_definition(self, definition: Definition) -> str:
        """The digest under which it is kept from now on."""
        path = f"{SCHEMA_DEFINITIONS}/{definition.digest}"
        if await self._store.get(path) is None:
            with suppress(Exists):  # if somebody else has brought the same meanwhile
                await self._store.put(path, encode(definition), MUST_NOT_EXIST)
        return definition.digest

    # --- what Kafka's clients brought

    async def schema(self, id: int) -> Schema | None:
        if not 0 < id <= MAX_ID:
            return None
        path = _id_path(id)
        stored = await self._store.get(path)
        return None if stored is None else decode(stored.data, Schema, path)

    async def schema_of(self, version: VersionDocument) -> Schema:
        found = await self.schema(version.schema)
        if found is None:
            raise Corrupt(
                f"schema {version.schema} is gone, and version {version.number} of a subject names it"
            )
        return found

    async def ids(self) -> list[int]:
        return [int(name.removeprefix("s-")) + 1 for name in await self._store.children(SCHEMA_IDS)]

    async def id_of(self, guid: str) -> int | None:
        path = f"{SCHEMA_GUIDS}/{guid}"
        stored = await self._store.get(path)
        return None if stored is None else decode(stored.data, IdDocument, path).id

    async def keep_schema(self, schema: Schema, wanted: int | None = None) -> int:
        """The id under which it is kept from now on.

        NotPermitted if it is kept under another than `wanted`, or that is another's or none.
        """
        if wanted is not None and not 0 < wanted <= MAX_ID:
            raise NotPermitted(f"{wanted} is no id, {MAX_ID} is the last one")
        kept = await self.id_of(schema.guid)
        if kept is not None:
            if wanted not in (None, kept):
                raise NotPermitted(f"this schema has the id {kept}, it cannot have {wanted} too")
            return kept
        made = await self._new_node(schema, wanted)
        try:
            await self._store.put(f"{SCHEMA_GUIDS}/{schema.guid}", encode(IdDocument(made)), MUST_NOT_EXIST)
        except Exists:  # another subject was faster; both are the same
            await self._store.delete(_id_path(made))
            return await self.keep_schema(schema, wanted)
        return made

    async def _new_node(self, schema: Schema, wanted: int | None) -> int:
        if wanted is None:
            made = await self._store.create(f"{SCHEMA_IDS}/s-", encode(schema), sequential=True)
            return int(made.rpartition("-")[2]) + 1
        try:
            await self._store.put(_id_path(wanted), encode(schema), MUST_NOT_EXIST)
        except Exists:
            raise NotPermitted(f"id {wanted} is another schema's, which cannot be overwritten") from None
        return wanted

    # --- settings

    async def settings(self, subject: str) -> SettingsDocument:
        path = _path(SCHEMA_SETTINGS, subject)
        stored = await self._store.get(path)
        return NO_SETTINGS if stored is None else decode(stored.data, SettingsDocument, path)

    async def settings_in_scope(self, subject: str) -> SettingsDocument:
        """What holds for a subject: its own, else what is set for all; not yet what is so by default."""
        own, others = await self.settings(subject), await self.settings(FOR_ALL)
        told = {
            name: getattr(others, name) if getattr(own, name) is None else getattr(own, name)
            for name in own.__struct_fields__
        }
        return SettingsDocument(**{**told, "alias": own.alias})

    async def forget_settings(self, subject: str) -> None:
        with suppress(NotFound):
            await self._store.delete(_path(SCHEMA_SETTINGS, subject))

    async def set(self, subject: str, **changes: str | bool | None) -> SettingsDocument:
        """Change some of a subject's settings; all that it has then."""
        async with self.turn(subject):
            changed = msgspec.structs.replace(await self.settings(subject), **changes)
            path = _path(SCHEMA_SETTINGS, subject)
            if changed != NO_SETTINGS:
                await self._store.put(path, encode(changed))
            elif await self._store.get(path) is not None:
                await self._store.delete(path)
            return changed


def _path(folder: str, subject: str) -> str:
    return f"{folder}/{path_part(subject) or _NO_NAME}"


def _id_path(id: int) -> str:
    return f"{SCHEMA_IDS}/s-{id - 1:010d}"


_NO_NAME = "%00"  # no subject is called so
