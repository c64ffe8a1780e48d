"""Simulated metadata store: sessions that time out, followers that lag, watches that come late.

    store = SimStore(schedule, now)
    session = store.connect("b1", tell, pace)       a `MetadataStore` as a session of its own
    store.tick()                                    from time to time: who is heard of, who has timed out

As with ZooKeeper, a session is served by a follower.  Changes are made at the leader, one after the other;
the follower has them later, tells its watchers in order, and answers reads with what it has.  What a session
has written itself it sees.  Requests and answers of a session keep their order.  A session that was not
heard of for a while has missed what happened meanwhile, and is told only that.

A session whose host is cut off, paused or dead is not heard of: first it is in doubt and what was asked has
no answer, then its time is up and its ephemeral nodes go.  When it is heard of again it learns that, and
is another session from then on.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any, NamedTuple

from anabranch.base.errors import AnabranchError, SessionExpired, Unavailable
from anabranch.meta.plans import Plan, plan_create, plan_delete, plan_end_of, plan_multi, plan_put
from anabranch.meta.session import Session, SessionState
from anabranch.meta.store import (
    Event,
    EventKind,
    Operation,
    Versioned,
    check_data,
    check_operations,
    check_path,
    is_within,
)
from anabranch.meta.tree import Change, Tree

Schedule = Callable[[float, Callable[[], None]], object]
"""Call back at a time, in no process."""
Tell = Callable[[Callable[[], None]], object]
"""Call back in the process that holds the session."""
_CERTAIN = 2 / 3
"""Of a session's time, from when it was heard of."""


class Pace(NamedTuple):
    """How fast the store is for a session, in seconds."""

    way_s: Callable[[], float] = lambda: 0.0
    """From the session to the store, or back."""
    lag_s: Callable[[], float] = lambda: 0.0
    """From a change to its being seen."""
    reaches: Callable[[], bool] = lambda: True
    """Whether anything passes between the session's host and the store."""
    runs: Callable[[], bool] = lambda: True
    """Whether the process is neither paused nor dead."""


_AT_ONCE = Pace()


class SimStore:
    def __init__(self, schedule: Schedule, now: Callable[[], float]) -> None:
        self.schedule = schedule
        self.now = now
        self.tree = Tree()
        self.commits: list[list[Change]] = []
        self.on_commit: Callable[[list[Change]], None] = lambda changes: None
        self.sessions: dict[int, SimSession] = {}
        self._known: list[SimSession] = []  # those whose time is up, too
        self._ids = 0

    def connect(self, name: str, tell: Tell, pace: Pace = _AT_ONCE, timeout_s: float = inf) -> "SimSession":
        self._known.append(made := SimSession(self, name, tell, pace, timeout_s))
        return made

    def new_id(self, session: "SimSession") -> int:
        self._ids += 1
        self.sessions[self._ids] = session
        return self._ids

    def commit(self, changes: list[Change]) -> None:
        if not changes:
            return
        for change in changes:
            self.tree.apply(change)
        self.commits.append(changes)
        self.on_commit(changes)
        for session in tuple(self.sessions.values()):
            session.lag_behind(len(self.commits))

    def end(self, id: int) -> None:
        if self.sessions.pop(id, None) is not None:
            self.commit(plan_end_of(self.tree, id))

    def end_all(self, name: str) -> None:
        for id, session in tuple(self.sessions.items()):
            if session.name == name:
                self.end(id)

    def tick(self) -> None:
        for session in self._known:
            session.tick()
        for id, session in tuple(self.sessions.items()):
            if self.now() - session.heard_at > session.timeout_s:
                self.end(id)


class _Watch(NamedTuple):
    prefix: str
    callback: Callable[[Event], None]


