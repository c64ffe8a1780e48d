"""Plans: what a request would change, decided on a tree and nothing else.

A plan gives the changes to make and what to answer once they are durable, or raises the error that
the caller should see.  It touches nothing, so it can be made on a tree that is ahead of what
readers see; and `plan_multi` makes one plan after the other on what those before it would leave.
"""

from collections.abc import Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from anabranch.base.errors import Conflict, Exists, Invalid, NotFound
from anabranch.meta.store import MUST_NOT_EXIST, Check, Create, Operation, Put, parent_of
from anabranch.meta.tree import Change, Count, Remove, Reserve, Set, Tree

Result = TypeVar("Result")

# ZooKeeper pads to ten digits too, so that names in order are nodes in order.
_SEQUENCE_DIGITS = 10
# Ids that one durable change makes good for ephemeral nodes, which leave nothing else behind.
_RESERVED_AT_ONCE = 1 << 20


class Nodes(Protocol):
    """What a plan looks at: a tree, or one with changes that are not made yet."""

    @property
    def next_zxid(self) -> int: ...

    @property
    def reserved(self) -> int: ...

    def node(self, path: str) -> Set | None: ...

    def child_count(self, path: str) -> int: ...

    def next_number(self, path: str) -> int: ...


class Plan(NamedTuple, Generic[Result]):
    changes: list[Change]
    result: Result


def plan_put(nodes: Nodes, path: str, data: bytes, expected_version: int | None) -> Plan[int]:
    node = nodes.node(path)
    if node is None:
        if expected_version not in (None, MUST_NOT_EXIST):
            raise Conflict(f"metadata node {path} is gone, expected it at version {expected_version}")
        return Plan([*_missing_parents(nodes, path), Set(path, data, 0, nodes.next_zxid)], 0)
    if expected_version == MUST_NOT_EXIST:
        raise Exists(f"metadata node {path} is there already")
    _check_version(node, expected_version)
    return Plan([Set(path, data, node.version + 1, node.czxid, node.owner)], node.version + 1)


def plan_create(
    nodes: Nodes, path: str, data: bytes, *, owner: int = 0, sequential: bool = False
) -> Plan[str]:
    """`owner` is the session that an ephemeral node belongs to."""
    changes = _missing_parents(nodes, path)
    if sequential:
        stem, parent = path, parent_of(path)
        number = nodes.next_number(parent)
        while nodes.node(path := f"{stem}{number:0{_SEQUENCE_DIGITS}d}") is not None:
            number += 1
        # Kept even for an ephemeral node: a number that was seen must not come back after a restart.
        changes.append(Count(parent, number + 1))
    elif nodes.node(path) is not None:
        raise Exists(f"metadata node {path} is there already")
    if owner and nodes.next_zxid > nodes.reserved:
        changes.append(Reserve(nodes.next_zxid + _RESERVED_AT_ONCE))
    return Plan([*changes, Set(path, data, 0, nodes.next_zxid, owner)], path)


def plan_delete(nodes: Nodes, path: str, expected_version: int | None) -> Plan[None]:
    node = nodes.node(path)
    if node is None:
        raise NotFound(f"metadata node {path} is not there")
    _check_version(node, expected_version)
    if nodes.child_count(path):
        raise Conflict(f"metadata node {path} has children")
    return Plan([Remove(path, node.ephemeral)], None)


def plan_multi(nodes: Nodes, operations: Sequence[Operation], session: int) -> Plan[list[str | int | None]]:
    ahead = _Ahead(nodes)
    changes: list[Change] = []
    results: list[str | int | None] = []
    for operation in operations:
        plan = _plan(ahead, operation, session)
        for change in plan.changes:
            ahead.apply(change)
        changes += plan.changes
        results.append(plan.result)
    return Plan(changes, results)


def plan_end_of(tree: Tree, session: int) -> list[Change]:
    """A session is over, and so are its ephemeral nodes."""
    return [Remove(path, ephemeral=True) for path in tree.owned(session)]


def _plan(nodes: Nodes, operation: Operation, session: int) -> Plan[str] | Plan[int] | Plan[None]:
    if isinstance(operation, Put):
        return plan_put(nodes, operation.path, operation.data, operation.expected_version)
    if isinstance(operation, Create):
        path, data, ephemeral, sequential = operation
        return plan_create(nodes, path, data, owner=session if ephemeral else 0, sequential=sequential)
    if isinstance(operation, Check):
        return _plan_check(nodes, operation)
    return plan_delete(nodes, operation.path, operation.expected_version)


def _plan_check(nodes: Nodes, check: Check) -> Plan[None]:
    node = nodes.node(check.path)
    if node is None:
        raise Conflict(f"metadata node {check.path} is gone, expected it at version {check.version}")
    _check_version(node, check.version)
    return Plan([], None)


def _check_version(node: Set, expected_version: int | None) -> None:
    if expected_version is not None and node.version != expected_version:
        raise Conflict(f"metadata node {node.path} is at version {node.version}, expected {expected_version}")


def _missing_parents(nodes: Nodes, path: str) -> list[Change]:
    missing: list[Change] = []
    parent = parent_of(path)
    while parent != "/":
        node = nodes.node(parent)
        if node is not None:
            if node.ephemeral:
                raise Invalid(f"metadata node {parent} is ephemeral and cannot have children")
            break
        missing.append(Set(parent, b"", 0, nodes.next_zxid))
        parent = parent_of(parent)
    missing.reverse()
    return missing


class _Ahead:
    """Nodes as they would be after some changes.  All of them have the same id, as one change has."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._changed: dict[str, Set | None] = {}
        self._counts: dict[str, int] = {}
        self._more_children: dict[str, int] = {}  # below 0 if there are fewer
        self.next_zxid = nodes.next_zxid
        self.reserved = nodes.reserved

    def node(self, path: str) -> Set | None:
        return self._changed[path] if path in self._changed else self._nodes.node(path)

    def child_count(self, path: str) -> int:
        return self._nodes.child_count(path) + self._more_children.get(path, 0)

    def next_number(self, path: str) -> int:
        number = self._counts.get(path)
        return self._nodes.next_number(path) if number is None else number

    def apply(self, change: Change) -> None:
        if isinstance(change, Count):
            self._counts[change.path] = change.next
        elif isinstance(change, Reserve):
            self.reserved = change.zxid
        elif isinstance(change, Set):
            if self.node(change.path) is None:
                self._add_child(change.path, 1)
            self._changed[change.path] = change
        else:
            self._add_child(change.path, -1)
            self._changed[change.path] = None
            self._counts[change.path] = 0

    def _add_child(self, path: str, number: int) -> None:
        parent = parent_of(path)
        self._more_children[parent] = self._more_children.get(parent, 0) + number
