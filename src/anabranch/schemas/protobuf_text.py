"""A Protobuf descriptor as the text of a file: for people, and for clients that want text.

Compiling the text gives the descriptor again, but for comments, which a descriptor does not have, and options
that extensions define, which are left out since nothing here knows them.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from google.protobuf import descriptor_pb2 as pb
from google.protobuf.message import Message

from anabranch.schemas.errors import InvalidSchema

_Field = pb.FieldDescriptorProto
_INDENT = "  "
_MAX_NUMBER = 536_870_912  # one beyond the last number that a field may have
_SCALARS = {
    number: name.removeprefix("TYPE_").lower()
    for name, number in _Field.Type.items()
    if number not in (_Field.TYPE_MESSAGE, _Field.TYPE_ENUM, _Field.TYPE_GROUP)
}


def text_of(file: pb.FileDescriptorProto) -> str:
    is_proto2 = file.syntax in ("", "proto2")
    blocks = [[_syntax(file)]]
    if file.package:
        blocks.append([f"package {file.package};"])
    blocks.append([_import(file, index) for index in range(len(file.dependency))])
    blocks.append([f"option {option};" for option in _options(file.options)])
    blocks += [_message(message, is_proto2) for message in file.message_type]
    blocks += [_enum(enum) for enum in file.enum_type]
    blocks += _extensions(file.extension, is_proto2)
    blocks += [_service(service) for service in file.service]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _syntax(file: pb.FileDescriptorProto) -> str:
    if file.syntax == "editions":
        return f'edition = "{pb.Edition.Name(file.edition).removeprefix("EDITION_")}";'
    return f'syntax = "{file.syntax or "proto2"}";'


def _import(file: pb.FileDescriptorProto, index: int) -> str:
    kind = "public " if index in file.public_dependency else "weak " if index in file.weak_dependency else ""
    return f'import {kind}"{file.dependency[index]}";'


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"{_INDENT}{line}" for line in lines]


def _block(head: str, lines: Iterable[str]) -> list[str]:
    return [f"{head} {{", *_indented(lines), "}"]


def _options(options: Message) -> list[str]:
    return [
        f"{field.name} = {_literal(value, field)}"
        for field, value in options.ListFields()
        if not field.is_extension and field.name not in ("map_entry", "uninterpreted_option", "features")
        if field.message_type is None
    ]


def _literal(value: Any, field: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if field.enum_type is not None:
        return str(field.enum_type.values_by_number[value].name)
    return _quoted(value) if isinstance(value, str) else str(value)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _message(message: pb.DescriptorProto, is_proto2: bool) -> list[str]:
    return _block(f"message {message.name}", _inside(message, is_proto2))


def _inside(message: pb.DescriptorProto, is_proto2: bool) -> Iterator[str]:
    yield from (f"option {option};" for option in _options(message.options))
    nested = {inner.name: inner for inner in message.nested_type}
    groups = {_last_name(field) for field in message.field if field.type == _Field.TYPE_GROUP}
    for name, inner in nested.items():
        if not inner.options.map_entry and name not in groups:
            yield from _message(inner, is_proto2)
    for enum in message.enum_type:
        yield from _enum(enum)
    together: dict[int, list[_Field]] = {}
    for field in message.field:
        if _is_in_oneof(field):
            together.setdefault(field.oneof_index, []).append(field)
    for field in message.field:
        if not _is_in_oneof(field):
            yield from _declared(field, nested, is_proto2)
        elif fields := together.pop(field.oneof_index, None):
            lines = (line for each in fields for line in _declared(each, nested, False))
            yield from _block(f"oneof {message.oneof_decl[field.oneof_index].name}", lines)
    yield from _reserved(message.reserved_range, message.reserved_name, _MAX_NUMBER, 1)
    for numbers in message.extension_range:
        yield f"extensions {_range(numbers.start, numbers.end - 1, _MAX_NUMBER - 1)};"
    for block in _extensions(message.extension, is_proto2):
        yield from block


def _is_in_oneof(field: _Field) -> bool:
    return field.HasField("oneof_index") and not field.proto3_optional


def _last_name(field: _Field) -> str:
    return field.type_name.rpartition(".")[2]


def _declared(field: _Field, nested: Mapping[str, pb.DescriptorProto], is_proto2: bool) -> list[str]:
    """A field of a message that has messages of its own, by their names: maps and groups are such."""
    inner = nested.get(_last_name(field))
    if field.type == _Field.TYPE_GROUP:
        if inner is None:
            raise InvalidSchema(
                f"this is no Protobuf schema: the group {field.name[:100]} is another's message"
            )
        return _block(f"{_label(field, is_proto2)}group {inner.name} = {field.number}", _inside(inner, True))
    if inner is not None and inner.options.map_entry:
        return [_map(field, inner)]
    return [_field(field, is_proto2)]


def _label(field: _Field, is_proto2: bool) -> str:
    if field.label == _Field.LABEL_REPEATED:
        return "repeated "
    if field.label == _Field.LABEL_REQUIRED:
        return "required "
    return "optional " if field.proto3_optional or is_proto2 else ""


def _type(field: _Field) -> str:
    return _SCALARS.get(field.type) or field.type_name


def _field(field: _Field, is_proto2: bool) -> str:
    head = f"{_label(field, is_proto2)}{_type(field)} {field.name} = {field.number}"
    return f"{head}{_field_options(field)};"


def _map(field: _Field, entry: pb.DescriptorProto) -> str:
    key, value = entry.field
    return f"map<{_type(key)}, {_type(value)}> {field.name} = {field.number}{_field_options(field)};"


def _field_options(field: _Field) -> str:
    options = _options(field.options)
    if field.HasField("default_value"):
        is_text = field.type in (_Field.TYPE_STRING, _Field.TYPE_BYTES)
        value = field.default_value
        shown = f'"{value}"' if field.type == _Field.TYPE_BYTES else _quoted(value) if is_text else value
        options.insert(0, f"default = {shown}")
    first, *others = field.name.split("_")
    usual = first + "".join(part[:1].upper() + part[1:] for part in others)
    if field.json_name not in ("", usual):
        options.append(f"json_name = {_quoted(field.json_name)}")
    return f" [{', '.join(options)}]" if options else ""


def _range(start: int, last: int, end: int) -> str:
    return str(start) if start == last else f"{start} to {'max' if last >= end else last}"


def _reserved(ranges: Iterable[Any], names: Iterable[str], end: int, beyond: int) -> Iterator[str]:
    """`beyond` is what lies between the last number and what the descriptor calls the end."""
    for numbers in ranges:
        yield f"reserved {_range(numbers.start, numbers.end - beyond, end - 1)};"
    for name in names:
        yield f'reserved "{name}";'


def _enum(enum: pb.EnumDescriptorProto) -> list[str]:
    lines = [f"option {option};" for option in _options(enum.options)]
    for value in enum.value:
        options = _options(value.options)
        shown = f" [{', '.join(options)}]" if options else ""
        lines.append(f"{value.name} = {value.number}{shown};")
    lines += _reserved(enum.reserved_range, enum.reserved_name, 1 << 31, 0)
    return _block(f"enum {enum.name}", lines)


def _extensions(fields: Iterable[_Field], is_proto2: bool) -> list[list[str]]:
    by_message: dict[str, list[str]] = {}
    for field in fields:
        by_message.setdefault(field.extendee, []).append(_field(field, is_proto2))
    return [_block(f"extend {name}", lines) for name, lines in by_message.items()]


def _service(service: pb.ServiceDescriptorProto) -> list[str]:
    lines = []
    for method in service.method:
        taken = f"{'stream ' if method.client_streaming else ''}{method.input_type}"
        given = f"{'stream ' if method.server_streaming else ''}{method.output_type}"
        lines.append(f"rpc {method.name} ({taken}) returns ({given});")
    return _block(f"service {service.name}", lines)
