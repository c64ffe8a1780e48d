"""Avro's binary form into columns: a node for each part of the writer's schema, reading it from all values.

A node's `read` gives the column of its part, one element for every place of the cursor, in the type that the
reader wants, and moves the cursor on; `skip` only moves it.  `after` goes over the part in one value alone,
and is for `avro_items`, where arrays and maps are.  Which node stands for what is decided in `avro_plan`;
here nobody knows two schemas.

A number is 50 ns per value or less, text some more; a nullable field costs one pass over those that have it.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.spark.values.cursor import Cursor
from anabranch.spark.varints import Ints

_LONGEST_BITS = 70


class Node(ABC):
    type: pa.DataType
    """Of the column."""

    @abstractmethod
    def read(self, cursor: Cursor) -> pa.Array: ...

    def skip(self, cursor: Cursor) -> None:
        self.read(cursor)

    @abstractmethod
    def after(self, data: bytes, at: int) -> int:
        """Where the part ends that begins at `at`.  IndexError or ValueError if it does not, usually."""


def number_at(data: bytes, at: int) -> tuple[int, int]:
    """A number, and where it ends."""
    value, shift = data[at] & 127, 7
    while data[at] > 127:
        at += 1
        value |= (data[at] & 127) << shift
        shift += 7
        if shift > _LONGEST_BITS:
            raise ValueError("a number is longer than ten bytes")
    return (value >> 1) ^ -(value & 1), at + 1


def _after_number(data: bytes, at: int) -> int:
    while data[at] > 127:
        at += 1
    return at + 1


def _after_text(data: bytes, at: int) -> int:
    size, at = number_at(data, at)
    if size < 0:
        raise ValueError("a length is negative")
    return at + size


class Null(Node):
    def __init__(self, type: pa.DataType) -> None:
        self.type = type

    def read(self, cursor: Cursor) -> pa.Array:
        return pa.nulls(len(cursor), self.type)

    def after(self, data: bytes, at: int) -> int:
        return at


class Refused(Node):
    """What the reader's schema has no place for: a value that has it is none."""

    def __init__(self, type: pa.DataType, reason: str) -> None:
        self.type = type
        self._reason = reason

    def read(self, cursor: Cursor) -> pa.Array:
        cursor.fail(np.ones(len(cursor), np.bool_), self._reason)
        return pa.nulls(len(cursor), self.type)

    def after(self, data: bytes, at: int) -> int:
        return at  # `read` refuses the value, wherever it ends


class Again(Node):
    """A part that stands elsewhere, too: what a type that contains itself needs to be passed over."""

    type = pa.null()

    def __init__(self) -> None:
        self.node: Node = self

    def read(self, cursor: Cursor) -> pa.Array:
        raise AssertionError("a type that contains itself is no column")

    def skip(self, cursor: Cursor) -> None:
        if len(cursor):
            self.node.skip(cursor)

    def after(self, data: bytes, at: int) -> int:
        return self.node.after(data, at)


class Number(Node):
    """An int or a long, as another number, a date or a time."""

    def __init__(self, type: pa.DataType, bits: int, unit_us: int = 1) -> None:
        self.type = type
        self._bits = bits
        self._unit_us = unit_us

    def read(self, cursor: Cursor) -> pa.Array:
        numbers = cursor.number()
        most = (1 << (self._bits - 1)) // self._unit_us
        if most < 1 << 63:
            out = (numbers >= most) | (numbers < -most)
            if out.any():
                cursor.fail(out, f"a number is out of the range of {self.type}")
                numbers = np.where(out, 0, numbers)
        if self._unit_us != 1:
            numbers = numbers * self._unit_us
        if pa.types.is_temporal(self.type):
            wide = numbers.astype(np.int32) if pa.types.is_date32(self.type) else numbers
            return pa.array(wide).view(self.type)
        return pa.array(numbers.astype(self.type.to_pandas_dtype()))

    def skip(self, cursor: Cursor) -> None:
        cursor.number()

    def after(self, data: bytes, at: int) -> int:
        return _after_number(data, at)


