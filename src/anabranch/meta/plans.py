"""What a request would change, decided on a tree and nothing else.

A plan gives the changes to make and what to answer once they are durable, or raises the error that
the caller should see.  It touches nothing, so it can be made on a tree that is ahead of what
readers see.
"""

from typing import Generic, NamedTuple, TypeVar

from anabranch.base.errors import Conflict, Exists, Invalid, NotFound
from anabranch.meta.store import MUST_NOT_EXIST, parent_of
from anabranch.meta.tree import Change, Count, Remove, Set, Tree

Result = TypeVar("Result")

# ZooKeeper pads to ten digits too, so that names in order are nodes in order.
_SEQUENCE_DIGITS = 10


class Plan(NamedTuple, Generic[Result]):
    changes: list[Change]
    result: Result


def plan_put(tree: Tree, path: str, data: bytes, expected_version: int | None) -> Plan[int]:
    node = tree.node(path)
    if node is None:
        if expected_version not in (None, MUST_NOT_EXIST):
            raise Conflict(f"metadata node {path} is gone, expected it at version {expected_version}")
        return Plan([*_missing_parents(tree, path), Set(path, data, 0)], 0)
    if expected_version == MUST_NOT_EXIST:
        raise Exists(f"metadata node {path} is there already")
    _check_version(node, expected_version)
    return Plan([Set(path, data, node.version + 1, node.ephemeral)], node.version + 1)


def plan_create(tree: Tree, path: str, data: bytes, ephemeral: bool, sequential: bool) -> Plan[str]:
    changes = _missing_parents(tree, path)
    if sequential:
        stem, parent = path, parent_of(path)
        number = tree.next_number(parent)
        while tree.node(path := f"{stem}{number:0{_SEQUENCE_DIGITS}d}") is not None:
            number += 1
        # Kept even for an ephemeral node: a number that was seen must not come back after a restart.
        changes.append(Count(parent, number + 1))
    elif tree.node(path) is not None:
        raise Exists(f"metadata node {path} is there already")
    return Plan([*changes, Set(path, data, 0, ephemeral)], path)


def plan_delete(tree: Tree, path: str, expected_version: int | None) -> Plan[None]:
    node = tree.node(path)
    if node is None:
        raise NotFound(f"metadata node {path} is not there")
    _check_version(node, expected_version)
    if tree.has_children(path):
        raise Conflict(f"metadata node {path} has children")
    return Plan([Remove(path, node.ephemeral)], None)


def _check_version(node: Set, expected_version: int | None) -> None:
    if expected_version is not None and node.version != expected_version:
        raise Conflict(f"metadata node {node.path} is at version {node.version}, expected {expected_version}")


def _missing_parents(tree: Tree, path: str) -> list[Change]:
    missing: list[Change] = []
    parent = parent_of(path)
    while parent != "/":
        node = tree.node(parent)
        if node is not None:
            if node.ephemeral:
                raise Invalid(f"metadata node {parent} is ephemeral and cannot have children")
            break
        missing.append(Set(parent, b"", 0))
        parent = parent_of(parent)
    missing.reverse()
    return missing
