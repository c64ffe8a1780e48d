"""Metadata store: a small tree of versioned documents that a whole cluster can agree on.

The model is ZooKeeper's, narrowed to what we use, so that one node (`meta/embedded.py`) and a
cluster over ZooKeeper see the same thing:

    /topics/public/default/orders        data, version 3
    /brokers/1                           ephemeral: gone when the session that made it is over
    /elections/c-0000000004              sequential: the store picks the number, never the same twice

A `MetadataStore` is the store as one session sees it (`meta/session.py`).  Whoever is gone loses its
session, and with it its ephemeral nodes; how fast that is noticed depends on the store.

  * A path is absolute, `/`-separated.  Parents are made as needed, empty, at version 0.
  * A version counts changes of one node: 0 when it is made, one more at each put.  A node that was
    deleted and made again starts at 0, but its czxid is higher than that of any node made before,
    across restarts: the czxid of an ephemeral node is the fencing token of who made it.
  * What may be deposed while it writes checks in the same `multi` a node whose version the next one
    raises when it takes over (`cluster/controller.py`).
  * What a call has returned is durable.  A call that fails with Unavailable (DiskFull is one) or is
    cancelled has changed nothing yet or changed everything; read before you try again.
  * Reads never show what might still be lost.
  * An event says that something happened, not what is there now: read the node again.
  * A store that is elsewhere may be away: calls fail with Unavailable, and it comes back by itself, with
    another session if that one has ended meanwhile.

One suite, tests/conform/test_metadata_store.py, holds every implementation to this.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from anabranch.base.errors import Invalid
from anabranch.meta.session import Session

MUST_NOT_EXIST = -1

# Three names of 249 characters, a local one of them percent-encoded, and what stands before them.
MAX_PATH_LENGTH = 4096
# ZooKeeper refuses packets of 1 MiB and more (jute.maxbuffer), and a packet carries the path too.
MAX_DATA_BYTES = 1_000_000
_OPERATION_BYTES = 64  # what one operation of a multi takes in a packet beyond path and data, at most


class Versioned(NamedTuple):
    data: bytes
    version: int
    czxid: int
    """Grows with every change that makes nodes."""
    owner: int
    """The session that an ephemeral node ends with, 0 for other nodes."""


class EventKind(Enum):
    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    MISSED = "missed"
    """Changes at the path or below may not have been told: scan it again."""


class Event(NamedTuple):
    kind: EventKind
    path: str


class Check(NamedTuple):
    """The node is at this version; Conflict if not, or if it is not there."""

    path: str
    version: int


class Create(NamedTuple):
    """As `MetadataStore.create`; its result is the path."""

    path: str
    data: bytes
    ephemeral: bool = False
    sequential: bool = False


class Put(NamedTuple):
    """As `MetadataStore.put` at a version (ZooKeeper has no other in a multi); its result is the new one."""

    path: str
    data: bytes
    expected_version: int


class Delete(NamedTuple):
    """As `MetadataStore.delete`."""

    path: str
    expected_version: int | None = None


Operation = Check | Create | Put | Delete


class MetadataStore(Protocol):
    @property
    def session(self) -> Session: ...

    async def get(self, path: str) -> Versioned | None: ...

    async def put(self, path: str, data: bytes, expected_version: int | None = None) -> int:
        """Make or replace a node; its new version.

        With `expected_version` the node must be at that version, else Conflict; with MUST_NOT_EXIST
        it must not be there, else Exists.
        """
        ...

    async def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        """Make a node that is not there, else Exists; its path, which `sequential` ends in a number.

        An ephemeral node ends with the session, and has no children.
        """
        ...

    async def delete(self, path: str, expected_version: int | None = None) -> None:
        """NotFound if it is not there; Conflict if it is at another version or has children."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> list[str | int | None]:
        """Do all of this, in order, or nothing; the result of each.

        Raises what the first operation that fails would raise alone.  Parents that were missing may
        stay when nothing else was done.
        """
        ...

    async def children(self, path: str) -> list[str]:
        """The names below a node, in order.  Empty if it has none or is not there."""
        ...

    async def scan(self, prefix: str) -> list[tuple[str, Versioned]]:
        """The node `prefix`, if it is there, and all below it: parents first, siblings in order."""
        ...

    async def watch(self, prefix: str, callback: Callable[[Event], None]) -> Callable[[], None]:
        """Call back on the event loop, in order, for each change at `prefix` or below from now on.

        Where changes may have been missed, because the link to the store broke, it hears MISSED with
        `prefix`, and from then on of each change again.  What comes back ends the watch; so does `close`.
        The callback must not raise.
        """
        ...

    async def close(self) -> None:
        """End the session: its ephemeral nodes go, calls from now on raise SessionExpired."""
        ...


def check_operations(operations: Sequence[Operation]) -> int:
    """How much data they carry; Invalid if they cannot go together."""
    size, total = 0, 0
    for operation in operations:
        path = check_path(operation.path)
        data = operation.data if isinstance(operation, Create | Put) else b""
        check_data(path, data)
        size += len(data)
        total += len(path.encode()) + len(data) + _OPERATION_BYTES
        if isinstance(operation, Check) and operation.version < 0:
            raise Invalid(f"metadata node {path} cannot be checked for version {operation.version}")
    if total > MAX_DATA_BYTES and len(operations) > 1:
        raise Invalid(
            f"{len(operations)} metadata operations take {total} bytes, the limit is {MAX_DATA_BYTES}"
        )
    return size


def check_path(path: str) -> str:
    """`path`, if it can name a node; Invalid if not."""
    if len(path) > MAX_PATH_LENGTH:
        raise Invalid(f"metadata path is {len(path)} characters long, the limit is {MAX_PATH_LENGTH}")
    if not path.startswith("/"):
        raise Invalid(f"metadata path {path!r} does not start with '/'")
    if not path.isprintable():
        raise Invalid(f"metadata path {path!r} contains a character that cannot be shown")
    for name in path[1:].split("/"):
        if name in ("", ".", ".."):
            raise Invalid(f"metadata path {path!r} has the illegal part {name!r}")
    return path


def check_data(path: str, data: bytes) -> None:
    if len(data) > MAX_DATA_BYTES:
        raise Invalid(
            f"{len(data)} bytes do not fit into metadata node {path}, the limit is {MAX_DATA_BYTES}"
        )


def parent_of(path: str) -> str:
    return path[: path.rindex("/")] or "/"


def is_within(path: str, prefix: str) -> bool:
    """Whether `path` is `prefix` or below it."""
    return path == prefix or prefix == "/" or path.startswith(prefix + "/")