class Real(Node):
    """A float or a double."""

    def __init__(self, type: pa.DataType, size: int) -> None:
        self.type = type
        self.size = size

    def read(self, cursor: Cursor) -> pa.Array:
        return self.column(cursor.fixed(self.size))

    def column(self, table: "NDArray[np.uint8]") -> pa.Array:
        """Numbers as they are written, one per row of `table`."""
        found = table.view(f"<f{self.size}").reshape(-1)
        return pa.array(found.astype(self.type.to_pandas_dtype()))

    def after(self, data: bytes, at: int) -> int:
        return at + self.size


class Bool(Node):
    type = pa.bool_()

    def read(self, cursor: Cursor) -> pa.Array:
        found = cursor.fixed(1).reshape(-1)
        cursor.fail(found > 1, "a boolean is neither 0 nor 1")
        return pa.array(found == 1)

    def after(self, data: bytes, at: int) -> int:
        return at + 1


class Text(Node):
    """A string or bytes, as either."""

    def __init__(self, type: pa.DataType) -> None:
        self.type = type

    def read(self, cursor: Cursor) -> pa.Array:
        sizes = cursor.number()
        return cursor.text(sizes) if self.type == pa.string() else cursor.pieces(sizes)

    def skip(self, cursor: Cursor) -> None:
        cursor.take(cursor.number())

    def after(self, data: bytes, at: int) -> int:
        return _after_text(data, at)


class Fixed(Node):
    type = pa.binary()

    def __init__(self, size: int) -> None:
        self._size = size

    def read(self, cursor: Cursor) -> pa.Array:
        return cursor.pieces(np.full(len(cursor), self._size, np.int64))

    def after(self, data: bytes, at: int) -> int:
        return at + self._size


class Decimal(Node):
    """Bytes, the highest first, of a whole number that is to be divided by a power of ten."""

    def __init__(self, type: pa.DataType, size: int | None) -> None:
        self.type = type
        self._size = size

    def read(self, cursor: Cursor) -> pa.Array:
        sizes = cursor.number() if self._size is None else np.full(len(cursor), self._size, np.int64)
        starts, sizes = cursor.take(sizes)
        cursor.fail(sizes > 16, "a decimal has more than 16 bytes")
        ends, sizes = starts + sizes, np.minimum(sizes, 16)
        data = cursor.data
        negative = (sizes > 0) & (data[ends - sizes] > 127)
        wide = np.empty((len(cursor), 16), np.uint8)
        for place in range(16):  # the lowest first
            wide[:, place] = np.where(
                place < sizes, data[np.maximum(ends - 1 - place, 0)], np.where(negative, 255, 0)
            )
        over = _too_many_digits(wide, self.type.precision)
        if over.any():
            cursor.fail(over, f"a decimal has more than {self.type.precision} digits")
            wide[over] = 0
        return pa.Array.from_buffers(self.type, len(cursor), [None, pa.py_buffer(wide)])

    def after(self, data: bytes, at: int) -> int:
        return _after_text(data, at) if self._size is None else at + self._size


def _too_many_digits(wide: "NDArray[np.uint8]", precision: int) -> "NDArray[np.bool_]":
    """Which of these numbers of 16 bytes, the lowest first, have more digits than that."""
    high, low = wide.view("<i8")[:, 1], wide.view("<u8")[:, 0]
    limit_high, limit_low = divmod(10**precision, 1 << 64)
    least_high, least_low = divmod(-(10**precision), 1 << 64)
    over: NDArray[np.bool_] = (high > limit_high) | ((high == limit_high) & (low >= np.uint64(limit_low)))
    over |= (high < least_high) | ((high == least_high) & (low <= np.uint64(least_low)))
    return over


