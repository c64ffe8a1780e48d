"""A Pulsar connection: commands in, answers and messages out.

    frame ─┬─ SEND ──> collected, a producer's together ──> topic ──> receipts ──┐
           └─ others > handler ─┬─ at once ────────────────────────────────────┤
                                └─ coroutine ─ task, answers when it is done ──┴─> link
    subscriptions ─ deliver ───────────────────────────────────────────────────┘

All that is said in one turn (the frames of one read) leaves in one write.  Commands start in the order
they came; what waits (a topic is opened, a position saved) holds only the producer or consumer it is
about, and is answered by its request id, in any order.

A connection has limits.  It is not read while `_MAX_TASKS` requests wait, while as many messages wait for
their receipts as `maxPendingPublishRequestsPerConnection` says, while the publish rate is spent, or while
the client has not taken `_MAX_UNSENT` bytes of answers; and messages are not delivered while
`_FULL_BYTES` have not been taken, which is less, so that a slow consumer alone does not keep the
producers beside it waiting.  And it has turns: after `_TURN_S` it lets others go on.

The first command is CONNECT, and there is one; whatever breaks the protocol closes the connection.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from anabranch.base.errors import AnabranchError, Corrupt
from anabranch.base.network import Chunk, Link
from anabranch.base.seldom import Seldom
from anabranch.server.framing import Frames
from anabranch.server.pulsar.consumers import Consumers
from anabranch.server.pulsar.errors import code_of, message_of
from anabranch.server.pulsar.producers import Producers
from anabranch.server.pulsar.registry import Command
from anabranch.server.pulsar.services import PulsarServices
from anabranch.server.pulsar.signs import SignsOfLife
from anabranch.server.pulsar.topic_watchers import TopicWatchers
from anabranch.wire.pulsar.commands_pb2 import BaseCommand, Success
from anabranch.wire.pulsar.frames import read_frame, write_frame
from anabranch.wire.pulsar.text import check_text

log = logging.getLogger(__name__)
_trouble = Seldom(log, 1.0)

_MAX_TASKS = 1000
_FULL_BYTES = 1 << 20
_MAX_UNSENT = 4 << 20
_LARGE_BYTES = 64 << 10  # frames up to this size stay where they are until the turn is over (framing)
_TURN_S = 0.02
_CONNECT = BaseCommand.CONNECT
_SEND = BaseCommand.SEND


class Home(Protocol):
    """Where connections live: what they share, and who must know that they end."""

    commands: dict[int, Command]
    services: PulsarServices

    def admit(self, connection: "PulsarConnection") -> Frames | None:
        """The connection's frames, None if there are too many connections."""

    def dismiss(self, connection: "PulsarConnection") -> None: ...

    def track(self, work: Coroutine[Any, Any, None], size: int) -> "asyncio.Task[None]":
        """Run `work`, which has a command of `size` bytes in memory, to its end before the node stops."""


