"""Protobuf compatibility: whether one file's readers can read another's data, by field numbers.

    a field comes, goes, is renamed            fine, unless it is required
    int32, int64, uint32, uint64, bool, enum   one group; string and bytes another; others each their own
    repeated or not                            fine for strings and bytes, not for numbers
    a message goes that was there              not fine; nor is another package
    into a oneof                               one field alone may; it may leave one
    out of a oneof, for good                   not fine, unless the whole oneof goes

The kinds of differences have the names that Kafka's users know from their registry.
"""

from collections.abc import Iterable, Iterator

from google.protobuf import descriptor_pb2 as pb

from anabranch.schemas.difference import MAX_DIFFERENCES, Difference
from anabranch.schemas.errors import InvalidSchema
from anabranch.schemas.protobuf import Parsed

MAX_LEVELS = 150

_Field = pb.FieldDescriptorProto
_GROUPS = {
    **dict.fromkeys(
        (
            _Field.TYPE_INT32,
            _Field.TYPE_INT64,
            _Field.TYPE_UINT32,
            _Field.TYPE_UINT64,
            _Field.TYPE_BOOL,
            _Field.TYPE_ENUM,
        ),
        "number",
    ),
    **dict.fromkeys((_Field.TYPE_SINT32, _Field.TYPE_SINT64), "signed number"),
    **dict.fromkeys((_Field.TYPE_STRING, _Field.TYPE_BYTES), "string or bytes"),
    **dict.fromkeys((_Field.TYPE_FIXED32, _Field.TYPE_SFIXED32), "32 bits"),
    **dict.fromkeys((_Field.TYPE_FIXED64, _Field.TYPE_SFIXED64), "64 bits"),
    _Field.TYPE_FLOAT: "float",
    _Field.TYPE_DOUBLE: "double",
}


def differences(new: Parsed, old: Parsed) -> list[Difference]:
    """What keeps who knows `new` from reading what was written by `old`."""
    return _Comparison(_Types(new), _Types(old)).of_files(new.file, old.file)[:MAX_DIFFERENCES]


class _Types:
    """The messages that a file knows, its own and those it imports, by their full names."""

    def __init__(self, parsed: Parsed) -> None:
        self.messages: dict[str, pb.DescriptorProto] = {}
        self.packages: dict[str, str] = {}
        for file in (*parsed.imports.values(), parsed.file):
            stem = f".{file.package}" if file.package else ""
            for name, message in _every(file.message_type, stem):
                self.messages[name] = message
                self.packages[name] = stem

    def is_map(self, field: "_Field") -> bool:
        message = self.messages.get(field.type_name)
        return message is not None and message.options.map_entry

    def local(self, name: str) -> str:
        """A name without its package, which is compared once, for the file."""
        return name.removeprefix(self.packages.get(name, ""))


def _every(messages: Iterable[pb.DescriptorProto], stem: str) -> Iterator[tuple[str, pb.DescriptorProto]]:
    for message in messages:
        name = f"{stem}.{message.name}"
        yield name, message
        yield from _every(message.nested_type, name)


