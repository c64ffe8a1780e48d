"""Link to ZooKeeper: a client on threads of its own, seen from the event loop.

    loop    request ──> kazoo's queue ──────────────> server
    loop  <── one wake-up for many <── kazoo's threads <── answers, events of the watch, changes of state

What comes back comes in the order in which kazoo heard it: an event before the answer to a later read, a
session's end before answers that belong to the next session.

    CONNECTED ──> SUSPENDED ──> CONNECTED                the watch is armed again, and may have missed changes
                      └───────> EXPIRED ──> CONNECTED    a new session; kazoo opens it by itself

While it is not connected requests fail at once: kazoo would keep them for whatever session comes next.
"""

import asyncio
import contextlib
import logging
import math
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any

from kazoo.client import KazooState
from kazoo.exceptions import ConnectionLoss, KazooException, UnimplementedError

from anabranch.base.errors import Invalid, SessionExpired, Unavailable
from anabranch.meta.session import Session, SessionState
from anabranch.meta.zookeeper_kazoo import AddWatch, Client

log = logging.getLogger(__name__)

# A session may be as short as 2 s: a server that is back is found in a part of that.
_RETRY = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 0.5}
_START_AGAIN_S = 1.0  # after what kazoo's thread does not survive, which the next one may not either


class Link:
    """`hear` gets the events of the watch at `root`, `missed` is called when some may not have come."""

    def __init__(
        self,
        hosts: str,
        root: str,
        session_timeout_s: float,
        thread: Executor,
        hear: Callable[[int, str], None],
        missed: Callable[[], None],
    ) -> None:
        self.hosts = hosts
        self._root = root
        self._thread = thread
        self._missed = missed
        self._inbox = _Inbox(asyncio.get_running_loop())
        self._unanswered: set[asyncio.Future[Any]] = set()
        self._client = client = Client(
            hosts,
            session_timeout_s,
            _RETRY,
            lambda kind, path: client.hand_over(partial(self._inbox.put, partial(hear, kind, path))),
        )
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._beat_s = session_timeout_s / 8
        self._beating: asyncio.TimerHandle | None = None
        self._is_connected = False
        self.is_closed = False
        self.session = Session(0, self._certain_until)
        self.session.state = SessionState.SUSPENDED

    async def open(self, wait_s: float) -> None:
        """Connect, and arm the watch.  Unavailable if no server answers in time."""
        self._beat()
        self._client.add_listener(self._listen)
        self._client.start_async()
        try:
            async with asyncio.timeout(wait_s):
                await self._opened
        except TimeoutError:
            why = self._client.broke_because
            raise Unavailable(
                f"no ZooKeeper server at {self.hosts} answers within {wait_s:g} s: {why}"
            ) from None
        except UnimplementedError:
            raise Invalid(
                f"the ZooKeeper server at {self.hosts} is too old; version 3.6 or newer is needed, "
                "for it can watch a whole tree"
            ) from None

    async def call(self, request: Any) -> Any:
        """What the server answers.  KazooException if it is an error, or if it does not come."""
        self._check()
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._unanswered.add(answer)
        answer.add_done_callback(self._unanswered.discard)
        self._submit(request, answer)
        return await answer

    async def close(self) -> None:
        """End the session."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._beating is not None:
            self._beating.cancel()
        # kazoo waits for its threads, which wait for the server.
        await asyncio.get_running_loop().run_in_executor(self._thread, self._stop)
        self._thread.shutdown(wait=False)
        self._is_connected = False
        if self.session.id:
            log.info("%s: closed", _name(self.session.id))
        self.session.become(SessionState.EXPIRED)

    def _beat(self) -> None:
        """Tell the client now and again that the loop moves."""
        self._client.beat()
        self._beating = asyncio.get_running_loop().call_later(self._beat_s, self._beat)

    def _stop(self) -> None:
        self._client.stop()
        self._client.close()

    def _check(self) -> None:
        if self.is_closed:
            raise SessionExpired(f"{_name(self.session.id)} is over; open another one")
        if not self._is_connected:
            raise Unavailable(f"no ZooKeeper server at {self.hosts} answers")

    def _submit(self, request: Any, answer: "asyncio.Future[Any]") -> None:
        def answered(result: Any) -> None:
            self._inbox.put(partial(_settle, answer, result))

        self._client.submit(request).rawlink(answered)

    def _certain_until(self, id: int) -> float:
        life = self._client.life
        return life.certain_until if life.session == id else -math.inf

    # --- changes of state

    def _listen(self, state: str) -> None:
        """On kazoo's thread."""
        client = self._client
        if state == KazooState.CONNECTED:
            change = partial(self._connected, client.life.session, client.timeout_s)
        elif state == KazooState.SUSPENDED:
            change = partial(self._suspended, client.broke_because)
        else:
            change = partial(self._lost, client.is_expired)
        client.hand_over(partial(self._inbox.put, change))

    def _connected(self, id: int, timeout_s: float) -> None:
        if self.is_closed:
            return
        self._is_connected = True
        self._arm()  # first of all requests: whatever is read from now on, its changes are heard of
        session = self.session
        if session.id == id:
            log.info("%s: connected again in time; everything is read again", _name(id))
        elif session.id == 0:
            log.info(
                "%s: opened at %s; it ends when no server hears of it for %g s",
                _name(id),
                self.hosts,
                timeout_s,
            )
        else:
            log.info(
                "%s: opened in place of %s; everything is read again, and what went with that session must "
                "be made again",
                _name(id),
                _name(session.id),
            )
            if not session.is_expired:
                session.become(SessionState.EXPIRED)
        session.become(SessionState.CONNECTED, id)

    def _suspended(self, reason: str) -> None:
        if self.is_closed:
            return
        self._disconnected()
        log.warning(
            "%s: suspended, %s; metadata can be neither read nor changed until a server answers, and the "
            "session ends at the servers unless that is within %g s",
            _name(self.session.id),
            reason,
            self._client.timeout_s,
        )
        self.session.become(SessionState.SUSPENDED)

    def _lost(self, is_expired: bool) -> None:
        if self.is_closed:
            return
        self._disconnected()
        if is_expired:
            log.warning(
                "%s: lost, no server had heard of it for %g s; its ephemeral nodes are gone, a new session "
                "is being opened",
                _name(self.session.id),
                self._client.timeout_s,
            )
        else:
            log.error("%s: given up, the client broke down; a new one is started", _name(self.session.id))
            asyncio.get_running_loop().call_later(_START_AGAIN_S, self._start_again)
        self.session.become(SessionState.EXPIRED)

    def _disconnected(self) -> None:
        """Answers that came are known by now; nobody answers what was asked just after the link broke."""
        self._is_connected = False
        for answer in list(self._unanswered):
            if not answer.done():
                answer.set_exception(ConnectionLoss())

    def _start_again(self) -> None:
        if not self.is_closed:
            self._thread.submit(self._client.start_async)  # it waits for the threads that ended

    def _arm(self) -> None:
        """Set the watch; a server forgets it with the connection."""
        armed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        armed.add_done_callback(self._armed)
        self._submit(AddWatch(self._root or "/"), armed)

    def _armed(self, armed: "asyncio.Future[Any]") -> None:
        error = armed.exception()
        if not self._opened.done():
            if error is None:
                self._opened.set_result(None)
            elif isinstance(error, UnimplementedError):
                self._opened.set_exception(error)
        elif error is None:
            self._missed()
        elif isinstance(error, UnimplementedError):
            log.error("%s: changes by others are not heard of, the server is too old", _name(self.session.id))


class _Inbox:
    """Calls from other threads, made on the loop in order."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[Callable[[], None]] = deque()
        self._is_woken = False

    def put(self, call: Callable[[], None]) -> None:
        self._calls.append(call)
        if not self._is_woken:
            self._is_woken = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody wants it any more
                self._loop.call_soon_threadsafe(self._run)

    def _run(self) -> None:
        self._is_woken = False  # before the first: what comes later wakes again
        while self._calls:
            self._calls.popleft()()


def _settle(answer: "asyncio.Future[Any]", result: Any) -> None:
    if answer.done():
        return  # the caller was cancelled
    error = result.exception
    if error is None:
        answer.set_result(result.value)
    elif isinstance(error, KazooException):
        answer.set_exception(error)
    else:
        answer.set_exception(Unavailable(f"ZooKeeper's answer cannot be read: {error}"))


def _name(session: int) -> str:
    """As ZooKeeper's own log has it."""
    return f"metadata session {session & (1 << 64) - 1:#x}"
