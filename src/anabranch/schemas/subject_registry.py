"""Schema registry, as Kafka's clients see it: subjects whose versions count from 1, schemas with ids.

An id is a schema's, whatever the subject; the same schema has it in all of them.  What is registered here is
there for Pulsar's clients (`schemas/registry.py`) where they have such a type, under the same version less 1:
where they write a key and a value, a new schema of either makes a pair with the other as it was.
"""

import asyncio
from typing import NamedTuple

from anabranch.schemas import faces
from anabranch.schemas.compatibility import check as check_definition
from anabranch.schemas.definition import KEY_VALUE, Definition
from anabranch.schemas.documents import SubjectDocument, VersionDocument
from anabranch.schemas.errors import (
    IncompatibleSchema,
    InvalidSchema,
    InvalidSubject,
    InvalidVersion,
    NotPermitted,
    SchemaNotFound,
    SubjectNotFound,
    VersionNotFound,
)
from anabranch.schemas.modes import IMPORT, check_writable
from anabranch.schemas.reading import (
    Imports,
    Reading,
    check_size,
    formatted,
    is_inlined,
    read,
    shown,
    why_not,
)
from anabranch.schemas.references import LATEST, imports_of, with_numbers
from anabranch.schemas.schema import Schema, takes_long
from anabranch.schemas.strategy import Rules, Strategy
from anabranch.schemas.subject_store import MAX_VERSIONS, SubjectStore
from anabranch.schemas.subjects import is_of_keys, value_subject

MAX_SUBJECT_LENGTH = 1000
MAX_NUMBER = (1 << 31) - 1  # of a version, as clients read it


class Registered(NamedTuple):
    subject: str
    version: int
    id: int
    schema: Schema
    is_deleted: bool = False


