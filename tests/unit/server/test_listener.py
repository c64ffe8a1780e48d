"""The listener: how many may come, who is sent away, and how it all ends.  No sockets."""

import asyncio
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.base.network import Peer
from anabranch.server import client_listener as module
from anabranch.server import connection as connections
from anabranch.server.config_sections import SocketConfig
from anabranch.server.connection import Connection
from anabranch.server.listener import KafkaListener
from anabranch.server.reception import Reception
from anabranch.server.request_times import Requests
from tests.support.links import RecordingLink
from tests.support.logs import SetClock
from tests.unit.server.test_connection import CREATE_NOTHING, ECHO, LATER, SLOW, Home, request


class Room:
    """A network that is all in memory, and a listener on it."""

    def __init__(self, room: int = 1000, **sockets: Any) -> None:
        self.clock = SetClock()
        self.home = Home()
        config = SimpleNamespace(current=SimpleNamespace(sockets=SocketConfig(**sockets)))
        services: Any = SimpleNamespace(clock=self.clock, config=config, requests=Requests())
        self.listener = KafkaListener(self.home.apis, services, Reception(services.config, room))
        self.closed = False
        self.host, self.port = "127.0.0.1", 9092
        self._factory: Callable[[], Peer]

    async def listen(self, host: str, port: int, factory: Callable[[], Peer], *_: Any, **__: Any) -> Any:
        self._factory = factory
        return self

    def close(self) -> None:
        self.closed = True

    async def open(self) -> "Room":
        assert await self.listener.open(self, "127.0.0.1", 0) == (self.host, self.port)  # type: ignore[arg-type]
        return self

    def connect(self, remote: str = "127.0.0.1:40000") -> "Guest":
        return Guest(self._factory(), remote)

    async def sweep(self) -> None:
        """One round of the sweep."""
        task = asyncio.ensure_future(self.listener.sweep())
        await asyncio.sleep(0)  # its pause begins before ours, and ends before it
        await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Guest:
    """A client: its link tells the connection of its end, as a socket's would."""

    def __init__(self, peer: Any, remote: str) -> None:
        self.connection: Connection = peer
        self.link = RecordingLink(remote)
        self.link.abort = self._end  # type: ignore[method-assign]
        self.link.close = self._end  # type: ignore[method-assign]
        peer.opened(self.link)

    def _end(self) -> None:
        if not self.link.aborted:
            self.link.aborted = True
            asyncio.get_running_loop().call_soon(self.connection.closed)

    def send(self, data: bytes) -> None:
        while data:
            room = self.connection.buffer()
            size = min(len(room), len(data))
            room[:size] = data[:size]
            data = data[size:]
            self.connection.received(size)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SWEEP_S", 0.01)
    monkeypatch.setattr(module, "_SWEEP_CONTENDED_S", 0.01)
    for part in (module, connections):
        monkeypatch.setattr(part, "_trouble", logging.getLogger("trouble"))


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


# --- who may come


async def test_no_more_than_allowed_and_again_when_some_have_left(caplog: pytest.LogCaptureFixture) -> None:
    room = await Room(max_connections=3).open()
    guests = [room.connect() for _ in range(3)]
    refused = room.connect()
    assert refused.link.aborted
    assert "too many connections" in caplog.text
    await settled()
    assert room.connect().link.aborted
    guests[0].link.abort()
    await settled()
    assert not room.connect().link.aborted


async def test_no_more_than_there_are_descriptors_for() -> None:
    room = await Room(room=2).open()
    guests = [room.connect() for _ in range(2)]
    assert room.connect().link.aborted
    assert not any(guest.link.aborted for guest in guests)


async def test_no_more_from_one_address_than_allowed() -> None:
    room = await Room(max_connections_per_ip=2).open()
    mine = [room.connect("203.0.113.1:5"), room.connect("203.0.113.1:6")]
    assert room.connect("203.0.113.1:7").link.aborted
    assert not room.connect("203.0.113.2:5").link.aborted
    assert not room.connect("::1:5").link.aborted
    for guest in mine:
        guest.link.abort()
    await settled()
    assert not room.connect("203.0.113.1:8").link.aborted


