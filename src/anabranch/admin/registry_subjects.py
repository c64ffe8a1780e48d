"""Schema registry, as Kafka's users know it: subjects and their versions."""

from anabranch.admin.call import Call, Text
from anabranch.admin.registry_call import (
    RegisteredSchema,
    RegistrySchema,
    deleted_only,
    entry,
    page,
    posted,
    schemas_of,
    shown,
    subject_of,
    version_of,
)
from anabranch.schemas.errors import SchemaNotFound
from anabranch.schemas.subject_lists import EVERY_CONTEXT

_PAGE = ("offset", "limit")
_DELETED = ("deleted", "deletedOnly", *_PAGE)
_SUBJECT = "/subjects/{subject}"
_VERSIONS = "/subjects/{subject}/versions"
_VERSION = "/subjects/{subject}/versions/{version}"


@entry("GET", "/subjects", answer=list[str], query=("subjectPrefix", *_DELETED))
async def every(call: Call) -> list[str]:
    """The subjects there are."""
    prefix = call.query.get("subjectPrefix", EVERY_CONTEXT)
    found = await schemas_of(call).lists.subjects(
        prefix, deleted=call.flag("deleted"), deleted_only=deleted_only(call)
    )
    return page(call, found)


@entry("GET", _VERSIONS, answer=list[int], query=_DELETED)
async def versions(call: Call) -> list[int]:
    """The versions of a subject."""
    found = await schemas_of(call).lists.versions(
        await subject_of(call), deleted=call.flag("deleted"), deleted_only=deleted_only(call)
    )
    return page(call, found)


@entry("GET", _VERSION, answer=RegisteredSchema, query=("deleted", "format"))
async def version(call: Call) -> RegisteredSchema:
    """A version of a subject."""
    subject, number = await subject_of(call), version_of(call)
    found = await schemas_of(call).subjects.version(subject, number, deleted=call.flag("deleted"))
    return await shown(call, found.schema, found)


@entry("GET", f"{_VERSION}/schema", query=("deleted", "format"))
async def text(call: Call) -> Text:
    """A version of a subject, the text of its schema alone."""
    subject, number = await subject_of(call), version_of(call)
    found = await schemas_of(call).subjects.version(subject, number, deleted=call.flag("deleted"))
    return Text(str((await shown(call, found.schema)).schema))


@entry("GET", f"{_VERSION}/referencedby", answer=list[int], query=("deleted", *_PAGE))
async def referring(call: Call) -> list[int]:
    """The ids of schemas that refer to a version."""
    subject = await subject_of(call)
    found = await schemas_of(call).subjects.version(subject, version_of(call), deleted=True)
    ids = await schemas_of(call).lists.referring(subject, found.version, deleted=call.flag("deleted"))
    return page(call, ids)


@entry("POST", _VERSIONS, body=RegistrySchema, answer=RegisteredSchema, query=("normalize",))
async def register(call: Call) -> RegisteredSchema:
    """Register a schema, unless the subject has it, if it may follow what the subject has."""
    subject, schema, told = await subject_of(call), posted(call), call.body
    rules = await schemas_of(call).rules(subject, normalize=call.flag("normalize"))
    id = told.id if told.id is not None and told.id > 0 else None
    number = told.version if told.version is not None and told.version > 0 else None
    found = await schemas_of(call).subjects.register(subject, schema, rules, id=id, version=number)
    answer = await shown(call, found.schema, found)
    answer.schema = None  # clients go on with their own text: what is kept may be in another format
    return answer


@entry(
    "POST", _SUBJECT, body=RegistrySchema, answer=RegisteredSchema, query=("normalize", "deleted", "format")
)
async def find(call: Call) -> RegisteredSchema:
    """The version of a subject that is the same as a schema."""
    subject, schema = await subject_of(call), posted(call)
    rules = await schemas_of(call).rules(subject, normalize=call.flag("normalize"))
    found = await schemas_of(call).subjects.find(
        subject, schema, normalize=rules.normalize, deleted=call.flag("deleted")
    )
    return await shown(call, found.schema, found)


@entry("GET", f"{_SUBJECT}/metadata", answer=RegisteredSchema, query=("key", "value", "deleted", "format"))
async def by_metadata(call: Call) -> RegisteredSchema:
    """The last version of a subject whose metadata says what is asked for."""
    subject, is_deleted = await subject_of(call), call.flag("deleted")
    asked = dict(zip(call.several("key"), call.several("value"), strict=False))
    known = await schemas_of(call).lists.versions(subject, deleted=is_deleted)
    for number in reversed(known):
        found = await schemas_of(call).subjects.version(subject, number, deleted=is_deleted)
        if all(found.schema.group(name) == value for name, value in asked.items()):
            return await shown(call, found.schema, found)
    raise SchemaNotFound("Schema not found")


@entry("DELETE", _SUBJECT, answer=list[int], query=("permanent",))
async def remove(call: Call) -> list[int]:
    """Delete a subject: its versions, that they are not found unless asked for, or for good."""
    deletion = schemas_of(call).deletion
    return await deletion.delete_subject(await subject_of(call), permanent=call.flag("permanent"))


@entry("DELETE", _VERSION, answer=int, query=("permanent",))
async def remove_version(call: Call) -> int:
    """Delete a version of a subject."""
    deletion, number = schemas_of(call).deletion, version_of(call)
    return await deletion.delete_version(await subject_of(call), number, permanent=call.flag("permanent"))
