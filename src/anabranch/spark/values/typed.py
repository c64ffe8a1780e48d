"""Schema-aware reads: which columns a topic has when its values are read by their schema, and those columns.

    valueSchema=registry       the fields of the value in place of `value`; what is no record stays one column
    valueAs=struct             all in one column, `value`
    keySchema=registry         `key` is what its schema says

    mode=FAILFAST              a record that is no value of its schema ends the query, which says where it is
    mode=PERMISSIVE            its columns are null, and two more say what it was and why: _corrupt_record
                               (what the record holds) and _corrupt_reason; both are null for all others

What travels to executors is small: schemas as text and the registry's address.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from anabranch.base.errors import Corrupt, Invalid
from anabranch.records.headers import SCHEMA_VERSION
from anabranch.spark.header_values import header_values
from anabranch.spark.options import OF_SCHEMAS, Options
from anabranch.spark.values.reading import Reasons, Target, read_column, target_of, type_of
from anabranch.spark.values.registry import Registry, registry_of
from anabranch.spark.varints import Ints

CORRUPT_RECORD, CORRUPT_REASON = "_corrupt_record", "_corrupt_reason"
_VERSION_BYTES = 8
_VERSION = SCHEMA_VERSION.decode()


class Side(NamedTuple):
    """Keys or values."""

    what: str
    targets: tuple[Target, ...]
    subject: str | None
    version: int | None
    type: pa.DataType
    spread: bool
    """Whether fields are columns of their own."""

    def columns(self) -> dict[str, pa.DataType]:
        if self.spread and pa.types.is_struct(self.type):
            return {field.name: field.type for field in self.type}
        return {self.what: self.type}

    def target(self, registry: Registry, topic: str) -> Target:
        for one in self.targets:
            if one.topic == topic:
                return one
        return _new_target(registry, topic, self)  # a topic that has come up since


class Typed(NamedTuple):
    """What is read by schemas.  Travels to executors."""

    registry: Registry
    sides: tuple[Side, ...]
    permissive: bool

    def columns(self, plain: dict[str, pa.DataType]) -> dict[str, pa.DataType]:
        """The columns there are, if without schemas they are `plain`."""
        found: dict[str, pa.DataType] = {}
        by_side = {side.what: side for side in self.sides}
        for name, type in plain.items():
            found |= by_side[name].columns() if name in by_side else {name: type}
        spread = {name for side in self.sides if side.spread for name in side.columns()} - {"value"}
        if clash := sorted(spread & (plain.keys() | {CORRUPT_RECORD, CORRUPT_REASON})):
            raise Invalid(
                f"the schema's field {clash[0]} has the name of a topic's column; set the option valueAs to "
                "struct to have the value's fields in one column"
            )
        if self.permissive:
            found |= {CORRUPT_RECORD: pa.binary(), CORRUPT_REASON: pa.string()}
        return found


class Records(NamedTuple):
    """Records of one partition, as they came."""

    topic: str
    partition: int
    offsets: Ints
    keys: pa.BinaryArray
    values: pa.BinaryArray
    headers: pa.ListArray | None
    """None if no record has one."""


def typed_of(options: Options, topics: Callable[[], Iterable[str]]) -> Typed:
    """What the options ask for, one of which at least is of schemas.  Invalid, NotFound."""
    asked = [what for what in ("value", "key") if options.text(f"{what}Schema") is not None]
    for name in OF_SCHEMAS:
        what = next((one for one in ("value", "key") if name.startswith(one)), None)
        if options.text(name) is not None and (not asked or (what is not None and what not in asked)):
            raise Invalid(f"the option {name} has no meaning without {what or 'value'}Schema set to registry")
    for what in asked:
        options.choice(f"{what}Schema", ("registry",), "registry")
    registry = registry_of(options)
    names = sorted(set(topics()))
    if not names:
        raise Invalid("there is no topic yet whose schema could be read")
    sides = tuple(_side(options, registry, what, names) for what in asked)
    return Typed(registry, sides, _is_permissive(options))


def _is_permissive(options: Options) -> bool:
    mode = (options.text("mode") or "FAILFAST").upper()
    if mode == "DROPMALFORMED":
        raise Invalid(
            "mode DROPMALFORMED would lose records unseen: use PERMISSIVE, and filter by _corrupt_reason"
        )
    if mode not in ("FAILFAST", "PERMISSIVE"):
        raise Invalid(f"the option mode is {mode!r}, not one of FAILFAST, PERMISSIVE")
    return mode == "PERMISSIVE"


def _side(options: Options, registry: Registry, what: str, topics: list[str]) -> Side:
    subject = options.text(f"{what}Subject")
    version = options.whole(f"{what}SchemaVersion")
    targets = [target_of(registry, topic, subject or f"{topic}-{what}", version) for topic in topics]
    types = [type_of(one.schema) for one in targets]
    for target, type in zip(targets, types, strict=True):
        if type != types[0]:
            raise Invalid(
                f"topics {targets[0].topic!r} and {target.topic!r} have schemas that are different columns: "
                "read them one by one"
            )
    spread = what == "value" and options.choice("valueAs", ("columns", "struct"), "columns") == "columns"
    return Side(what, tuple(targets), subject, version, types[0], spread)


@lru_cache(maxsize=1000)
def _found_later(registry: Registry, topic: str, subject: str, version: int | None) -> Target:
    return target_of(registry, topic, subject, version)


def _new_target(registry: Registry, topic: str, side: Side) -> Target:
    found = _found_later(registry, topic, side.subject or f"{topic}-{side.what}", side.version)
    if type_of(found.schema) != side.type:
        raise Invalid(f"the schema of topic {topic!r}, which is new, is not that of the others")
    return found


# --- in the executors


def typed_columns(typed: Typed, records: Records, names: Iterable[str]) -> dict[str, pa.Array]:
    """Those of the columns `names` that schemas make.  Corrupt if a bad record is to end the query."""
    wanted = set(names)
    versions = _versions(records)
    made: dict[str, pa.Array] = {}
    reasons: Reasons = {}
    wrong = {"value": records.values, "key": records.keys}
    corrupt = pa.nulls(len(records.offsets), pa.binary())
    for side in typed.sides:
        columns = side.columns()
        if not (wanted & columns.keys()) and not typed.permissive:
            continue
        found, told = _read(typed.registry, side, records, versions, frozenset(wanted))
        made |= found
        if told and not typed.permissive:
            raise _failure(side.what, records, told)
        new = {row: f"the {side.what}: {reason}" for row, reason in told.items() if row not in reasons}
        corrupt = _with(corrupt, wrong[side.what], list(new))
        reasons |= new
    if typed.permissive:
        made[CORRUPT_RECORD] = corrupt
        made[CORRUPT_REASON] = _reasons_column(reasons, len(records.offsets))
    return made


def _read(
    registry: Registry, side: Side, records: Records, versions: Ints, wanted: frozenset[str]
) -> tuple[dict[str, pa.Array], Reasons]:
    column = records.values if side.what == "value" else records.keys
    target = side.target(registry, records.topic)
    no_versions: Ints = np.full(len(column), -1, np.int64)
    spread = side.spread and pa.types.is_struct(side.type)
    # Keys are framed or not, whatever the version of the value.
    chosen = versions if side.what == "value" else no_versions
    found, reasons = read_column(registry, target, column, chosen, wanted if spread else None)
    if not spread:
        return {side.what: found}, reasons
    return {field.name: part for field, part in zip(found.type, found.flatten(), strict=True)}, reasons


def _versions(records: Records) -> Ints:
    """The version of its schema that each of Pulsar's messages names, -1 for others."""
    none: Ints = np.full(len(records.offsets), -1, np.int64)
    if records.headers is None:
        return none
    told = header_values(records.headers, _VERSION)
    if told.null_count == len(told):
        return none
    encoded = told.dictionary_encode()
    numbers = [
        int.from_bytes(one, "big") if len(one) == _VERSION_BYTES and one[0] < 128 else -1
        for one in encoded.dictionary.to_pylist()
    ]
    codes = encoded.indices.fill_null(len(numbers))
    found: Ints = np.array([*numbers, -1], np.int64)[np.asarray(codes)]
    return found


def _failure(what: str, records: Records, reasons: Reasons) -> Corrupt:
    row = min(reasons)
    others = f" ({len(reasons) - 1} more near it)" if len(reasons) > 1 else ""
    place = f"offset {records.offsets[row]} of {records.topic}-{records.partition}"
    return Corrupt(
        f"the {what} at {place} cannot be read by its schema: {reasons[row]}{others}. Set the option mode to "
        f"PERMISSIVE to go on, with what is wrong in the columns {CORRUPT_RECORD} and {CORRUPT_REASON}"
    )


def _with(corrupt: pa.BinaryArray, column: pa.BinaryArray, rows: list[int]) -> pa.BinaryArray:
    """`corrupt`, with the rows `rows` of `column`."""
    if not rows:
        return corrupt
    order: Ints = np.arange(len(corrupt))
    order[rows] += len(corrupt)
    return pa.concat_arrays([corrupt, column]).take(pa.array(order))


def _reasons_column(reasons: Reasons, count: int) -> pa.StringArray:
    if not reasons:
        return pa.nulls(count, pa.string())
    return pa.array([reasons.get(row) for row in range(count)], pa.string())
