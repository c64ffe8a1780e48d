"""Embedded metadata store: a tree in memory, a journal on disk, no other process.

    EmbeddedStore (a session) ─┐
    EmbeddedStore (a session) ─┴─> Rounds ─> Tree, Journal

Reads are from memory and never wait.  Several nodes in one process have a session each; the journal is
closed with the last.  A session does not expire by itself, since who holds it lives in the same process:
it ends when it is closed, by its node or by whoever takes down a node that cannot.
"""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from anabranch.base.disk import Disk
from anabranch.base.errors import SessionExpired, Unavailable
from anabranch.base.executors import Executors, thread_pool
from anabranch.meta.plans import Plan, plan_create, plan_delete, plan_multi, plan_put
from anabranch.meta.recovery import recover
from anabranch.meta.rounds import Rounds
from anabranch.meta.session import Session, SessionState
from anabranch.meta.store import Event, Operation, Versioned, check_data, check_operations, check_path
from anabranch.meta.tree import Tree

Result = TypeVar("Result")


class EmbeddedStore:
    """A `MetadataStore`."""

    def __init__(self, rounds: Rounds) -> None:
        self._rounds = rounds
        self._watches: list[Callable[[], None]] = []
        self._is_closing = False
        self.session = Session(rounds.open_session())

    @classmethod
    def open(cls, path: Path, disk: Disk, executors: Executors = thread_pool) -> "EmbeddedStore":
        """A session on the store kept in the file `path`, whose folder is there."""
        return cls(Rounds(*recover(path, disk), executors))

    def new_session(self) -> "EmbeddedStore":
        """Another session on the same store."""
        return EmbeddedStore(self._rounds)

    @property
    def tree(self) -> Tree:
        """What readers see, for those that are no coroutines."""
        self._check()
        return self._rounds.tree

    async def get(self, path: str) -> Versioned | None:
        return self.tree.get(path)

    async def children(self, path: str) -> list[str]:
        return self.tree.children(path)

    async def scan(self, prefix: str) -> list[tuple[str, Versioned]]:
        return self.tree.scan(prefix)

    async def put(self, path: str, data: bytes, expected_version: int | None = None) -> int:
        check_path(path)
        check_data(path, data)
        return await self._submit(lambda tree: plan_put(tree, path, data, expected_version), len(data))

    async def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        check_path(path)
        check_data(path, data)
        owner = self.session.id if ephemeral else 0
        return await self._submit(
            lambda tree: plan_create(tree, path, data, owner=owner, sequential=sequential), len(data)
        )

    async def delete(self, path: str, expected_version: int | None = None) -> None:
        check_path(path)
        await self._submit(lambda tree: plan_delete(tree, path, expected_version), 0)

    async def multi(self, operations: Sequence[Operation]) -> list[str | int | None]:
        size = check_operations(operations)
        return await self._submit(lambda tree: plan_multi(tree, operations, self.session.id), size)

    async def watch(self, prefix: str, callback: Callable[[Event], None]) -> Callable[[], None]:
        self._check()
        stop = self._rounds.watches.add(prefix, callback)
        self._watches.append(stop)
        return stop

    async def close(self) -> None:
        """Finish what was asked for, then end the session."""
        if self._is_closing:
            return
        self._is_closing = True
        with contextlib.suppress(Unavailable):  # nothing is asked for, only what came before is waited for
            await self._rounds.submit(lambda tree: Plan([], None), 0)
        for stop in self._watches:
            stop()
        is_last = self._rounds.end_session(self.session.id)
        self.session.become(SessionState.EXPIRED)
        if is_last:
            await self._rounds.close()

    async def _submit(self, plan: Callable[[Tree], Plan[Result]], size_bytes: int) -> Result:
        self._check()
        return await self._rounds.submit(plan, size_bytes)

    def _check(self) -> None:
        if self._is_closing:
            raise SessionExpired(f"metadata session {self.session.id} is over; open another one")
