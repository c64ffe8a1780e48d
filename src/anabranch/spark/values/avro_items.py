"""Arrays and maps of Avro: the items of all values, as one column.

Items come in blocks: a count (if it is negative, a size follows) and so many, until a block of none.  They
are read rank by rank: the first of all values, then the second of those that have two.  Numbers of a fixed
size are read a whole block at a time.

    values     a1 a2 a3 a4 a5 …|b1|c1 c2|…          ranks    a1 b1 c1 …, a2 c2 …
                                                    alone    a3 a4 a5 …

When only a few values have more, ranks do not pay: where the items of those begin is found value by
value, a microsecond or so per item, and then all of them are read at once.  So a value of very many
items, or of very many blocks, costs not much more than it would as many values.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from anabranch.spark.values.avro_nodes import Node, Real, Text, number_at
from anabranch.spark.values.cursor import Cursor
from anabranch.spark.varints import Ints

_FEW = 128  # values; reading an item of so many takes as long as going over them one by one
_USUAL_BLOCKS = 4
_TOO_MANY = "an array claims more items than it can hold"
_Visit = Callable[[Cursor, Ints], None]


class Items(Node):
    """An array."""

    def __init__(self, type: pa.DataType, item: Node) -> None:
        self.type = type
        self._item = item

    def read(self, cursor: Cursor) -> pa.Array:
        edges, (items,) = _gathered(cursor, [self._item])
        return pa.ListArray.from_arrays(edges, items, type=self.type)

    def skip(self, cursor: Cursor) -> None:
        _walk(cursor, [self._item], lambda inner, _: self._item.skip(inner))

    def after(self, data: bytes, at: int) -> int:
        return _after_items(data, at, [self._item])


class Entries(Node):
    """A map."""

    def __init__(self, type: pa.DataType, value: Node) -> None:
        self.type = type
        self._value = value

    def read(self, cursor: Cursor) -> pa.Array:
        edges, (keys, values) = _gathered(cursor, [_KEY, self._value])
        return pa.MapArray.from_arrays(edges, keys, values, type=self.type)

    def skip(self, cursor: Cursor) -> None:
        def both(inner: Cursor, _: Ints) -> None:
            _KEY.skip(inner)
            self._value.skip(inner)

        _walk(cursor, [_KEY, self._value], both)

    def after(self, data: bytes, at: int) -> int:
        return _after_items(data, at, [_KEY, self._value])


_KEY = Text(pa.string())


def _gathered(cursor: Cursor, nodes: Sequence[Node]) -> tuple[pa.Array, list[pa.Array]]:
    """Where the items of each place begin and end, and all of them, by node."""
    owners: list[Ints] = []
    found: list[list[pa.Array]] = [[] for _ in nodes]

    def visit(inner: Cursor, places: Ints) -> None:
        owners.append(places)
        for node, columns in zip(nodes, found, strict=True):
            columns.append(node.read(inner))

    _walk(cursor, nodes, visit)
    owner: Ints = np.concatenate(owners) if owners else np.zeros(0, np.int64)
    edges = np.zeros(len(cursor) + 1, np.int32)
    np.cumsum(np.bincount(owner, minlength=len(cursor)), out=edges[1:])
    if len(owners) == 1:  # in order as they are
        return pa.array(edges), [column for (column,) in found]
    order = pa.array(np.argsort(owner, kind="stable"))
    together = [
        pa.concat_arrays(columns).take(order) if columns else pa.array([], node.type)
        for columns, node in zip(found, nodes, strict=True)
    ]
    return pa.array(edges), together


def _walk(cursor: Cursor, nodes: Sequence[Node], visit: _Visit) -> None:
    """Calls `visit` at the items of each place, with a cursor at some of them and which places they are of.

    What `visit` gets of one place is in order, from call to call and within one.
    """
    open_: Ints = np.flatnonzero(cursor.good())
    reals = nodes[0] if len(nodes) == 1 and isinstance(nodes[0], Real) else None
    block = 0
    while len(open_) > (_FEW if reals is None or block >= _USUAL_BLOCKS else 0):
        part = cursor.only(open_)
        counts = _counts(part)
        alone: Ints = np.zeros(0, np.int64)
        if reals is not None:
            _visit_reals(part, reals, counts, open_, visit)
        else:
            alone = _visit_ranks(part, nodes, counts, open_, visit)
        block += 1
        cursor.back(open_, part)
        going_on = (counts > 0) & part.good()
        going_on[alone] = False
        open_ = open_[going_on]
    if len(open_):
        part = cursor.only(open_)
        everyone = np.arange(len(open_))
        _visit_alone(part, everyone, nodes, np.zeros(len(open_), np.int64), open_, visit)
        cursor.back(open_, part)


def _counts(part: Cursor) -> Ints:
    """How many items the block has that begins at each place."""
    counts = part.number()
    sized = np.flatnonzero((counts < 0) & part.good())
    if len(sized):
        inner = part.only(sized)
        inner.number()
        part.back(sized, inner)
        counts = np.abs(counts)
    part.claim(counts, _TOO_MANY)
    found: Ints = np.where(part.good(), counts, 0)
    return found


def _visit_ranks(part: Cursor, nodes: Sequence[Node], counts: Ints, owners: Ints, visit: _Visit) -> Ints:
    """The items of blocks.  Those places of `part` that were few and are at their end."""
    rank = 0
    while len(here := np.flatnonzero((counts > rank) & part.good())) > _FEW:
        inner = part.only(here)
        visit(inner, owners[here])
        part.back(here, inner)
        rank += 1
    if len(here):
        _visit_alone(part, here, nodes, counts[here] - rank, owners, visit)
    return here


def _visit_reals(part: Cursor, node: Real, counts: Ints, owners: Ints, visit: _Visit) -> None:
    starts, sizes = part.take(counts * node.size)
    counts = sizes // node.size
    total = int(counts.sum())
    if total:
        rank = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
        chosen = np.repeat(np.arange(len(part)), counts)
        visit(part.spread(chosen, starts[chosen] + rank * node.size), owners[chosen])


def _visit_alone(
    part: Cursor, here: Ints, nodes: Sequence[Node], counts: Ints, owners: Ints, visit: _Visit
) -> None:
    """All further items of the places `here`, which have `counts` left of the block that they are in."""
    chosen: list[int] = []
    begins: list[int] = []
    complaints: dict[int, str] = {}
    left = part.left()
    for place, count in zip(here.tolist(), counts.tolist(), strict=True):
        at = int(part.at[place])
        data = part.data[at : at + int(left[place])].tobytes()
        found, end, complaint = _begins(data, count, nodes, part.claimable(place))
        part.has_claimed(place, max(0, len(found) - count))
        begins += [at + one for one in found]
        chosen += [place] * len(found)
        part.at[place] = at + end
        if complaint:
            complaints[place] = complaint
    if begins:
        places: Ints = np.array(chosen, np.int64)
        inner = part.spread(places, np.array(begins, np.int64))
        visit(inner, owners[places])
        bad = np.flatnonzero(~inner.good())
        part.back(places[bad], inner.only(bad))
    for place, complaint in complaints.items():
        part.fail(np.arange(len(part)) == place, complaint)


def _begins(data: bytes, count: int, nodes: Sequence[Node], most: int) -> tuple[list[int], int, str]:
    """Where items begin, of which a block has `count` left; where the last block ends; or what is wrong.

    Further blocks may have `most` items together.  An item that is wrong is among those that are found: who
    reads it knows better what it is.
    """
    found: list[int] = []
    at = 0
    try:
        while True:
            at = _add_begins(data, at, count, nodes, found)
            count, at = _block(data, at)
            most -= count
            if most < 0:
                return found, at, _TOO_MANY
            if not count:
                return found, at, ""
    except (IndexError, ValueError):
        return found, 0, "it ends too early"
    except RecursionError:
        return found, 0, "it is nested too deeply"


def _add_begins(data: bytes, at: int, count: int, nodes: Sequence[Node], found: list[int]) -> int:
    if len(nodes) == 1 and isinstance(node := nodes[0], Real):
        end = at + count * node.size
        found.extend(range(at, min(end, len(data)), node.size))
    else:
        end = at
        for _ in range(count):
            if end > len(data):
                break
            found.append(end)
            for node in nodes:
                end = node.after(data, end)
    if end > len(data):
        raise IndexError("an item is not inside its value")
    return end


def _block(data: bytes, at: int) -> tuple[int, int]:
    """How many items the block at `at` has, and where they begin."""
    count, at = number_at(data, at)
    if count < 0:
        _, at = number_at(data, at)
    return abs(count), at


def _after_items(data: bytes, at: int, nodes: Sequence[Node]) -> int:
    while True:
        count, at = _block(data, at)
        if not count:
            return at
        if count > len(data) - at:
            raise ValueError(_TOO_MANY)
        for _ in range(count):
            before = at
            for node in nodes:
                at = node.after(data, at)
            if at == before:
                break  # of items without a byte, all are
