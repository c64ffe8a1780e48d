"""Schema references: the versions of subjects that a schema refers to, and what those refer to in turn.

References are bounded in number, size and depth (`MAX_REFERENCES`, `MAX_BYTES`, `MAX_LEVELS`), and each is
collected once.
"""

import msgspec

from anabranch.schemas.documents import VersionDocument
from anabranch.schemas.errors import InvalidSchema
from anabranch.schemas.schema import Reference, Schema
from anabranch.schemas.subject_store import SubjectStore

MAX_REFERENCES = 200
MAX_LEVELS = 32
MAX_BYTES = 2 << 20
LATEST = -1


async def imports_of(store: SubjectStore, schema: Schema) -> dict[str, Schema]:
    """What a schema refers to, by the names that it uses, those first that others need.

    InvalidSchema if something is not there.
    """
    found: dict[str, Schema] = {}
    await _collect(store, schema, found, 1)
    return found


async def with_numbers(store: SubjectStore, schema: Schema) -> Schema:
    """With the numbers of the versions that are meant by `the latest`."""
    if all(reference.version != LATEST for reference in schema.references):
        return schema
    references = [
        Reference(reference.name, reference.subject, (await _version(store, reference)).number + 1)
        for reference in schema.references
    ]
    return msgspec.structs.replace(schema, references=references)


async def _collect(store: SubjectStore, schema: Schema, found: dict[str, Schema], level: int) -> None:
    if level > MAX_LEVELS:
        raise InvalidSchema(f"the schema refers to others more than {MAX_LEVELS} levels deep")
    for reference in schema.references:
        told = await store.schema_of(await _version(store, reference))
        if told.type != schema.type:
            raise InvalidSchema(f"{reference.name} is of type {told.type}, and {schema.type} refers to it")
        known = found.get(reference.name)
        if known is not None and known != told:
            raise InvalidSchema(f"there are two schemas by the name {reference.name}")
        if known is None:
            await _collect(store, told, found, level + 1)
            found[reference.name] = told
        is_too_much = sum(len(one.text) for one in found.values()) > MAX_BYTES
        if len(found) > MAX_REFERENCES or is_too_much:
            raise InvalidSchema("the schema refers to too many others")


async def _version(store: SubjectStore, reference: Reference) -> VersionDocument:
    known = (await store.document(reference.subject)).for_kafka
    if reference.version == LATEST:
        known = [version for version in known if not version.is_deleted][-1:]
    else:
        known = [version for version in known if version.number + 1 == reference.version]
    if not known:
        raise InvalidSchema(
            f"there is no version {reference.version} of subject {reference.subject[:300]!r} to refer to"
        )
    return known[0]