class PulsarConnection:
    __slots__ = (
        "_collected",
        "_collected_bytes",
        "_frames",
        "_home",
        "_in_turn",
        "_is_over",
        "_max_pending_sends",
        "_monotonic",
        "_pauses",
        "_resting",
        "_tasks",
        "_turn_began",
        "client_version",
        "consumers",
        "id",
        "is_connected",
        "last_active",
        "link",
        "producers",
        "protocol_version",
        "services",
        "signs",
        "supports_partial_producers",
        "unsent_seen",
        "watchers",
    )

    def __init__(self, home: Home, id: int) -> None:
        self._home = home
        self.services = home.services
        self._monotonic = home.services.clock.monotonic
        self._max_pending_sends = home.services.config.current.pulsar.max_pending_publishes
        self.id = id
        self.is_connected = False
        self.client_version = ""
        self.protocol_version = 0
        self.supports_partial_producers = False
        self.last_active = 0.0
        self.signs = SignsOfLife(self.write)
        self.unsent_seen = 0
        self.producers = Producers(self)
        self.consumers = Consumers(self)
        self.watchers = TopicWatchers(self)
        self._tasks: set[asyncio.Task[None]] = set()
        self._collected: list[Chunk] = []
        self._collected_bytes = 0
        self._in_turn = False
        self._is_over = False  # no further command is taken
        self._turn_began = 0.0
        self._resting = False  # its turn is over
        self._pauses = 0  # of the publish rate
        self._frames: Frames | None = None

    # --- the link's side

    def opened(self, link: Link) -> None:
        self.link = link
        self._frames = self._home.admit(self)
        if self._frames is None:
            link.abort()

    def buffer(self) -> memoryview:
        assert self._frames is not None
        return self._frames.buffer()

    def received(self, size: int) -> None:
        frames = self._frames
        assert frames is not None
        self._begin_turn()
        self.last_active = self._turn_began
        try:
            frames.received(size)
            self.producers.publish()
        except Exception as error:  # noqa: BLE001  the last line of defence: one client, not the node
            self.refuse(error)
        self._end_turn()

    def drained(self) -> None:
        self.consumers.resume()
        self.maybe_go()

    def closed(self) -> None:
        """The client is gone, and with it whatever it was doing."""
        if self._frames is None:
            return
        self._frames.close()
        self._frames = None
        self._home.dismiss(self)
        self._collected.clear()
        self.signs.lost()
        self.watchers.close()
        self.producers.gone()
        self.consumers.gone()

    # --- standing

    @property
    def is_open(self) -> bool:
        return self._frames is not None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is owed to the client."""
        return not self._tasks and not self.producers.pending_sends and not self.link.unsent

    @property
    def is_over(self) -> bool:
        """Whether it ends as soon as the client has taken what was said."""
        return self._is_over

    @property
    def is_read(self) -> bool:
        """Whether it would be noticed if the client said anything."""
        return self._frames is not None and not self._frames.stopped

    @property
    def is_late(self) -> bool:
        """Whether it holds memory for a command that does not come."""
        return self._frames is not None and self._frames.is_late()

    @property
    def is_full(self) -> bool:
        """Whether the client has not taken what it was sent: no further messages for now."""
        return self._is_over or self.link.unsent + self._collected_bytes > _FULL_BYTES

    # --- the frames' side

    def handle(self, frame: memoryview) -> None:
        """Start one command.  Raises if it is not one, and the connection is closed."""
        command, entry = read_frame(frame)
        type = command.type
        if not self.is_connected and type != _CONNECT:
            raise Corrupt(f"command {type} before CONNECT")
        self.signs.heard()
        if type == _SEND:
            if entry is None:
                raise Corrupt("SEND without a message")
            self.producers.collect(command.send, entry)
            if len(frame) > _LARGE_BYTES:
                self.producers.publish()  # its buffer may be another's before the turn is over
            return
        if self.producers.collected:
            self.producers.publish()  # they came before
        known = self._home.commands.get(type)
        if known is None or not command.HasField(known.field):
            raise Corrupt(f"command {type} is unknown, empty, or not for a broker")
        if self.is_connected and type == _CONNECT:
            raise Corrupt("CONNECT a second time")
        request = getattr(command, known.field)
        if known.has_text:
            check_text(request)
        self._perform(known, request, len(frame))

    def between(self) -> None:
        if self._monotonic() - self._turn_began > _TURN_S and self._frames is not None:
            self._resting = True
            self._frames.stop()
            asyncio.get_running_loop().call_soon(self._rested)

    def fed(self) -> None:
        if self._frames is not None:
            self._proceed(self._frames.proceed)

    def _rested(self) -> None:
        self._resting = False
        self.maybe_go()

    # --- commands

    def _perform(self, entry: Command, request: Any, size: int) -> None:
        try:
            later = entry.handler(request, self)
        except AnabranchError as error:
            self._answer_refusal(entry, request, error)
            return
        if later is None:
            return
        task = self._home.track(self._run(entry, request, later), size)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)
        if len(self._tasks) >= _MAX_TASKS and self._frames is not None:
            self._frames.stop()

    def spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Have something done to its end, whatever becomes of the connection."""
        return self._home.track(work, 0)

    async def _run(self, entry: Command, request: Any, later: Coroutine[Any, Any, None]) -> None:
        try:
            await later
        except AnabranchError as error:
            self._answer_refusal(entry, request, error)
        except Exception as error:
            log.exception("%s: %s failed", self.link.remote, entry.field)
            self._answer_refusal(entry, request, error)

    def _answer_refusal(self, entry: Command, request: Any, error: Exception) -> None:
        if entry.refusal is None:
            self.refuse(error)
        else:
            self.send(entry.refusal(request, code_of(error), message_of(error)))

    def _task_ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self.maybe_go()

    # --- answers

    def send(self, command: BaseCommand) -> None:
        """Say `command` to the client."""
        self.write((write_frame(command),))

    def succeed(self, request_id: int) -> None:
        self.send(BaseCommand(type=BaseCommand.SUCCESS, success=Success(request_id=request_id)))

    def write(self, chunks: Sequence[Chunk]) -> None:
        """Send whole frames: with all else of this turn, or now if it is nobody's turn."""
        if self._frames is None:
            return
        if self._in_turn:
            self._collected.extend(chunks)
            for chunk in chunks:
                self._collected_bytes += len(chunk)
            if self._collected_bytes > _FULL_BYTES:
                self._send_collected()
                if self.link.unsent > _MAX_UNSENT:
                    self._frames.stop()
        else:
            self.link.send(chunks)

    def _send_collected(self) -> None:
        if self._collected:
            chunks, self._collected = self._collected, []
            self._collected_bytes = 0
            self.link.send(chunks)

    # --- going on, and not

    def _begin_turn(self) -> None:
        self._in_turn = True
        self._turn_began = self._monotonic()

    def _end_turn(self) -> None:
        self._in_turn = False
        self._send_collected()
        if self._frames is not None and not self._frames.stopped and self._is_blocked:
            self._frames.stop()
        self.maybe_go()

    @property
    def _is_blocked(self) -> bool:
        return (
            self._is_over
            or self._resting
            or self._pauses > 0
            or len(self._tasks) >= _MAX_TASKS
            or self.producers.pending_sends >= self._max_pending_sends
            or self.link.unsent > _MAX_UNSENT
        )

    def maybe_go(self) -> None:
        """Go on reading if nothing speaks against it."""
        frames = self._frames
        if frames is not None and frames.stopped and not self._in_turn and not self._is_blocked:
            self._proceed(frames.go)

    def _proceed(self, step: Callable[[], None]) -> None:
        self._begin_turn()
        try:
            step()
            self.producers.publish()
        except Exception as error:  # noqa: BLE001  as above
            self.refuse(error)
        self._end_turn()

    def pause(self, seconds: float) -> None:
        """Read nothing for a while: the client sends more than it may."""
        self._pauses += 1
        if self._frames is not None:
            self._frames.stop()
        asyncio.get_running_loop().call_later(seconds, self._pause_over)

    def _pause_over(self) -> None:
        self._pauses -= 1
        self.maybe_go()

    # --- the end

    def refuse(self, error: BaseException) -> None:
        """Close the connection over something that has no answer of its own."""
        if isinstance(error, AnabranchError):
            _trouble.warning("%s: closed: %s", self.link.remote, error)
        else:
            log.error("%s: closed, a command failed", self.link.remote, exc_info=error)
        self.hang_up()

    def hang_up(self) -> None:
        """Close once what was said has left; what the client has sent since is not looked at."""
        if self._frames is not None:
            self._is_over = True
            self._frames.close()
            self._send_collected()
            self.link.close()

    def quiesce(self) -> None:
        """The node stops: take no further command, and tell the client to look for its topics elsewhere."""
        if self._frames is not None:
            self._is_over = True
            self._frames.close()
        self.producers.close_all()
        self.consumers.close_all()
