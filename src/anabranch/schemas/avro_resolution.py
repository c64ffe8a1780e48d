"""Avro schema resolution: whether a reader's schema can read what was written by another.

    reader            writer          can read
    long              int             yes, and float, double; string and bytes go for each other
    a union           anything        if a branch of it can
    anything          a union         if it can read each branch
    record            record          if each field of the reader's is in the writer's or has a default

Names of enumerations and fixed types must be the same.  The registry that Kafka's users know also compares
the names of records and the symbols of enumerations (`strict`).  Pulsar's brokers compare neither, since only
a message that has a symbol which the reader lacks cannot be read.

A pair of records that is being looked at is taken to be readable; steps are counted.
"""

from typing import Any

from anabranch.schemas.avro import RECORDS, Parsed
from anabranch.schemas.difference import MAX_DIFFERENCES, Difference
from anabranch.schemas.errors import InvalidSchema

MAX_STEPS = 100_000

PROMOTED = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "string": ("bytes",),
    "bytes": ("string",),
}
"""What else each type reads."""
_FINE: list[Difference] = []


def differences(reader: Parsed, writer: Parsed, *, strict: bool) -> list[Difference]:
    """What keeps `reader` from reading what was written by `writer`; nothing if it can."""
    return _Resolution(reader, writer, strict).of(reader.root, writer.root, "")[:MAX_DIFFERENCES]


class _Resolution:
    def __init__(self, reader: Parsed, writer: Parsed, strict: bool) -> None:
        self._reader = reader
        self._writer = writer
        self._strict = strict
        self._seen: dict[tuple[str, str], list[Difference]] = {}
        self._steps = 0

    def of(self, reader: Any, writer: Any, at: str) -> list[Difference]:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise InvalidSchema("the schemas are too intricate to be compared")
        reader, writer = self._reader.resolve(reader), self._writer.resolve(writer)
        if isinstance(writer, list):
            return [problem for branch in writer for problem in self.of(reader, branch, at)]
        if isinstance(reader, list):
            if any(not self.of(branch, writer, at) for branch in reader):
                return _FINE
            told = (
                f"no branch of the {{reader}} schema's union reads {_type(writer)} of the {{writer}} schema"
            )
            return [Difference("MISSING_UNION_BRANCH", at, told)]
        return self._of_one(reader, writer, at)

    def _of_one(self, reader: Any, writer: Any, at: str) -> list[Difference]:
        kind, other = _type(reader), _type(writer)
        if kind in RECORDS and other in RECORDS:
            return self._names(reader, writer, at) if self._strict else self._of_records(reader, writer, at)
        if kind != other:
            if other in PROMOTED.get(kind, ()):
                return _FINE
            told = f"{other} of the {{writer}} schema cannot be read as {kind} of the {{reader}} schema"
            return [Difference("TYPE_MISMATCH", at, told)]
        if kind == "array":
            return self.of(reader["items"], writer["items"], f"{at}/items")
        if kind == "map":
            return self.of(reader["values"], writer["values"], f"{at}/values")
        if kind in ("fixed", "enum"):
            return self._of_named(kind, reader, writer, at)
        return _FINE

    def _of_named(self, kind: str, reader: Any, writer: Any, at: str) -> list[Difference]:
        if not _same_name(reader, writer, self._strict):
            return [_renamed(reader, writer, at)]
        if kind == "fixed" and reader["size"] != writer["size"]:
            sizes = (
                f"{writer['size']} bytes in the {{writer}} schema and {reader['size']} in the {{reader}} one"
            )
            return [Difference("FIXED_SIZE_MISMATCH", at, f"{writer['name']} has {sizes}")]
        if kind == "enum" and self._strict and "default" not in reader:
            known = set(reader["symbols"])
            missing = [symbol for symbol in writer["symbols"] if symbol not in known]
            if missing:
                told = (
                    f"the {{reader}} schema lacks the symbols {', '.join(missing[:20])} of {writer['name']}"
                )
                return [Difference("MISSING_ENUM_SYMBOLS", at, told)]
        return _FINE

    def _names(self, reader: Any, writer: Any, at: str) -> list[Difference]:
        renamed = [] if _same_name(reader, writer, True) else [_renamed(reader, writer, at)]
        return renamed + self._of_records(reader, writer, at)

    def _of_records(self, reader: Any, writer: Any, at: str) -> list[Difference]:
        pair = (reader["name"], writer["name"])
        if pair in self._seen:
            return self._seen[pair]
        self._seen[pair] = _FINE
        found: list[Difference] = []
        written = {field["name"]: field for field in writer["fields"]}
        for field in reader["fields"]:
            names = (field["name"], *field.get("aliases", ()))
            source = next((written[name] for name in names if name in written), None)
            place = f"{at}/{field['name']}"
            if source is not None:
                found += self.of(field["type"], source["type"], place)
            elif "default" not in field:
                told = f"{field['name']} has no default in the {{reader}} schema, and the {{writer}} lacks it"
                found.append(Difference("READER_FIELD_MISSING_DEFAULT_VALUE", place, told))
            if len(found) >= MAX_DIFFERENCES:
                break
        self._seen[pair] = found
        return found


def _same_name(reader: Any, writer: Any, strict: bool) -> bool:
    """By the last part of it or an alias, as Avro's own check of compatibility does; else as a whole."""
    if not strict:
        return bool(reader["name"] == writer["name"])
    names = {str(alias).rpartition(".")[2] for alias in reader.get("aliases", ())}
    return writer["name"].rpartition(".")[2] in names | {reader["name"].rpartition(".")[2]}


def _renamed(reader: Any, writer: Any, at: str) -> Difference:
    told = f"{writer['name']} of the {{writer}} schema is {reader['name']} in the {{reader}} one"
    return Difference("NAME_MISMATCH", at, told)


def _type(schema: Any) -> str:
    return str(schema["type"] if isinstance(schema, dict) else schema)