async def test_coming_and_going_leaves_nothing_behind() -> None:
    room = await Room(max_connections=10, max_connections_per_ip=10).open()
    for number in range(200):
        guest = room.connect(f"203.0.113.{number % 7}:{number}")
        guest.send(request(ECHO, 1))
        guest.link.abort()
        await settled()
    assert len(room.listener._connections) == 0
    assert room.listener._reception.is_empty
    assert len(room.listener._tasks) == 0


# --- who is sent away


async def test_the_silent_are_closed_and_the_others_are_not() -> None:
    room = await Room(connections_max_idle_ms=60_000).open()
    silent, busy, waits = room.connect(), room.connect(), room.connect()
    waits.send(request(LATER, 1))
    room.clock.advance(59_000)
    busy.send(request(ECHO, 1))
    await room.sweep()
    assert not silent.link.aborted
    room.clock.advance(2_000)
    await room.sweep()
    assert silent.link.aborted
    assert not busy.link.aborted
    assert not waits.link.aborted, "it waits for us, not we for it"


async def test_never_closed_for_silence_if_so_configured() -> None:
    room = await Room(connections_max_idle_ms=-1).open()
    guest = room.connect()
    room.clock.advance(10**12)
    await room.sweep()
    assert not guest.link.aborted


async def test_one_that_does_not_take_its_answers_is_closed() -> None:
    room = await Room(connections_max_idle_ms=60_000).open()
    stuck, slow = room.connect(), room.connect()
    for guest in (stuck, slow):
        guest.link.full = True
        guest.send(request(ECHO, 1, bytes(1000)))
        assert guest.link.unsent > 0
    for _ in range(10):
        room.clock.advance(20_000)
        slow.link.unsent -= 10
        await room.sweep()
    assert stuck.link.aborted
    assert not slow.link.aborted


async def test_one_that_sits_on_a_frame_others_wait_for_loses_it(caplog: pytest.LogCaptureFixture) -> None:
    room = await Room(queued_max_request_bytes=200_000, request_max_bytes=150_000).open()
    sits, needs = room.connect(), room.connect()
    large = request(ECHO, 1, bytes(120_000))
    sits.send(large[:100])
    room.clock.advance(11_000)
    await room.sweep()
    assert not sits.link.aborted, "nobody needs the memory"
    needs.send(large[:100])
    assert needs.link.paused
    await room.sweep()
    assert sits.link.aborted
    assert not needs.link.aborted
    assert "stalled" in caplog.text
    await settled()
    assert not needs.link.paused
    needs.send(large[100:])
    assert len(needs.link.sent) > 120_000


async def test_a_frame_too_large_closes_one_connection(caplog: pytest.LogCaptureFixture) -> None:
    room = await Room(request_max_bytes=1000).open()
    guilty, other = room.connect(), room.connect()
    with caplog.at_level(logging.INFO):
        guilty.send(request(ECHO, 1, bytes(1001)))
    assert guilty.link.aborted
    assert "limit is 1000" in caplog.text
    other.send(request(ECHO, 2, b"fine"))
    assert other.link.sent.endswith(b"fine")


# --- the end


async def test_the_end_waits_for_answers_and_takes_nothing_new() -> None:
    room = await Room().open()
    waits, changes, idle = room.connect(), room.connect(), room.connect()
    waits.send(request(LATER, 1))
    changes.send(request(SLOW, 1, CREATE_NOTHING, 2))
    await settled()
    ending = asyncio.ensure_future(room.listener.close(5.0))
    await settled()
    assert room.closed
    assert waits.link.sent.endswith(b"expired")
    assert not ending.done()
    room.home.held[0].set_result([])
    await asyncio.wait_for(ending, 60)
    assert changes.link.sent
    assert all(guest.link.aborted for guest in (waits, changes, idle))


async def test_the_end_does_not_wait_for_ever() -> None:
    room = await Room().open()
    stuck = room.connect()
    stuck.link.full = True
    stuck.send(request(ECHO, 1, b"x"))

    async def time_passes() -> None:
        while True:
            await asyncio.sleep(0.001)
            room.clock.advance(1000)

    passing = asyncio.ensure_future(time_passes())
    await asyncio.wait_for(room.listener.close(5.0), 60)
    passing.cancel()
    assert stuck.link.aborted
