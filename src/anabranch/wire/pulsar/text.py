"""Text in commands must be UTF-8: the library gives bytes where it is not, and nobody expects those."""

from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from anabranch.base.errors import Corrupt


@cache
def has_text(kind: Descriptor) -> bool:
    """Whether messages of this kind hold strings, in themselves or further inside."""
    return _has_text(kind, frozenset())


def _has_text(kind: Descriptor, seen: frozenset[str]) -> bool:
    if kind.full_name in seen:  # message ids hold message ids
        return False
    seen |= {kind.full_name}
    return any(
        field.type == FieldDescriptor.TYPE_STRING
        or (field.message_type is not None and _has_text(field.message_type, seen))
        for field in kind.fields
    )


def check_text(message: Message) -> None:
    """Corrupt if a string in it is none."""
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_STRING:
            for text in _each(value):
                if type(text) is not str:
                    raise Corrupt(f"{field.name} is not UTF-8")
        elif field.message_type is not None and has_text(field.message_type):
            for inner in _each(value):
                check_text(inner)


def _each(value: Any) -> Any:
    return (value,) if isinstance(value, str | bytes | Message) else value