class _Comparison:
    def __init__(self, new: _Types, old: _Types) -> None:
        self._new = new
        self._old = old
        self._seen: set[tuple[str, str]] = set()
        self._level = 0

    def of_files(self, new: pb.FileDescriptorProto, old: pb.FileDescriptorProto) -> list[Difference]:
        found = []
        if new.package != old.package:
            told = f"package {old.package!r} of the {{writer}} schema is {new.package!r} in the {{reader}}"
            found.append(Difference("PACKAGE_CHANGED", "/", told))
        stems = [f".{file.package}" if file.package else "" for file in (new, old)]
        names = [message.name for message in new.message_type], [message.name for message in old.message_type]
        return found + self._of_all((stems[0], names[0]), (stems[1], names[1]), "")

    def _of_all(self, new: tuple[str, list[str]], old: tuple[str, list[str]], path: str) -> list[Difference]:
        """Of the messages of those names, below what stands before them."""
        found: list[Difference] = []
        there = set(new[1])
        for name in old[1]:
            was = f"{old[0]}.{name}"
            if name in there:
                found += self._of_messages(f"{new[0]}.{name}", was, f"{path}/{name}")
            elif not self._old.messages[was].options.map_entry:
                told = f"the {{reader}} schema lacks the message {name}"
                found.append(Difference("MESSAGE_REMOVED", f"{path}/{name}", told))
        return found

    def _of_messages(self, now: str, was: str, path: str) -> list[Difference]:
        """Of two messages by their full names, once: what differs has been told then."""
        if (now, was) in self._seen:
            return []
        self._seen.add((now, was))
        if self._level > MAX_LEVELS:
            raise InvalidSchema("the schemas are too intricate to be compared")
        self._level += 1
        new, old = self._new.messages[now], self._old.messages[was]
        before, after = _by_number(old), _by_number(new)
        found = _oneofs(new, old, before, after, path)
        for number in sorted({*before, *after}):
            found += self._of_number(after.get(number), before.get(number), f"{path}/{number}")
        nested = [message.name for message in new.nested_type], [message.name for message in old.nested_type]
        found += self._of_all((now, nested[0]), (was, nested[1]), path)
        self._level -= 1
        return found

    def _of_number(self, now: "_Field | None", was: "_Field | None", path: str) -> list[Difference]:
        if was is not None and now is not None:
            return self._of_fields(now, was, path)
        if now is not None and now.label == _Field.LABEL_REQUIRED:
            told = f"the {{reader}} schema asks for {now.name}, which the {{writer}} schema lacks"
            return [Difference("REQUIRED_FIELD_ADDED", path, told)]
        if was is not None and was.label == _Field.LABEL_REQUIRED:
            told = f"the {{reader}} schema lacks {was.name}, which the {{writer}} schema asks for"
            return [Difference("REQUIRED_FIELD_REMOVED", path, told)]
        return []

    def _of_fields(self, new: _Field, old: _Field, path: str) -> list[Difference]:
        now, was = _GROUPS.get(new.type, "message"), _GROUPS.get(old.type, "message")
        maps = self._new.is_map(new), self._old.is_map(old)
        if (now == "message") != (was == "message") or maps[0] != maps[1]:
            told = f"{old.name} is a {was} in the {{writer}} schema and a {now} in the {{reader}} one"
            return [Difference("FIELD_KIND_CHANGED", path, told)]
        if now == "message":
            return self._of_message_fields(new, old, path)
        if now != was:
            told = f"{old.name} is a {was} in the {{writer}} schema and a {now} in the {{reader}} one"
            return [Difference("FIELD_SCALAR_KIND_CHANGED", path, told)]
        is_repeated = [side.label == _Field.LABEL_REPEATED for side in (new, old)]
        if is_repeated[0] != is_repeated[1] and now != "string or bytes":
            told = f"{old.name} is repeated in one of the schemas alone"
            return [Difference("FIELD_NUMERIC_LABEL_CHANGED", path, told)]
        return []

    def _of_message_fields(self, new: _Field, old: _Field, path: str) -> list[Difference]:
        now, was = self._new.messages.get(new.type_name), self._old.messages.get(old.type_name)
        if not self._new.is_map(new) and self._new.local(new.type_name) != self._old.local(old.type_name):
            told = f"{old.name}, {old.type_name[1:]}, is {new.type_name[1:]} in the {{reader}} schema"
            return [Difference("FIELD_NAMED_TYPE_CHANGED", path, told)]
        if now is None or was is None:
            return []  # of google/protobuf, the same to everybody
        return self._of_messages(new.type_name, old.type_name, path)


def _by_number(message: pb.DescriptorProto) -> dict[int, _Field]:
    return {field.number: field for field in message.field}


def _group_of(message: pb.DescriptorProto, field: _Field) -> str | None:
    """The oneof that a field is in; an optional field's own is none."""
    if not field.HasField("oneof_index") or field.proto3_optional:
        return None
    return message.oneof_decl[field.oneof_index].name


def _oneofs(
    new: pb.DescriptorProto,
    old: pb.DescriptorProto,
    before: dict[int, _Field],
    after: dict[int, _Field],
    path: str,
) -> list[Difference]:
    """Fields that exclude each other now and did not, and those that left a oneof for good."""
    found = []
    came_from: dict[str, list[str]] = {}
    for number, field in after.items():
        group, was = _group_of(new, field), before.get(number)
        if group is not None and was is not None:
            came_from.setdefault(group, []).append(_group_of(old, was) or f"={number}")
    for group, origins in came_from.items():
        single = sum(origin.startswith("=") for origin in origins)
        if len(set(origins)) > 1:
            kind = "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if single > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF"
            told = f"fields of oneof {group} exclude each other in the {{reader}} schema alone"
            found.append(Difference(kind, f"{path}/{group}", told))
    left = {name for field in after.values() if (name := _group_of(new, field))}
    kept = {_group_of(old, field) for number, field in before.items() if number in after}
    for number, field in before.items():
        group = _group_of(old, field)
        if group is not None and number not in after and (group in left or group in kept):
            told = f"the {{reader}} schema lacks {field.name} of oneof {group}"
            found.append(Difference("ONEOF_FIELD_REMOVED", f"{path}/{group}/{number}", told))
    return found
