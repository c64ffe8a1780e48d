"""Schema registry, as Kafka's users know it: schemas by their ids, and what there is at all."""

import asyncio
from typing import Any

import msgspec

from anabranch import __version__
from anabranch.admin.call import Call, Text
from anabranch.admin.registry_call import RegisteredSchema, entry, id_of, page, schemas_of, shown
from anabranch.schemas.errors import SchemaNotFound
from anabranch.schemas.schema import TYPES, Schema
from anabranch.schemas.subject_lists import EVERY_CONTEXT

_PAGE = ("offset", "limit")
_ID = "/schemas/ids/{id}"


class SubjectVersion(msgspec.Struct):
    subject: str
    version: int


async def _schema(call: Call, id: int) -> Schema:
    found = await schemas_of(call).store.schema(id)
    if found is None:
        raise SchemaNotFound(f"Schema {id} not found")
    return found


@entry("GET", "/schemas/types", answer=list[str])
async def types(call: Call) -> list[str]:
    """The types of schemas that can be registered."""
    return list(TYPES)


@entry("GET", _ID, answer=RegisteredSchema, query=("subject", "format", "fetchMaxId"))
async def by_id(call: Call) -> RegisteredSchema:
    """The schema that has an id."""
    told = await shown(call, await _schema(call, id_of(call)))
    if call.flag("fetchMaxId"):
        told.max_id = max(await schemas_of(call).store.ids())
    return told


@entry("GET", f"{_ID}/schema", query=("subject", "format"))
async def text_by_id(call: Call) -> Text:
    """The text of the schema that has an id."""
    return Text(str((await shown(call, await _schema(call, id_of(call)))).schema))


@entry("GET", f"{_ID}/subjects", answer=list[str], query=("subject", "deleted", *_PAGE))
async def subjects_of_id(call: Call) -> list[str]:
    """The subjects that have a schema."""
    return page(call, list(dict.fromkeys(one.subject for one in await _uses(call))))


@entry("GET", f"{_ID}/versions", answer=list[SubjectVersion], query=("subject", "deleted", *_PAGE))
async def versions_of_id(call: Call) -> list[SubjectVersion]:
    """The subjects and versions that have a schema."""
    return page(call, await _uses(call))


async def _uses(call: Call) -> list[SubjectVersion]:
    id, subject = id_of(call), call.query.get("subject")
    await _schema(call, id)
    uses = await schemas_of(call).lists.uses(id, deleted=call.flag("deleted"))
    return [SubjectVersion(*use) for use in uses if subject in (None, "", use[0])]


@entry("GET", "/schemas/guids/{guid}", answer=RegisteredSchema, query=("format",))
async def by_guid(call: Call) -> RegisteredSchema:
    """The schema that has a guid."""
    guid = call.path["guid"].lower()
    id = await schemas_of(call).store.id_of(guid) if len(guid) == 36 and guid.isascii() else None
    if id is None:
        raise SchemaNotFound(f"Schema {guid[:100]} not found")
    return await shown(call, await _schema(call, id))


@entry(
    "GET",
    "/schemas",
    answer=list[RegisteredSchema],
    query=("subjectPrefix", "deleted", "latestOnly", *_PAGE),
)
async def every(call: Call) -> list[RegisteredSchema]:
    """The schemas of all subjects, or of those whose names begin so."""
    lists, is_deleted = schemas_of(call).lists, call.flag("deleted")
    prefix = call.query.get("subjectPrefix", EVERY_CONTEXT)
    places = []
    for subject in await lists.subjects(prefix, deleted=is_deleted):
        known = await lists.versions(subject, deleted=is_deleted)
        places += [(subject, number) for number in (known[-1:] if call.flag("latestOnly") else known)]
    found = []
    for subject, number in page(call, places):
        one = await schemas_of(call).subjects.version(subject, number, deleted=is_deleted)
        found.append(await shown(call, one.schema, one))
        await asyncio.sleep(0)  # there may be many
    return found


@entry("GET", "/contexts", answer=list[str], query=_PAGE)
async def contexts(call: Call) -> list[str]:
    """The contexts that subjects are in."""
    return page(call, await schemas_of(call).lists.contexts())


@entry("GET", "/v1/metadata/id")
async def server_id(call: Call) -> dict[str, Any]:
    """Which cluster this is."""
    return {"scope": {"path": [], "clusters": {"kafka-cluster": call.image.cluster_id}}, "id": ""}


@entry("GET", "/v1/metadata/version")
async def server_version(call: Call) -> dict[str, str]:
    """Which version this is."""
    return {"version": __version__}
