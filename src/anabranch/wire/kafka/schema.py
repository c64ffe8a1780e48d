"""Kafka's message schemas: kio's dataclasses, one per message and version.

`decoder` and `encoder` are compiled from these.  kio's own native readers are not used on what a
socket brings: they reserve memory for as many items as a length field claims, and a claim of 2^31
ends the process.

kio imports hypothesis when that is installed, which costs a third of a second that only kio's own
tests have a use for; it is hidden from kio during the import.
"""

import sys
from functools import cache
from typing import Any, cast

_hidden = [name for name in ("hypothesis", "hypothesis.strategies") if name not in sys.modules]
for _name in _hidden:
    sys.modules[_name] = None  # type: ignore[assignment]
try:
    from kio.index import load_request_schema, load_response_schema
    from kio.schema.errors import ErrorCode
    from kio.schema.index import api_key_map, schema_name_map
    from kio.serial._introspect import (
        EntityField,
        EntityTupleField,
        classify_field,
        get_field_tag,
        is_optional,
    )
finally:
    for _name in _hidden:
        del sys.modules[_name]

__all__ = [
    "EntityField",
    "EntityTupleField",
    "ErrorCode",
    "answers_flexibly",
    "api_name",
    "classify_field",
    "get_field_tag",
    "is_flexible",
    "is_optional",
    "newest_version",
    "request_schema",
    "response_schema",
    "versions_of",
]


def api_name(api_key: int) -> str:
    """`describe_configs` for 32.  KeyError if there is no such API."""
    return api_key_map[api_key]


def versions_of(api_key: int) -> list[int]:
    return sorted(schema_name_map[api_name(api_key)])


def newest_version(api_key: int) -> int:
    return versions_of(api_key)[-1]


@cache
def request_schema(api_key: int, version: int) -> Any:
    return load_request_schema(api_key, version)


@cache
def response_schema(api_key: int, version: int) -> Any:
    return load_response_schema(api_key, version)


@cache
def is_flexible(api_key: int, version: int) -> bool:
    """Whether the request's header ends in tagged fields."""
    return bool(cast(Any, request_schema(api_key, version)).__header_schema__.__flexible__)


@cache
def answers_flexibly(api_key: int, version: int) -> bool:
    """Whether the answer's header ends in tagged fields (never so for ApiVersions)."""
    return bool(cast(Any, response_schema(api_key, version)).__header_schema__.__flexible__)
