"""Subjects and their versions, kept in the metadata store.

    /schemas/subjects/<subject>     SubjectDocument: the versions, each with the id of its definition
    /schemas/ids/s-0000000003       Definition, never changed
    /schemas/digests/<sha-256>      the id under which a definition is kept: the same is kept once

A subject's versions count from 0, without end: what was deleted leaves its number behind, and a deletion
takes a number of its own, as Pulsar has it.  A definition stands before anything names it, so that a crash
leaves at most one that nobody names; whoever brings it again finds it.  Definitions stay for good.

The metadata store rather than a topic of its own: schemas are few, small, read seldom, and must be agreed
upon by several nodes, which is what the store is for.  Nothing is kept here but turns, so nothing is loaded.

What is large is checked in a thread, that the loop goes on meanwhile.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple, ParamSpec, TypeVar

import msgspec

from anabranch.base.clock import Clock
from anabranch.base.errors import Corrupt, Exists, NotFound
from anabranch.base.path_parts import path_part, text_of
from anabranch.base.turns import Turns
from anabranch.meta.documents import decode, encode
from anabranch.meta.paths import SCHEMA_DIGESTS, SCHEMA_IDS, SUBJECTS
from anabranch.meta.store import MUST_NOT_EXIST, MetadataStore, Versioned
from anabranch.schemas.compatibility import Checked, check, why_not
from anabranch.schemas.definition import Definition, check_size
from anabranch.schemas.errors import IncompatibleSchema, InvalidSchema
from anabranch.schemas.strategy import Strategy

MAX_VERSIONS = 1000

_INLINE_BYTES = 4 << 10
_P = ParamSpec("_P")
_R = TypeVar("_R")


class VersionDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    number: int
    id: str
    form: str
    created_ms: int
    is_deleted: bool = False


class SubjectDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    versions: list[VersionDocument] = []
    next: int = 0
    topic: str = ""  # it was made by the clients of this one, and goes with it


class _IdDocument(msgspec.Struct, frozen=True):
    id: str


class Version(NamedTuple):
    number: int
    definition: Definition
    created_ms: int


class Registry:
    def __init__(self, store: MetadataStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._turns = Turns()

    # --- what there is

    async def subjects(self) -> list[str]:
        return [text_of(part) for part in await self._store.children(SUBJECTS)]

    async def topic_of(self, subject: str) -> str:
        """The topic that it goes with, as Pulsar calls it; empty if it stands alone."""
        return (await self._subject(subject)).topic

    async def has_any(self, subject: str) -> bool:
        return bool(_living(await self._subject(subject)))

    async def latest(self, subject: str) -> Version | None:
        living = _living(await self._subject(subject))
        return await self._version(living[-1]) if living else None

    async def at(self, subject: str, number: int) -> Version | None:
        """Also of one that was deleted: messages that carry its number are still there."""
        known = (await self._subject(subject)).versions
        found = next((version for version in known if version.number == number), None)
        return None if found is None else await self._version(found)

    async def versions(self, subject: str) -> list[Version]:
        return [await self._version(version) for version in _living(await self._subject(subject))]

    async def find(self, subject: str, definition: Definition) -> int | None:
        """The version that means the same.  InvalidSchema if it is none of its type."""
        checked = await _checked(definition)
        return _same(await self._subject(subject), checked)

    # --- what may be

    async def check(self, subject: str, definition: Definition, strategy: Strategy) -> None:
        """IncompatibleSchema if it cannot come next, or is none of the versions if none comes next."""
        checked = await _checked(definition)
        document = await self._subject(subject)
        if _same(document, checked) is None:
            await self._check_next(document, definition, strategy)

    async def check_reader(self, subject: str, definition: Definition, strategy: Strategy) -> None:
        """IncompatibleSchema if who knows it could not read what is written by the subject's."""
        await _checked(definition)
        document = await self._subject(subject)
        if not _living(document):
            raise IncompatibleSchema(f"subject {subject} does not have a schema to check")
        await self._check_next(document, definition, strategy.for_readers)

    async def _check_next(
        self, document: SubjectDocument, definition: Definition, strategy: Strategy
    ) -> None:
        living = _living(document)
        for version in living if strategy.is_transitive else living[-1:]:
            before = (await self._version(version)).definition
            size = len(definition.data) + len(before.data)
            problem = await _beside_the_loop(size, why_not, definition, before, strategy)
            await asyncio.sleep(0)  # a subject may have many
            if problem is not None:
                raise IncompatibleSchema(f"{problem} (version {version.number}, {strategy.value})")

    # --- changing

    async def register(
        self, subject: str, definition: Definition, strategy: Strategy, *, topic: str = ""
    ) -> int:
        """The version that means the same, made if there is none and it may follow those there are."""
        checked = await _checked(definition)
        async with self._turns.of(subject):
            document, stored = await self._read(subject)
            known = _same(document, checked)
            if known is not None:
                return known
            if len(document.versions) >= MAX_VERSIONS:
                raise InvalidSchema(f"subject {subject} has {MAX_VERSIONS} schemas and can have no more")
            await self._check_next(document, definition, strategy)
            new = VersionDocument(
                document.next, await self._keep(definition), checked.form, self._clock.now_ms()
            )
            changed = SubjectDocument(
                [*document.versions, new],
                document.next + 1,
                topic if stored is None else document.topic,
            )
            await self._write(subject, changed, stored)
            return new.number

    async def delete(self, subject: str) -> int:
        """Delete all versions; the number that this takes.  NotFound if there is none."""
        async with self._turns.of(subject):
            document, stored = await self._read(subject)
            if not _living(document):
                raise NotFound(f"subject {subject} has no schema")
            gone = [msgspec.structs.replace(version, is_deleted=True) for version in document.versions]
            changed = SubjectDocument(gone, document.next + 1, document.topic)
            await self._write(subject, changed, stored)
            return document.next

    async def remove(self, subject: str) -> None:
        """Forget that the subject was ever there."""
        async with self._turns.of(subject):
            try:
                await self._store.delete(_path(subject))
            except NotFound:
                return

    # --- the store

    async def _subject(self, subject: str) -> SubjectDocument:
        return (await self._read(subject))[0]

    async def _read(self, subject: str) -> tuple[SubjectDocument, Versioned | None]:
        path = _path(subject)
        stored = await self._store.get(path)
        if stored is None:
            return SubjectDocument(), None
        return decode(stored.data, SubjectDocument, path), stored

    async def _write(self, subject: str, document: SubjectDocument, before: Versioned | None) -> None:
        expected = MUST_NOT_EXIST if before is None else before.version
        await self._store.put(_path(subject), encode(document), expected)

    async def _version(self, version: VersionDocument) -> Version:
        path = f"{SCHEMA_IDS}/{version.id}"
        stored = await self._store.get(path)
        if stored is None:
            raise Corrupt(f"metadata node {path} is gone, and version {version.number} of a subject names it")
        return Version(version.number, decode(stored.data, Definition, path), version.created_ms)

    async def _keep(self, definition: Definition) -> str:
        """The id under which a definition is kept, from now on if it was not before."""
        digest = f"{SCHEMA_DIGESTS}/{definition.digest}"
        kept = await self._store.get(digest)
        if kept is None:
            made = await self._store.create(f"{SCHEMA_IDS}/s-", encode(definition), sequential=True)
            id = made.rpartition("/")[2]
            try:
                await self._store.put(digest, encode(_IdDocument(id)), MUST_NOT_EXIST)
            except Exists:  # another subject was faster; both are the same
                await self._store.delete(made)
                kept = await self._store.get(digest)
        return id if kept is None else decode(kept.data, _IdDocument, digest).id


def _path(subject: str) -> str:
    return f"{SUBJECTS}/{path_part(subject)}"


def _living(document: SubjectDocument) -> list[VersionDocument]:
    return [version for version in document.versions if not version.is_deleted]


def _same(document: SubjectDocument, checked: Checked) -> int | None:
    return next(
        (version.number for version in _living(document) if version.form == checked.form),
        None,
    )


async def _checked(definition: Definition) -> Checked:
    check_size(definition)
    return await _beside_the_loop(len(definition.data), check, definition)


async def _beside_the_loop(
    size_bytes: int, work: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs
) -> _R:
    if size_bytes <= _INLINE_BYTES:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)