class Enum(Node):
    """A symbol, by its number; `symbols` are the reader's names of them, None for those it lacks."""

    type = pa.string()

    def __init__(self, symbols: Sequence[str | None]) -> None:
        self._symbols = pa.array([*symbols, None], pa.string())
        self._known = np.array([one is not None for one in symbols], np.bool_)

    def read(self, cursor: Cursor) -> pa.Array:
        numbers = cursor.number()
        count = len(self._known)
        out = (numbers < 0) | (numbers >= count)
        cursor.fail(out, "there is no such symbol of an enum")
        numbers = np.where(out, count, numbers)
        lacking = ~np.append(self._known, True)[numbers]
        cursor.fail(lacking & cursor.good(), "the reader's enum lacks a symbol")
        return self._symbols.take(pa.array(numbers))

    def after(self, data: bytes, at: int) -> int:
        return _after_number(data, at)


class Union(Node):
    """One of several; all give the same type."""

    def __init__(self, type: pa.DataType, branches: Sequence[Node]) -> None:
        self.type = type
        self._branches = branches

    def read(self, cursor: Cursor) -> pa.Array:
        which = cursor.number()
        cursor.fail((which < 0) | (which >= len(self._branches)), "there is no such branch of a union")
        good = cursor.good()
        found: list[pa.Array] = []
        order: Ints = np.full(len(cursor), -1, np.int64)
        count = 0
        for number, branch in enumerate(self._branches):
            chosen = np.flatnonzero((which == number) & good)
            if isinstance(branch, Null) or not len(chosen):
                continue
            part = cursor.only(chosen)
            found.append(branch.read(part))
            cursor.back(chosen, part)
            order[chosen] = np.arange(count, count + len(chosen))
            count += len(chosen)
        if len(found) == 1 and count == len(cursor):
            return found[0]
        if not found:
            return pa.nulls(len(cursor), self.type)
        return pa.concat_arrays(found).take(pa.array(order, mask=order < 0))

    def skip(self, cursor: Cursor) -> None:
        which = cursor.number()
        cursor.fail((which < 0) | (which >= len(self._branches)), "there is no such branch of a union")
        good = cursor.good()
        for number, branch in enumerate(self._branches):
            chosen = np.flatnonzero((which == number) & good)
            if len(chosen):
                part = cursor.only(chosen)
                branch.skip(part)
                cursor.back(chosen, part)

    def after(self, data: bytes, at: int) -> int:
        which, at = number_at(data, at)
        if which < 0:
            raise ValueError("there is no such branch of a union")
        return self._branches[which].after(data, at)


class Member(Node):
    """What is member `number` of a reader's union."""

    def __init__(self, type: pa.DataType, number: int, inner: Node) -> None:
        self.type = type
        self._number = number
        self._inner = inner

    def read(self, cursor: Cursor) -> pa.Array:
        found = self._inner.read(cursor)
        parts = [pa.nulls(len(cursor), self.type.field(n).type) for n in range(self.type.num_fields)]
        parts[self._number] = found
        return pa.StructArray.from_arrays(parts, fields=list(self.type))

    def after(self, data: bytes, at: int) -> int:
        return self._inner.after(data, at)


class Part(NamedTuple):
    """A field of the writer's, and which of the reader's it is; None if it has none."""

    node: Node
    field: int | None


class Record(Node):
    """`constants` are the reader's fields that the writer lacks: their defaults, each an array of one."""

    def __init__(self, type: pa.DataType, parts: Sequence[Part], constants: dict[int, pa.Array]) -> None:
        self.type = type
        self._parts = parts
        self._constants = constants

    def columns(self, cursor: Cursor) -> list[pa.Array]:
        found: dict[int, pa.Array] = {}
        for node, field in self._parts:
            if field is None:
                node.skip(cursor)
            else:
                found[field] = node.read(cursor)
        for field, constant in self._constants.items():
            found[field] = constant.take(pa.array(np.zeros(len(cursor), np.int64)))
        return [found[field] for field in range(self.type.num_fields)]

    def read(self, cursor: Cursor) -> pa.Array:
        columns = self.columns(cursor)
        if not columns:
            return pa.array([{}] * len(cursor), self.type)
        return pa.StructArray.from_arrays(columns, fields=list(self.type))

    def skip(self, cursor: Cursor) -> None:
        for node, _ in self._parts:
            node.skip(cursor)

    def after(self, data: bytes, at: int) -> int:
        for node, _ in self._parts:
            at = node.after(data, at)
        return at