class SimSession:
    """A `MetadataStore`."""

    def __init__(self, store: SimStore, name: str, tell: Tell, pace: Pace, timeout_s: float) -> None:
        self.name = name
        self.timeout_s = timeout_s
        self.heard_at = store.now()
        self.is_connected = True
        self.is_closed = False
        self._store = store
        self._tell = tell
        self._pace = pace
        self._seen = len(store.commits)
        self._view = store.tree.copy()
        self._arrives = self._answers = 0.0  # when the last request is there, and the last answer back
        self._asked: dict[asyncio.Future[Any], None] = {}
        self._watches: list[_Watch] = []
        self._held: list[Callable[[], None]] = []  # what passes when something passes again
        self._id = store.new_id(self)  # as the store has it; the session learns it later
        self.session = Session(self._id, self._certain_until)

    # --- what is asked

    async def get(self, path: str) -> Versioned | None:
        return await self._ask(lambda: self._view.get(path))

    async def children(self, path: str) -> list[str]:
        return await self._ask(lambda: self._view.children(path))

    async def scan(self, prefix: str) -> list[tuple[str, Versioned]]:
        return await self._ask(lambda: self._view.scan(prefix))

    async def put(self, path: str, data: bytes, expected_version: int | None = None) -> int:
        check_path(path)
        check_data(path, data)
        return await self._change(lambda tree: plan_put(tree, path, data, expected_version))

    async def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        check_path(path)
        check_data(path, data)
        return await self._change(
            lambda tree: plan_create(
                tree, path, data, owner=self._id if ephemeral else 0, sequential=sequential
            )
        )

    async def delete(self, path: str, expected_version: int | None = None) -> None:
        check_path(path)
        await self._change(lambda tree: plan_delete(tree, path, expected_version))

    async def multi(self, operations: Sequence[Operation]) -> list[str | int | None]:
        check_operations(operations)
        return await self._change(lambda tree: plan_multi(tree, operations, self._id))

    async def watch(self, prefix: str, callback: Callable[[Event], None]) -> Callable[[], None]:
        watch = _Watch(prefix, callback)
        await self._ask(lambda: self._watches.append(watch))

        def stop() -> None:
            if watch in self._watches:
                self._watches.remove(watch)

        return stop

    async def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        if not self.session.is_expired:
            with suppress(Unavailable):
                await self._send(lambda: self._store.end(self._id))
            self._watches.clear()
            self.session.become(SessionState.EXPIRED)

    async def _change(self, plan: Callable[[Tree], Plan[Any]]) -> Any:
        def change() -> Any:
            changes, result = plan(self._store.tree)
            self._store.commit(changes)
            self._see(len(self._store.commits))
            return result

        return await self._ask(change)

    async def _ask(self, work: Callable[[], Any]) -> Any:
        if self.is_closed or self.session.is_expired:
            raise SessionExpired(f"metadata session {self.session.id} is over; open another one")
        return await self._send(work)

    async def _send(self, work: Callable[[], Any]) -> Any:
        if not self.is_connected or not self._pace.runs():
            raise Unavailable("the metadata store cannot be reached")
        answer = asyncio.get_running_loop().create_future()
        self._asked[answer] = None
        id = self._id
        self._arrives = max(self._arrives, self._store.now() + self._pace.way_s())
        self._store.schedule(self._arrives, lambda: self._arrive(id, work, answer))
        try:
            return await answer
        finally:
            self._asked.pop(answer, None)

    def _arrive(self, id: int, work: Callable[[], Any], answer: "asyncio.Future[Any]") -> None:
        if self._held or not self._pace.reaches():
            self._held.append(lambda: self._arrive(id, work, answer))
            return
        if id not in self._store.sessions:
            return  # `tick` tells
        try:
            result, failure = work(), None
        except AnabranchError as error:
            result, failure = None, error

        def settle() -> None:
            if not answer.done():
                if failure is None:
                    answer.set_result(result)
                else:
                    answer.set_exception(failure)

        self._back(settle)

    def _back(self, say: Callable[[], None]) -> None:
        """Have the process told, after what it was told before."""
        self._answers = max(self._answers, self._store.now() + self._pace.way_s())
        self._store.schedule(self._answers, lambda: self._pass(say))

    def _pass(self, say: Callable[[], None]) -> None:
        if self._held or not self._pace.reaches():
            self._held.append(lambda: self._pass(say))
        else:
            self._tell(say)

    # --- what is seen

    def lag_behind(self, commits: int) -> None:
        lag_s = self._pace.lag_s()
        if not lag_s:
            self._see(commits)
        else:
            self._store.schedule(self._store.now() + lag_s, lambda: self._see(commits))

    def _see(self, commits: int) -> None:
        if not self.is_connected or self._id not in self._store.sessions:
            return
        while self._seen < commits:
            for change in self._store.commits[self._seen]:
                event = self._view.apply(change)
                if event is not None:
                    for watch in self._watches:
                        if is_within(event.path, watch.prefix):
                            self._back(partial(self._fire, watch, event))
            self._seen += 1

    def _fire(self, watch: _Watch, event: Event) -> None:
        if watch in self._watches:
            watch.callback(event)

    # --- whether it lives

    def tick(self) -> None:
        store = self._store
        if self.is_closed:
            if self._held and self._asked:  # as a client that stops: it waits for no link to be mended
                self._tell(lambda: self._lose("the metadata session is closed"))
            return
        if not (self._pace.reaches() and self._pace.runs()):
            if self.is_connected and store.now() - self.heard_at > self.timeout_s / 3:
                self.is_connected = False
                self._held.clear()
                self._tell(self._suspended)
            return
        if self._id not in store.sessions:
            self.is_connected = False
            self._held.clear()
            self._id = store.new_id(self)
            self._tell(lambda id=self._id: self._expired(id))  # type: ignore[misc]
        self.heard_at = store.now()
        held, self._held = self._held, []
        for passes in held:
            passes()
        if not self.is_connected:
            self.is_connected = True
            self._seen, self._view = len(store.commits), store.tree.copy()
            self._tell(self._connected)
            for watch in self._watches:
                self._tell(partial(self._fire, watch, Event(EventKind.MISSED, watch.prefix)))

    def _certain_until(self, id: int) -> float:
        return self.heard_at + self.timeout_s * _CERTAIN if id == self._id else -inf

    def _suspended(self) -> None:
        self.session.become(SessionState.SUSPENDED)
        self._lose("the metadata store was lost: whether it was done is not known")

    def _expired(self, id: int) -> None:
        self._lose("the metadata session is over: whether it was done is not known")
        self.session.become(SessionState.EXPIRED)
        self.session.id = id

    def _connected(self) -> None:
        if self.session.state is not SessionState.CONNECTED:
            self.session.become(SessionState.CONNECTED, self._id)

    def _lose(self, why: str) -> None:
        for answer in self._asked:
            if not answer.done():
                answer.set_exception(Unavailable(why))
