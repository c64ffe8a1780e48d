"""Schemas of topics: what versions there are, adding one, asking whether it could be added.

A definition is text in JSON.  That of KEY_VALUE, two in one on the wire, is an object of both here.
"""

from typing import Any

import msgspec

from anabranch.admin.call import Accepted, Call
from anabranch.admin.errors import Refused
from anabranch.admin.routes import API, delete, get, post
from anabranch.base.errors import NotFound
from anabranch.cluster.topic_schemas import TopicSchemas
from anabranch.schemas.definition import KEY_VALUE, Definition, key_and_value, of_key_and_value
from anabranch.schemas.errors import IncompatibleSchema, InvalidSchema
from anabranch.schemas.registry import Version
from anabranch.server.pulsar.schema_types import type_of_name

_BASE = API + "/schemas/{tenant}/{namespace}/{topic}"


class PostedSchema(msgspec.Struct, rename="camel"):
    type: str
    schema: str = ""
    properties: dict[str, str] | None = None  # Go's client says null


class SchemaInfo(msgspec.Struct, rename="camel"):
    version: int
    type: str
    timestamp: int
    data: str
    properties: dict[str, str]


class SchemaInfos(msgspec.Struct, rename="camel"):
    get_schema_responses: list[SchemaInfo]


class SchemaVersion(msgspec.Struct):
    version: int


class SchemaAdded(msgspec.Struct):
    version: SchemaVersion


class _KeyValue(msgspec.Struct):
    key: Any
    value: Any


class SchemaCompatibility(msgspec.Struct, rename="camel"):
    compatibility: bool
    schema_compatibility_strategy: str


async def _subject(call: Call) -> str:
    """Of the topic that the path names.  Its namespace must be there; it may itself come later."""
    name = call.topic_name
    call.services.pulsar.catalog.policies(name.in_namespace)
    return await _schemas(call).subject(name)


def _schemas(call: Call) -> TopicSchemas:
    return call.services.pulsar.schemas


def _info(version: Version) -> SchemaInfo:
    definition = version.definition
    return SchemaInfo(
        version.number, definition.type, version.created_ms, _text(definition), definition.properties
    )


def _found(version: Version | None) -> SchemaInfo:
    if version is None:
        raise NotFound("Schema not found")
    return _info(version)


def _text(definition: Definition) -> str:
    if definition.type == KEY_VALUE:
        key, value = (_value(part.data) for part in key_and_value(definition))
        return msgspec.json.encode(_KeyValue(key, value)).decode()
    return definition.data.decode("utf-8", "replace")


def _value(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return data.decode("utf-8", "replace")


def _definition(call: Call) -> Definition:
    posted: PostedSchema = call.body
    type_of_name(posted.type)
    data = posted.schema.encode()
    if posted.type == KEY_VALUE:
        try:
            told = msgspec.json.decode(data, type=_KeyValue)
        except msgspec.MsgspecError as error:
            raise InvalidSchema(f"a KEY_VALUE schema is an object of a key and a value: {error}") from None
        data = of_key_and_value(*(_bytes(part) for part in (told.key, told.value)))
    return Definition(posted.type, data, posted.properties or {})


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else msgspec.json.encode(value)


@get(_BASE + "/schema", answer=SchemaInfo)
async def latest(call: Call) -> SchemaInfo:
    """The schema that a topic has."""
    return _found(await _schemas(call).registry.latest(await _subject(call)))


@get(_BASE + "/schema/{version}", answer=SchemaInfo)
async def by_version(call: Call) -> SchemaInfo:
    """The schema that messages of a version were written by."""
    return _found(await _schemas(call).registry.at(await _subject(call), call.path_number("version")))


@get(_BASE + "/schemas", answer=SchemaInfos)
async def every(call: Call) -> SchemaInfos:
    """All versions of a topic's schema, oldest first."""
    versions = await _schemas(call).registry.versions(await _subject(call))
    return SchemaInfos([_info(version) for version in versions])


@post(_BASE + "/schema", body=PostedSchema, answer=SchemaAdded)
async def add(call: Call) -> SchemaAdded:
    """Add a version, unless it is there, if it may follow those there are."""
    schemas, subject, name = _schemas(call), await _subject(call), call.topic_name
    # What is there before its topic is nobody's yet, and does not go with a topic.
    topic = "" if call.services.pulsar.catalog.locate(name) is None else name.pulsar
    strategy = await schemas.strategy(name)
    number = await schemas.registry.register(subject, _definition(call), strategy, topic=topic)
    return SchemaAdded(SchemaVersion(number))


@delete(_BASE + "/schema", query=("force",))
async def remove(call: Call) -> SchemaVersion:
    """Delete all versions of a topic's schema; if forced, so that they count from 0 again."""
    registry, subject = _schemas(call).registry, await _subject(call)
    number = await registry.delete(subject)
    if call.flag("force"):
        await registry.remove(subject)
    return SchemaVersion(number)


@post(_BASE + "/compatibility", body=PostedSchema, answer=SchemaCompatibility)
async def check(call: Call) -> Accepted:
    """Whether a schema could be added."""
    schemas, subject = _schemas(call), await _subject(call)
    strategy = await schemas.strategy(call.topic_name)
    try:
        await schemas.registry.check(subject, _definition(call), strategy)
    except IncompatibleSchema:
        return Accepted(SchemaCompatibility(False, strategy.value))
    return Accepted(SchemaCompatibility(True, strategy.value))


@post(_BASE + "/version", body=PostedSchema, answer=SchemaVersion)
async def version_of(call: Call) -> SchemaVersion:
    """The version that means the same as a schema."""
    number = await _schemas(call).registry.find(await _subject(call), _definition(call))
    if number is None:
        raise Refused(404, "Schema not found")
    return SchemaVersion(number)
