"""Field names: those that a message has in any version, to tell a typo from a field of other versions.

    {"eror_code": 17}          in no version of the answer: KeyError
    {"topic_id": ...}          in newer versions: left out of the older ones

An encoder takes what it knows from a dict and would send the rest as the schema's default, so an error
code with a typo is a success.  Looking for that costs as much as writing the message, so it is done in
tests and debug runs only (`encoder.IS_STRICT`), by an encoder that was compiled for it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from anabranch.wire.kafka.schema import EntityField, EntityTupleField, classify_field

_Write = Callable[[bytearray, Mapping[str, Any]], None]

Known = Mapping[str, Any]
"""By name what stands below a field: the `Known` of a struct or of an array's structs, or nothing."""


def known_fields(entities: Iterable[Any]) -> Known:
    """The fields that at least one of `entities`, versions of the same message, has."""
    parts: dict[str, list[Any]] = {}
    for entity in entities:
        for field in fields(entity):
            kind = classify_field(field)
            nested = parts.setdefault(field.name, [])
            if isinstance(kind, EntityField | EntityTupleField):
                nested.append(kind.type_)
    return {name: known_fields(nested) for name, nested in parts.items()}


def unknown_fields(known: Known, value: Any, path: str = "") -> Iterator[str]:
    """Where `value` has what is not `known`: `topics[].eror_code`.  Bytes are an item already written."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            if name not in known:
                yield path + name
            else:
                yield from unknown_fields(known[name], item, f"{path}{name}.")
    elif isinstance(value, list | tuple):
        for item in value:
            yield from unknown_fields(known, item, f"{path.removesuffix('.')}[].")


def refusing_unknown(write: _Write, name: str, version: Known, any_version: Callable[[], Known]) -> _Write:
    """`write`, after a look at the names.  Other versions are loaded only for a name that `version` lacks."""

    def write_known(out: bytearray, value: Mapping[str, Any]) -> None:
        if any(unknown_fields(version, value)):
            unknown = dict.fromkeys(unknown_fields(any_version(), value))
            if unknown:
                raise KeyError(f"{name} has no {', '.join(unknown)}")
        write(out, value)

    return write_known
