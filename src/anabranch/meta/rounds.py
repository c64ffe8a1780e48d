"""Rounds: changes of the embedded metadata store, decided on each other and made durable by one sync.

    put ─┐                                   ┌─ thread ─┐
    put ─┼─> one round of changes ─> append ─┤   sync   ├─> readers see it, watchers hear of it,
    put ─┘   planned on `_staged`            └──────────┘   callers are answered

Rounds follow each other; what is asked for during one waits for the next, so any number of
concurrent changes costs one sync (group commit).  There are two trees: `tree`, which readers see
and which holds only what is durable, and `_staged`, which is ahead of it by the round under way, so
that the changes of one round are decided on each other.  When a round fails, everybody in it is
told, `_staged` starts again from `tree`, and the store goes on.  A journal that has grown too large,
or whose sync failed, is rewritten from `tree` between two rounds.

What one caller asks for is in one frame of the journal, and a frame is all or nothing.  Ephemeral nodes are
not journalled: no session outlives the process.  They go between two rounds, which needs no disk.
"""

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple, TypeVar

from anabranch.base.errors import AnabranchError, Unavailable
from anabranch.base.executors import Executors
from anabranch.meta.journal import Journal, frame_of
from anabranch.meta.plans import Plan, plan_end_of
from anabranch.meta.tree import Change, Tree
from anabranch.meta.watches import Watches

Result = TypeVar("Result")

# What may wait for the next round.  Far above what one node's topics amount to.
MAX_WAITING_BYTES = 64 << 20


class _Request(NamedTuple):
    plan: Callable[[Tree], Plan[Any]]
    answer: "asyncio.Future[Any]"


class _Round(NamedTuple):
    changes: list[Change]
    outcomes: list[tuple["asyncio.Future[Any]", Any]]  # a result, or the error to raise


class Rounds:
    def __init__(self, journal: Journal, tree: Tree, executors: Executors) -> None:
        self.tree = tree
        self._staged = tree.copy()
        self._journal = journal
        self._thread = executors("metadata", 1)
        self._waiting: list[_Request] = []
        self._waiting_bytes = 0
        self.watches = Watches()
        self._open_sessions: set[int] = set()
        self._session_ids = count(1)
        self._over: list[int] = []  # sessions whose nodes are to go
        self._closed = False
        self._idle = asyncio.Event()
        self._idle.set()

    def open_session(self) -> int:
        """The id of a new session."""
        id = next(self._session_ids)
        self._open_sessions.add(id)
        return id

    def end_session(self, id: int) -> bool:
        """Its ephemeral nodes go: at once, or before the next round.  True if no session is left."""
        self._open_sessions.remove(id)
        self._over.append(id)
        if self._idle.is_set():
            self._remove_ephemerals()
        return not self._open_sessions

    async def close(self) -> None:
        """Finish what was asked for, then take no more."""
        self._closed = True
        await self._idle.wait()
        self._thread.shutdown()
        self._journal.close()

    # --- rounds

    async def submit(self, plan: Callable[[Tree], Plan[Result]], size_bytes: int) -> Result:
        if self._closed:
            raise Unavailable("the metadata store is closed")
        if self._waiting_bytes + size_bytes > MAX_WAITING_BYTES:
            raise Unavailable("too many metadata changes are waiting for the disk")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Result] = loop.create_future()
        self._waiting.append(_Request(plan, answer))
        self._waiting_bytes += size_bytes
        if self._idle.is_set():
            self._idle.clear()
            # Not now: callers that are about to run in this turn of the loop should share the sync.
            loop.call_soon(self._next)
        return await answer

    def _next(self) -> None:
        self._remove_ephemerals()
        if not self._waiting:
            self._idle.set()
        elif self._journal.wants_rewrite(self.tree.durable_bytes):
            self._in_thread(self._journal.rewrite(self.tree.changes()), self._rewritten)
        else:
            self._start_round()

    def _start_round(self) -> None:
        round_ = self._decide(self._take_waiting())
        durable = [change for change in round_.changes if not change.ephemeral]
        if not durable:
            self._end_round(round_)
            return
        try:
            sync = self._journal.append(frame_of(durable))
        except Unavailable as error:
            self._fail_round(round_, error)
            return
        self._in_thread(sync, lambda failure: self._synced(round_, failure))

    def _synced(self, round_: _Round, failure: BaseException | None) -> None:
        if failure is None:
            self._end_round(round_)
        else:
            self._fail_round(round_, self._journal.append_failed(failure))

    def _rewritten(self, failure: BaseException | None) -> None:
        if failure is None:
            self._journal.rewritten()
        else:
            self._journal.rewrite_failed(failure)
        if self._journal.distrusted is None:
            self._start_round()
        else:
            answers = [(request.answer, None) for request in self._take_waiting()]
            self._fail_round(_Round([], answers), self._journal.distrusted)

    def _take_waiting(self) -> list[_Request]:
        requests, self._waiting, self._waiting_bytes = self._waiting, [], 0
        return requests

    def _in_thread(self, work: Callable[[], None], then: Callable[[BaseException | None], None]) -> None:
        done = asyncio.get_running_loop().run_in_executor(self._thread, work)
        done.add_done_callback(lambda done: then(done.exception()))

    def _decide(self, requests: list[_Request]) -> _Round:
        round_ = _Round([], [])
        for plan, answer in requests:
            if answer.done():
                continue  # the caller was cancelled
            try:
                changes, result = plan(self._staged)
            except AnabranchError as error:
                round_.outcomes.append((answer, error))
                continue
            for change in changes:
                self._staged.apply(change)
            round_.changes.extend(changes)
            round_.outcomes.append((answer, result))
        return round_

    def _fail_round(self, round_: _Round, error: Unavailable) -> None:
        """Nothing of a round was done.  An error that was decided on its changes is no answer either."""
        self._staged = self.tree.copy()
        self._end_round(_Round([], [(answer, error) for answer, _ in round_.outcomes]))

    def _end_round(self, round_: _Round) -> None:
        for change in round_.changes:
            event = self.tree.apply(change)
            if event is not None:
                self.watches.tell(event)
        for answer, outcome in round_.outcomes:
            if answer.done():
                continue
            if isinstance(outcome, BaseException):
                answer.set_exception(outcome)
            else:
                answer.set_result(outcome)
        self._next()

    def _remove_ephemerals(self) -> None:
        """Of the sessions that are over.  No round is under way, so both trees are the same."""
        sessions, self._over = self._over, []
        for session in sessions:
            for change in plan_end_of(self.tree, session):
                self._staged.apply(change)
                event = self.tree.apply(change)
                assert event is not None
                self.watches.tell(event)
