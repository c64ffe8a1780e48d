"""The tree of nodes in memory, and the changes that make it.

A tree changes only by `apply`, one change at a time, and any tree is the result of the changes that
its own `changes()` lists: that is what a journal holds and what a snapshot is.

    Set(path, data, version, ...)    a node is there now, with this content
    Remove(path)                     it is gone
    Count(path, next)                the next sequential child of `path` gets this number
    Reserve(zxid)                    ids of changes up to this one may have been given to ephemeral nodes

Nothing is decided here (`meta/plans.py` does that) and nothing is written (`meta/journal.py`).
A change that does not fit the tree means that somebody lost a change: Corrupt.
"""

from typing import ClassVar

import msgspec

from anabranch.base.errors import Corrupt
from anabranch.meta.store import Event, EventKind, Versioned, parent_of

_NODE_OVERHEAD_BYTES = 16  # what a journalled Set costs beyond its path and data, about


class Set(msgspec.Struct, frozen=True, array_like=True, tag="s"):
    path: str
    data: bytes
    version: int
    czxid: int
    owner: int = 0

    @property
    def ephemeral(self) -> bool:
        return self.owner != 0


class Remove(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    path: str
    ephemeral: bool = False


class Count(msgspec.Struct, frozen=True, array_like=True, tag="c"):
    path: str
    next: int
    ephemeral: ClassVar[bool] = False


class Reserve(msgspec.Struct, frozen=True, array_like=True, tag="z"):
    zxid: int
    ephemeral: ClassVar[bool] = False


Change = Set | Remove | Count | Reserve


class Tree:
    """Nodes by path.  `durable_bytes` is about what writing it all out would take.

    `zxid` is the highest id that was given to a change, `reserved` the highest that may have been once
    the tree was read back.
    """

    __slots__ = ("_counts", "_names", "_nodes", "_owned", "durable_bytes", "reserved", "zxid")

    def __init__(self) -> None:
        self._nodes: dict[str, Set] = {}
        self._names: dict[str, set[str]] = {}
        self._counts: dict[str, int] = {}
        self._owned: dict[int, dict[str, None]] = {}  # ephemeral nodes by session
        self.durable_bytes = 0
        self.zxid = 0
        self.reserved = 0

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def next_zxid(self) -> int:
        """The id of the next change."""
        return self.zxid + 1

    def node(self, path: str) -> Set | None:
        return self._nodes.get(path)

    def get(self, path: str) -> Versioned | None:
        node = self._nodes.get(path)
        return None if node is None else Versioned(node.data, node.version, node.czxid, node.owner)

    def child_count(self, path: str) -> int:
        names = self._names.get(path)
        return 0 if names is None else len(names)

    def children(self, path: str) -> list[str]:
        return sorted(self._names.get(path, ()))

    def next_number(self, path: str) -> int:
        return self._counts.get(path, 0)

    def owned(self, session: int) -> list[str]:
        """The ephemeral nodes of a session."""
        return list(self._owned.get(session, ()))

    def scan(self, prefix: str) -> list[tuple[str, Versioned]]:
        """A node and all below it, parents before children, siblings in order."""
        found = []
        ahead = [prefix]
        while ahead:
            path = ahead.pop()
            value = self.get(path)
            if value is not None:
                found.append((path, value))
            names = self._names.get(path)
            if names:
                above = "" if path == "/" else path
                ahead.extend(f"{above}/{name}" for name in sorted(names, reverse=True))
        return found

    def changes(self) -> list[Change]:
        """What rebuilds the durable part of this tree, parents first."""
        nodes = [node for _, node in sorted(self._nodes.items()) if not node.ephemeral]
        counts = [Count(path, number) for path, number in sorted(self._counts.items())]
        return [*nodes, *counts, Reserve(max(self.zxid, self.reserved))]

    def copy(self) -> "Tree":
        other = Tree()
        other._nodes = dict(self._nodes)
        other._names = {path: set(names) for path, names in self._names.items()}
        other._counts = dict(self._counts)
        other._owned = {session: dict(paths) for session, paths in self._owned.items()}
        other.durable_bytes, other.zxid, other.reserved = self.durable_bytes, self.zxid, self.reserved
        return other

    def apply(self, change: Change) -> Event | None:
        """Change the tree; what watchers should hear of it."""
        if isinstance(change, Set):
            return self._set(change)
        if isinstance(change, Remove):
            return self._remove(change.path)
        if isinstance(change, Count):
            self._counts[change.path] = change.next
        else:
            self.reserved = max(self.reserved, change.zxid)
        return None

    def _set(self, node: Set) -> Event:
        path = node.path
        before = self._nodes.get(path)
        self._nodes[path] = node
        self.zxid = max(self.zxid, node.czxid)
        if node.owner:
            self._owned.setdefault(node.owner, {})[path] = None
        self.durable_bytes += _durable_bytes(node) - _durable_bytes(before)
        if before is not None:
            return Event(EventKind.CHANGED, path)
        parent = parent_of(path)
        if parent != "/" and parent not in self._nodes:
            raise Corrupt(f"metadata node {path} has no parent")
        self._names.setdefault(parent, set()).add(path[path.rindex("/") + 1 :])
        return Event(EventKind.CREATED, path)

    def _remove(self, path: str) -> Event:
        node = self._nodes.pop(path, None)
        if node is None or path in self._names:
            raise Corrupt(f"metadata node {path} is removed, but it is not there or has children")
        self.durable_bytes -= _durable_bytes(node)
        self._counts.pop(path, None)
        if node.owner:
            owned = self._owned[node.owner]
            del owned[path]
            if not owned:
                del self._owned[node.owner]
        parent = parent_of(path)
        siblings = self._names[parent]
        siblings.remove(path[path.rindex("/") + 1 :])
        if not siblings:
            del self._names[parent]
        return Event(EventKind.DELETED, path)


def _durable_bytes(node: Set | None) -> int:
    if node is None or node.ephemeral:
        return 0
    return len(node.path) + len(node.data) + _NODE_OVERHEAD_BYTES