class SubjectRegistry:
    def __init__(self, store: SubjectStore) -> None:
        self._store = store

    # --- what there is

    async def version(self, subject: str, version: int, *, deleted: bool = False) -> Registered:
        """One that is there; LATEST is the last.  SubjectNotFound or VersionNotFound."""
        known = await self._known(subject, deleted)
        if version == LATEST:
            living = [one for one in known if not one.is_deleted]
            return await self._registered(subject, (living or known)[-1])
        for one in known:
            if one.number + 1 == version:
                return await self._registered(subject, one)
        raise VersionNotFound(f"Version {version} not found.")

    async def _known(self, subject: str, deleted: bool) -> list[VersionDocument]:
        versions = (await self._store.document(subject)).for_kafka
        known = [one for one in versions if deleted or not one.is_deleted]
        if not known:
            raise SubjectNotFound(f"Subject '{subject}' not found.")
        return known

    async def _registered(self, subject: str, version: VersionDocument) -> Registered:
        schema = await self._store.schema_of(version)
        return Registered(subject, version.number + 1, version.schema, schema, version.is_deleted)

    async def find(
        self, subject: str, schema: Schema, *, normalize: bool = False, deleted: bool = False
    ) -> Registered:
        """The version that is the same.  SubjectNotFound, SchemaNotFound; InvalidSchema if it is none."""
        known = await self._known(subject, deleted)
        reading, _ = await self._read(schema, normalize)
        same = await self._same(known, reading.schema)
        if same is None:
            raise SchemaNotFound("Schema not found")
        return await self._registered(subject, same)

    async def _same(self, known: list[VersionDocument], schema: Schema) -> VersionDocument | None:
        """The last version that is the same, or is once what it refers to stands in it: who generates code
        from a schema sends it so."""
        id = await self._store.id_of(schema.guid)
        for one in reversed(known):
            if one.schema == id:
                return one
        for one in () if schema.references else reversed(known):
            if await self._is_inlined(schema, await self._store.schema_of(one)):
                return one
        return None

    async def _is_inlined(self, schema: Schema, other: Schema) -> bool:
        if not other.references or other.type != schema.type:
            return False
        try:
            imports = await imports_of(self._store, other)
        except InvalidSchema:
            return False  # it has gone with its topic
        size = _size(schema, other, *imports.values())
        return await self._store.aside.run(size, is_inlined, schema, other, imports)

    async def formatted(self, schema: Schema, format: str) -> str:
        """The text in a form that somebody asks for by name."""
        if not format:
            return schema.text
        imports = await imports_of(self._store, schema)
        size = _size(schema, *imports.values())
        return await self._store.aside.run(size, formatted, schema, imports, format)

    # --- what may be

    async def why_not(
        self, subject: str, schema: Schema, rules: Rules, version: int | None = None
    ) -> list[str]:
        """Why a schema cannot follow one version, or be registered; nothing if it can."""
        reading, imports = await self._read(schema, rules.normalize)
        document = await self._store.document(subject)
        living = [one for one in document.for_kafka if not one.is_deleted]
        if version is not None and version != LATEST:
            living = [one for one in living if one.number + 1 == version]
            if not living:
                raise VersionNotFound(f"Version {version} not found.")
        elif version == LATEST:
            living = living[-1:]
        return await self._problems(reading.schema, imports, living, rules)

    async def _problems(
        self, new: Schema, imports: Imports, living: list[VersionDocument], rules: Rules
    ) -> list[str]:
        strategy = rules.strategy
        if strategy is Strategy.ALWAYS_COMPATIBLE:
            return []  # nor does it matter whether what is there could be read
        for version in reversed(living):
            old = await self._store.schema_of(version)
            if rules.group is not None and old.group(rules.group) != new.group(rules.group):
                continue
            before = await imports_of(self._store, old)
            size = _size(new, old, *imports.values(), *before.values())
            told = await self._store.aside.run(
                size, why_not, new, old, (imports, before), strategy, lenient=rules.lenient
            )
            await asyncio.sleep(0)  # a subject may have many
            if told:
                number = f"{{oldSchemaVersion: {version.number + 1}}}"
                return [
                    *told,
                    number,
                    f"{{oldSchema: '{shown(old)}'}}",
                    f"{{compatibility: '{strategy.level}'}}",
                ]
            if not strategy.is_transitive:
                break
        return []

    async def _read(self, schema: Schema, normalize: bool) -> tuple[Reading, Imports]:
        check_size(schema)
        schema = await with_numbers(self._store, schema)
        imports = await imports_of(self._store, schema)
        size = _size(schema, *imports.values())
        reading = await self._store.aside.run(
            None if takes_long(schema) else size, read, schema, imports, normalize=normalize
        )
        return reading, imports

    # --- registering

    async def register(
        self,
        subject: str,
        schema: Schema,
        rules: Rules,
        *,
        id: int | None = None,
        version: int | None = None,
    ) -> Registered:
        """The version that is the same, in every mode; made if there is none and it may follow the others."""
        check_subject(subject)
        reading, imports = await self._read(schema, rules.normalize)
        async with self._store.turn(subject):
            document, stored = await self._store.read(subject)
            living = [one for one in document.for_kafka if not one.is_deleted]
            asked = [one for one in living if version in (None, one.number + 1)]
            same = await self._same(asked, reading.schema)
            if same is not None and id in (None, same.schema):
                return await self._registered(subject, same)
            is_import = await self._check_mode(subject, id)
            if not is_import:
                told = await self._problems(reading.schema, imports, living, rules)
                if told:
                    raise IncompatibleSchema(_refusal(subject, told), told)
            number = _number(document, version, is_import)
            kept = await self._store.keep_schema(reading.schema, id)
            definition = await self._for_pulsar(subject, document, reading, imports)
            new = await self._version(number, kept, definition)
            await self._store.write(subject, document.with_new(new), stored)
            if is_of_keys(subject):
                await self._pair_up(value_subject(subject), reading, imports)
            return Registered(subject, number + 1, kept, reading.schema)

    async def _check_mode(self, subject: str, id: int | None) -> bool:
        """Whether the subject takes what comes, under given ids.  NotPermitted if this is not for it."""
        is_import = await check_writable(self._store, subject) == IMPORT
        if id is not None and not is_import:
            raise NotPermitted(f"subject {subject} is not in import mode")
        if id is None and is_import:
            raise NotPermitted(f"subject {subject} is not in read-write mode")
        return is_import

    async def _version(self, number: int, id: int, definition: Definition | None) -> VersionDocument:
        now_ms = self._store.now_ms()
        if definition is None:
            return VersionDocument(number, now_ms, schema=id)
        checked = await self._store.aside.run(len(definition.data), check_definition, definition)
        digest = await self._store.keep_definition(definition)
        return VersionDocument(number, now_ms, digest, checked.form, id)

    async def _for_pulsar(
        self, subject: str, document: SubjectDocument, reading: Reading, imports: Imports
    ) -> Definition | None:
        """What Pulsar's clients see of a new version."""
        plain = await self._plain(reading, imports)
        if plain is None or value_subject(subject) != subject:
            return None
        pair = await self._pair(document)
        return plain if pair is None else faces.with_value(pair, plain)

    async def _plain(self, reading: Reading, imports: Imports) -> Definition | None:
        return await self._store.aside.run(
            _size(reading.schema, *imports.values()), faces.for_pulsar, reading, imports
        )

    async def _pair(self, document: SubjectDocument) -> Definition | None:
        """The key and value that Pulsar's clients write now; None if they write something else."""
        latest = document.for_pulsar[-1:]
        definition = await self._store.definition(latest[0]) if latest else None
        return definition if definition is not None and definition.type == KEY_VALUE else None

    async def _pair_up(self, subject: str, key: Reading, imports: Imports) -> None:
        """A new key for the values of Pulsar's clients, if they write keys and values."""
        document, stored = await self._store.read(subject)
        pair, plain = await self._pair(document), await self._plain(key, imports)
        if pair is not None and plain is not None:
            new = await self._version(document.next, 0, faces.with_key(pair, plain))
            await self._store.write(subject, document.with_new(new), stored)


def check_subject(subject: str) -> None:
    """InvalidSubject if nothing can be called so."""
    if not subject or len(subject) > MAX_SUBJECT_LENGTH or not subject.isprintable():
        raise InvalidSubject(f"The specified subject '{subject[:100]}' is not valid")


def _size(*schemas: Schema) -> int:
    return sum(len(schema.text) for schema in schemas)


def _number(document: SubjectDocument, version: int | None, is_import: bool) -> int:
    """The number, from 0, of a new version."""
    if len(document.versions) >= MAX_VERSIONS:
        raise InvalidSchema(f"the subject has {MAX_VERSIONS} schemas and can have no more")
    if version is None or version == document.next + 1:
        return document.next
    if not 0 < version <= MAX_NUMBER:
        raise InvalidVersion(f"{version} is no version, {MAX_NUMBER} is the last one")
    if not is_import:
        raise InvalidSchema("Version is not one more than previous version")
    if any(one.number + 1 == version for one in document.versions):
        raise NotPermitted(f"version {version} is another schema's, which cannot be overwritten")
    return version - 1


def _refusal(subject: str, told: list[str]) -> str:
    about = f'Schema being registered is incompatible with an earlier schema for subject "{subject}"'
    return f"{about}, details: [{', '.join(told)}]"
