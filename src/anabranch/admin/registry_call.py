"""Schema registry requests: what they have in common, such as schemas in JSON, subjects and pages."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from anabranch.admin.call import Call, whole_number
from anabranch.admin.errors import Refused
from anabranch.admin.registry_errors import MANNER
from anabranch.admin.routes import Handler, route
from anabranch.cluster.topic_schemas import TopicSchemas
from anabranch.schemas.errors import InvalidSchema, InvalidVersion
from anabranch.schemas.references import LATEST
from anabranch.schemas.schema import AVRO, Reference, Schema
from anabranch.schemas.subject_registry import Registered, check_subject

_T = TypeVar("_T")


class PostedReference(msgspec.Struct):
    name: str
    subject: str
    version: int


class RegistrySchema(msgspec.Struct, rename="camel"):
    """A schema as it is registered or looked for."""

    schema: str | None = None
    schema_type: str | None = None
    references: list[PostedReference] | None = None
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None
    id: int | None = None
    version: int | None = None


class RegisteredSchema(msgspec.Struct, rename="camel"):
    """A schema as it is there."""

    guid: str
    schema: str | None = None
    subject: str | None = None
    version: int | None = None
    id: int | None = None
    schema_type: str | None = None
    references: list[PostedReference] | None = None
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None
    max_id: int | None = None
    deleted: bool | None = None


def entry(
    method: str, path: str, *, body: Any = None, answer: Any = Any, query: tuple[str, ...] = ()
) -> Callable[[Handler], Handler]:
    """Enter a handler that answers as Kafka's users know it."""
    return route(method, path, body=body, answer=answer, query=query, manner=MANNER)


def schemas_of(call: Call) -> TopicSchemas:
    return call.services.pulsar.schemas


async def subject_of(call: Call) -> str:
    """The subject that the path names, or that it is another name of."""
    subject = call.path["subject"]
    check_subject(subject)
    schemas = schemas_of(call)
    return await schemas.cleared((await schemas.store.settings(subject)).alias or subject)


def version_of(call: Call) -> int:
    text = call.path["version"]
    if text in ("latest", str(LATEST)):
        return LATEST
    number = int(text) if text.isdecimal() and len(text) <= 10 else 0
    if not 1 <= number < 1 << 31:
        raise InvalidVersion(
            f"The specified version '{text[:100]}' is not a valid version id. Allowed values are between "
            '[1, 2^31-1] and the string "latest"'
        )
    return number


def id_of(call: Call) -> int:
    text = call.path["id"]
    if not text.isdecimal() or len(text) > 10:
        raise Refused(404, f"{text[:100]!r} is no id of a schema")
    return int(text)


def posted(call: Call) -> Schema:
    told: RegistrySchema | None = call.body
    if told is None or told.schema is None:
        raise InvalidSchema("the request has no schema")
    references = [Reference(one.name, one.subject, one.version) for one in told.references or ()]
    return Schema(told.schema, told.schema_type or AVRO, references, told.metadata, told.rule_set)


async def shown(call: Call, schema: Schema, found: Registered | None = None) -> RegisteredSchema:
    """A schema as it is answered, in the format that the request asks for."""
    format = call.query.get("format", "")
    text = await schemas_of(call).subjects.formatted(schema, format)
    references = [PostedReference(one.name, one.subject, one.version) for one in schema.references]
    told = RegisteredSchema(
        schema.guid,
        text,
        schema_type=None if schema.type == AVRO else schema.type,
        references=references or None,
        metadata=schema.metadata,
        rule_set=schema.rule_set,
    )
    if found is not None:
        told.subject, told.version, told.id = found.subject, found.version, found.id
        told.deleted = found.is_deleted or None
    return told


def page(call: Call, found: Sequence[_T]) -> list[_T]:
    """As many as the request asks for, from where it does."""
    offset = max(0, whole_number(call.query.get("offset", "0"), "offset"))
    limit = whole_number(call.query.get("limit", "-1"), "limit")
    return list(found[offset:] if limit < 0 else found[offset : offset + limit])


def deleted_only(call: Call) -> bool:
    """By either of the names that clients have for it."""
    return call.flag("deletedOnly") or call.flag("deleted_only")
