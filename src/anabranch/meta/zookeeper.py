"""ZooKeeper as the metadata store: a `MetadataStore` over the servers of an ensemble.

    store = await ZooKeeperStore.connect("zk1:2181,zk2:2181/anabranch", session_timeout_ms=9000)

What comes behind the hosts is the chroot: the node below which everything is, made if it is not there.
Without one everything is at ZooKeeper's own root, beside its `/zookeeper`, which is not shown.

One persistent recursive watch on the chroot tells of every change below it, whoever made it, and of
ephemeral nodes that went; who is to hear of it is decided here.  After the connection broke the watch is
armed again and all who watch hear `EventKind.MISSED`.

A request that was on its way when the connection broke fails with Unavailable, and may have been done.
Reads come from the server that the session is connected to, which may lag behind what other sessions
wrote by a moment; what decides is a version or a check in the write.  A scan shows all that was written
before it: whoever begins with one, or goes on after a session was lost, takes what it does not see for not
there.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from kazoo import exceptions
from kazoo.protocol.serialization import (
    CheckVersion,
    GetChildren,
    GetData,
    SetData,
    Sync,
    Transaction,
)
from kazoo.protocol.serialization import Create as CreateNode
from kazoo.protocol.serialization import Delete as DeleteNode
from kazoo.security import OPEN_ACL_UNSAFE

from anabranch.base.errors import (
    AnabranchError,
    Conflict,
    Exists,
    Invalid,
    NotFound,
    SessionExpired,
    Unavailable,
)
from anabranch.base.executors import Executors, thread_pool
from anabranch.meta.session import Session
from anabranch.meta.store import (
    MUST_NOT_EXIST,
    Check,
    Create,
    Event,
    EventKind,
    Operation,
    Put,
    Versioned,
    check_data,
    check_operations,
    check_path,
    parent_of,
)
from anabranch.meta.watches import Watches
from anabranch.meta.zookeeper_kazoo import MultiRead
from anabranch.meta.zookeeper_link import Link

_EPHEMERAL, _SEQUENTIAL = 1, 2
_ANY_VERSION = -1
_NO_VERSION = 2**31 - 1  # that no node has; ZooKeeper takes those below 0 for any
_READS_AT_ONCE = 128  # a node has 1 MB at most, and few have more than 1 kB
_ATTEMPTS = 10  # at making something whose parents others delete meanwhile
_OWN = "zookeeper"  # what ZooKeeper keeps at its root for itself

_KINDS = {1: EventKind.CREATED, 2: EventKind.DELETED, 3: EventKind.CHANGED}


class ZooKeeperStore:
    """A `MetadataStore`."""

    def __init__(self, hosts: str, session_timeout_ms: int, executors: Executors) -> None:
        """For `connect`."""
        servers, slash, chroot = hosts.partition("/")
        self._root = check_path(slash + chroot.rstrip("/")) if chroot else ""
        self._watches = Watches()
        thread = executors("zookeeper", 1)
        try:
            self._link = Link(
                servers, self._root, session_timeout_ms / 1000, thread, self._hear, self._watches.tell_missed
            )
        except ValueError as error:
            raise Invalid(f"'{hosts}' is not HOST:PORT,HOST:PORT,.../CHROOT: {error}") from error

    @classmethod
    async def connect(
        cls,
        hosts: str,
        session_timeout_ms: int,
        *,
        connect_timeout_ms: int = 15_000,
        executors: Executors = thread_pool,
    ) -> "ZooKeeperStore":
        """A session with the servers at `host:port,host:port/chroot`.

        The session ends when no server hears of it for `session_timeout_ms`, which the servers may bring to
        within their own limits.  Unavailable if none of them answers in time.
        """
        store = cls(hosts, session_timeout_ms, executors)
        try:
            await store._link.open(connect_timeout_ms / 1000)
            if store._root:
                await store._make_all([store._root, *_parents(store._root)])
        except BaseException:
            await store.close()
            raise
        return store

    @property
    def session(self) -> Session:
        return self._link.session

    async def get(self, path: str) -> Versioned | None:
        if path == "/":
            return None
        try:
            return _versioned(await self._call(GetData(self._full(path), None), path))
        except NotFound:
            return None

    async def children(self, path: str) -> list[str]:
        try:
            names = await self._call(GetChildren(self._full(path), None), path)
        except NotFound:
            return []
        return self._shown(path, names)

    async def scan(self, prefix: str) -> list[tuple[str, Versioned]]:
        await self._call(Sync(self._full(prefix)), prefix)
        found: list[tuple[str, Versioned]] = []
        level = [prefix]
        while level:
            parents = []
            for path, value in await self._read_all(GetData, level):
                if path != "/":
                    found.append((path, _versioned(value)))
                if value[1].numChildren:
                    parents.append(path)
            level = [
                f"{'' if path == '/' else path}/{name}"
                for path, names in await self._read_all(GetChildren, parents)
                for name in self._shown(path, names)
            ]
        found.sort(key=lambda entry: entry[0].split("/"))
        return found

    async def put(self, path: str, data: bytes, expected_version: int | None = None) -> int:
        full = self._full(check_path(path))
        check_data(path, data)
        if expected_version == MUST_NOT_EXIST:
            await self._create(full, data, 0, path)
            return 0
        for _ in range(_ATTEMPTS):
            try:
                stat = await self._call(SetData(full, data, _version(expected_version)), path)
                return int(stat.version)
            except NotFound:
                if expected_version is not None:
                    raise Conflict(
                        f"metadata node {path} is gone, expected it at version {expected_version}"
                    ) from None
            try:
                await self._create(full, data, 0, path)
            except Exists:
                continue
            return 0
        raise Unavailable(f"metadata node {path} is made and deleted by others all the time")

    async def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        full = self._full(check_path(path))
        check_data(path, data)
        made = await self._create(full, data, _flags(ephemeral, sequential), path)
        return made[len(self._root) :]

    async def delete(self, path: str, expected_version: int | None = None) -> None:
        await self._call(DeleteNode(self._full(check_path(path)), _version(expected_version)), path)

    async def multi(self, operations: Sequence[Operation]) -> list[str | int | None]:
        check_operations(operations)
        operations = [operation._replace(path=self._full(operation.path)) for operation in operations]
        if len(operations) > 1:
            check_operations(operations)  # the chroot is in the packet, too
        if not operations:
            return []
        request = Transaction([_request(operation) for operation in operations])
        for _ in range(_ATTEMPTS):
            results = await self._call(request, f"of {len(operations)} operations")
            failed = _first_failed(results)
            if failed is None:
                return [
                    self._result(operation, result)
                    for operation, result in zip(operations, results, strict=True)
                ]
            operation, error = operations[failed], results[failed]
            if not _lacks_parent(operation, error):
                raise self._meaning(operation, error) from error
            await self._make_all(_missing_parents(operations))
        raise Conflict(f"the parent of metadata node {operation.path} is deleted by others, or by this multi")

    async def watch(self, prefix: str, callback: Callable[[Event], None]) -> Callable[[], None]:
        if self._link.is_closed:
            raise SessionExpired("the metadata session is over; open another one")
        return self._watches.add(prefix, callback)

    async def close(self) -> None:
        self._watches.end()
        await self._link.close()

    # --- paths

    def _full(self, path: str) -> str:
        """The path that the servers know."""
        if path == "/":
            return self._root or "/"
        return self._root + check_path(path)

    def _shown(self, path: str, names: Iterable[str]) -> list[str]:
        is_zookeepers = path == "/" and not self._root
        return sorted(name for name in names if not (is_zookeepers and name == _OWN))

    def _hear(self, kind: int, full: str) -> None:
        path = full[len(self._root) :]
        if path in ("", "/") or (not self._root and path.split("/", 2)[1] == _OWN):
            return
        self._watches.tell(Event(_KINDS[kind], path))

    # --- requests

    async def _call(self, request: Any, path: str) -> Any:
        try:
            return await self._link.call(request)
        except exceptions.KazooException as error:
            raise _as_ours(error, path) from error

    async def _create(self, full: str, data: bytes, flags: int, path: str) -> str:
        request = CreateNode(full, data, OPEN_ACL_UNSAFE, flags)
        for _ in range(_ATTEMPTS):
            try:
                made: str = await self._call(request, path)
            except NotFound:
                await self._make_all(_parents(full))
                continue
            return made
        raise Unavailable(f"the parents of metadata node {path} are deleted by others all the time")

    async def _make_all(self, full: Iterable[str]) -> None:
        """These nodes, empty, but those that are there.  Requests are done in the order they are sent in."""
        outcomes = await asyncio.gather(
            *(self._call(CreateNode(path, b"", OPEN_ACL_UNSAFE, 0), path) for path in sorted(full)),
            return_exceptions=True,
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, Exists | NotFound):
                raise outcome

    async def _read_all(
        self, kind: type[GetData] | type[GetChildren], paths: Sequence[str]
    ) -> list[tuple[str, Any]]:
        """What these nodes hold, those that are there."""
        chunks = [paths[i : i + _READS_AT_ONCE] for i in range(0, len(paths), _READS_AT_ONCE)]
        answers = await asyncio.gather(
            *(
                self._call(MultiRead([kind(self._full(path), None) for path in chunk]), chunk[0])
                for chunk in chunks
            )
        )
        found = []
        for chunk, answer in zip(chunks, answers, strict=True):
            for path, result in zip(chunk, answer, strict=True):
                if isinstance(result, exceptions.KazooException):
                    raise _as_ours(result, path) from result
                if result is not None:
                    found.append((path, result))
        return found

    # --- results of a multi

    def _result(self, operation: Operation, result: Any) -> str | int | None:
        if isinstance(operation, Create):
            return str(result)[len(self._root) :]
        if isinstance(operation, Put):
            return 0 if operation.expected_version == MUST_NOT_EXIST else int(result.version)
        return None

    def _meaning(self, operation: Operation, error: exceptions.KazooException) -> AnabranchError:
        path = operation.path[len(self._root) :]
        if isinstance(operation, Check | Put) and isinstance(error, exceptions.NoNodeError):
            expected = operation.version if isinstance(operation, Check) else operation.expected_version
            return Conflict(f"metadata node {path} is gone, expected it at version {expected}")
        return _as_ours(error, path)


def _versioned(answer: Any) -> Versioned:
    data, stat = answer
    return Versioned(data or b"", stat.version, stat.czxid, stat.ephemeralOwner)


def _version(expected: int | None) -> int:
    if expected is None:
        return _ANY_VERSION
    return expected if expected >= 0 else _NO_VERSION


def _flags(ephemeral: bool, sequential: bool) -> int:
    return _EPHEMERAL * ephemeral | _SEQUENTIAL * sequential


def _parents(full: str) -> Iterator[str]:
    parent = parent_of(full)
    while parent != "/":
        yield parent
        parent = parent_of(parent)


def _request(operation: Operation) -> Any:
    if isinstance(operation, Check):
        return CheckVersion(operation.path, operation.version)
    if isinstance(operation, Create):
        flags = _flags(operation.ephemeral, operation.sequential)
        return CreateNode(operation.path, operation.data, OPEN_ACL_UNSAFE, flags)
    if isinstance(operation, Put):
        if operation.expected_version == MUST_NOT_EXIST:
            return CreateNode(operation.path, operation.data, OPEN_ACL_UNSAFE, 0)
        return SetData(operation.path, operation.data, _version(operation.expected_version))
    return DeleteNode(operation.path, _version(operation.expected_version))


def _makes_node(operation: Operation) -> bool:
    return isinstance(operation, Create) or (
        isinstance(operation, Put) and operation.expected_version == MUST_NOT_EXIST
    )


def _missing_parents(operations: Sequence[Operation]) -> set[str]:
    """What must be there before, for those operations that make nodes, and is not made by others of them."""
    parents: set[str] = set()
    made: set[str] = set()
    for operation in operations:
        if _makes_node(operation):
            parents |= set(_parents(operation.path)) - made
            made.add(operation.path)
    return parents


def _first_failed(results: Sequence[object]) -> int | None:
    """Others are only undone, or not done, because of it."""
    failed = [i for i, result in enumerate(results) if isinstance(result, Exception)]
    undone = exceptions.RolledBackError | exceptions.RuntimeInconsistency
    causes = [i for i in failed if not isinstance(results[i], undone)]
    return next(iter(causes or failed), None)


def _lacks_parent(operation: Operation, error: Exception) -> bool:
    return _makes_node(operation) and isinstance(error, exceptions.NoNodeError)


def _as_ours(error: exceptions.KazooException, path: str) -> AnabranchError:
    """What the caller should do about it."""
    match error:
        case exceptions.NoNodeError():
            return NotFound(f"metadata node {path} is not there")
        case exceptions.NodeExistsError():
            return Exists(f"metadata node {path} is there already")
        case exceptions.BadVersionError():
            return Conflict(f"metadata node {path} is at another version than expected")
        case exceptions.NotEmptyError():
            return Conflict(f"metadata node {path} has children")
        case exceptions.NoChildrenForEphemeralsError():
            return Invalid(f"the parent of metadata node {path} is ephemeral and cannot have children")
        case exceptions.BadArgumentsError() | exceptions.InvalidACLError() | exceptions.NoAuthError():
            return Invalid(f"ZooKeeper refuses metadata node {path}: {type(error).__name__}")
        case exceptions.SessionExpiredError():
            return SessionExpired("the metadata session has expired; another one is being opened")
    why = f"{type(error).__name__} {error}".rstrip()
    return Unavailable(f"ZooKeeper did not answer about metadata node {path}, which may be changed: {why}")
