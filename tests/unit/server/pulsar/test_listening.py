"""The listener for Pulsar clients: how many may come, signs of life, memory for large frames.  No sockets."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.base.network import Peer
from anabranch.server import client_listener as module
from anabranch.server.config import DynamicConfig
from anabranch.server.config_file import load
from anabranch.server.pulsar import connection as connections
from anabranch.server.pulsar import listener as protocol
from anabranch.server.pulsar.listener import PulsarListener
from anabranch.server.pulsar.registry import load_commands
from anabranch.server.reception import Reception
from anabranch.wire.pulsar.commands_pb2 import BaseCommand
from tests.support.logs import SetClock
from tests.support.pulsar_wire import Client, frame

C = BaseCommand


class Room:
    """A listener on a network that is all in memory; time stands still until it is moved."""

    def __init__(self, room: int = 1000, **settings: str) -> None:
        self.clock = SetClock()
        static = {name.replace("_", "."): value for name, value in settings.items()}
        services: Any = SimpleNamespace(clock=self.clock, config=DynamicConfig(load(None, {}, static)))
        self.listener = PulsarListener(load_commands(), services, Reception(services.config, room))
        self.host, self.port = "127.0.0.1", 6650
        self._factory: Callable[[], Peer]
        self._sweeping: asyncio.Task[None] | None = None

    async def listen(self, host: str, port: int, factory: Callable[[], Peer], options: object) -> Any:
        self._factory = factory
        return self

    def close(self) -> None:
        """Nobody comes by himself."""

    def meet(self, remote: str = "127.0.0.1:40000") -> Client:
        return Client(self._factory(), remote)

    async def connect(self) -> Client:
        client = self.meet()
        await client.connect()
        return client

    async def pass_time(self, seconds: float) -> None:
        """Time goes on, and the sweep comes round."""
        self.clock.advance(int(seconds * 1000))
        if self._sweeping is None:
            self._sweeping = asyncio.ensure_future(self.listener.sweep())
            await asyncio.sleep(0)  # its pause begins before ours, and ends before it
        await asyncio.sleep(0.02)

    async def end(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)
        await self.listener.close(0)
        await asyncio.sleep(0)


@pytest.fixture
async def open_room(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[..., Any]]:
    for name in ("_SWEEP_S", "_SWEEP_CONTENDED_S"):
        monkeypatch.setattr(module, name, 0.005)
    for part in (module, protocol, connections):
        monkeypatch.setattr(part, "_trouble", logging.getLogger("trouble"))
    rooms: list[Room] = []

    async def open(*arguments: Any, **settings: str) -> Room:
        rooms.append(Room(*arguments, **settings))
        await rooms[-1].listener.open(rooms[-1], "127.0.0.1", 6650)  # type: ignore[arg-type]
        return rooms[-1]

    yield open
    for room in rooms:
        await room.end()


async def test_no_more_than_allowed(open_room: Callable[..., Any]) -> None:
    room = await open_room(max_connections="2")
    first, _ = room.meet(), room.meet()
    assert room.meet().link.aborted
    first.leave()
    await asyncio.sleep(0)
    assert not room.meet().link.aborted


async def test_no_more_than_there_are_descriptors_for(open_room: Callable[..., Any]) -> None:
    room = await open_room(1)
    room.meet()
    assert room.meet().link.aborted


async def test_no_more_from_one_address_than_allowed(open_room: Callable[..., Any]) -> None:
    room = await open_room(max_connections_per_ip="1")
    room.meet("203.0.113.1:1")
    assert room.meet("203.0.113.1:2").link.aborted
    assert not room.meet("203.0.113.2:1").link.aborted


async def test_who_answers_pings_stays(open_room: Callable[..., Any]) -> None:
    room = await open_room()
    client = await room.connect()
    for _ in range(3):
        await room.pass_time(31)
        assert client.heard() == ["PING"]
        client.tell(C.PONG)
    assert not client.link.aborted


async def test_who_says_anything_stays(open_room: Callable[..., Any]) -> None:
    room = await open_room()
    client = await room.connect()
    await room.pass_time(31)
    client.tell(C.PING)
    await room.pass_time(31)
    assert not client.link.aborted


async def test_who_gives_no_sign_is_closed(open_room: Callable[..., Any]) -> None:
    room = await open_room()
    client = await room.connect()
    await room.pass_time(31)
    assert not client.link.aborted
    await room.pass_time(31)
    assert client.link.aborted


async def test_who_is_not_read_is_not_blamed(open_room: Callable[..., Any]) -> None:
    room = await open_room()
    client = await room.connect()
    client._peer.pause(1000.0)  # type: ignore[attr-defined]  # it has published more than it may
    await room.pass_time(31)
    await room.pass_time(31)
    assert not client.link.aborted


async def test_who_does_not_connect_is_closed(open_room: Callable[..., Any]) -> None:
    room = await open_room()
    client = room.meet()
    await room.pass_time(29)
    assert not client.link.aborted
    await room.pass_time(2)
    assert client.link.aborted


async def test_a_stalled_frame_goes_when_others_wait(open_room: Callable[..., Any]) -> None:
    room = await open_room(queued_max_request_bytes=str(5 << 20), socket_request_max_bytes="1000")
    slow, waiting = await room.connect(), await room.connect()
    large = (4 << 20).to_bytes(4, "big")
    slow.send(large)
    waiting.send(large)
    await room.pass_time(2)
    assert slow.link.aborted
    assert not waiting.link.aborted


async def test_frames_beyond_the_largest_message(open_room: Callable[..., Any]) -> None:
    room = await open_room(maxMessageSize="1000")
    client = await room.connect()
    client.send((1000 + 10 * 1024 + 1).to_bytes(4, "big"))
    await client.closed()


async def test_a_client_that_asks_on_and_does_not_listen_is_not_read(open_room: Callable[..., Any]) -> None:
    room = await open_room()
    client = await room.connect()
    client.link.full = True
    client.link.unsent = 5 << 20
    client.tell(C.PING)
    assert client.link.paused
    client.send(frame(C.PING) * 3)  # what was in the socket already
    assert len(client.heard()) < 4
    client.link.drain()
    client._peer.drained()
    assert not client.link.paused
