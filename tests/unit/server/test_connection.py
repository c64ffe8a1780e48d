"""One connection without a socket: the order of answers, the limits, and everything that is not a request."""

import asyncio
import logging
import struct
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.base.budget import ByteBudget
from anabranch.base.errors import Corrupt
from anabranch.base.network import Chunk
from anabranch.server import connection as module
from anabranch.server.connection import Connection
from anabranch.server.framing import Buffers, Frames
from anabranch.server.kafka.registry import Api, Deferred, RequestContext, Told
from anabranch.server.request_times import Requests
from anabranch.server.slots import MAX_SLOTS
from tests.support.links import RecordingLink
from tests.support.logs import SetClock

# Numbers that the schemas know, and versions whose headers have no tags; what the APIs do is ours to say.
ECHO, LATER, BAD, SILENT, LARGE, HEAVY, SLOW, API_VERSIONS = 10, 12, 13, 14, 15, 16, 19, 18
AS_IT_WAS = 3  # Metadata: decoded and encoded by the schema


class Waited:
    """What a handler that waits gives back."""

    kept_bytes = 0

    def __init__(self) -> None:
        self.answered: Deferred = asyncio.get_running_loop().create_future()

    def then(self, told: Told) -> None:
        self.answered.add_done_callback(told)

    def expire(self) -> None:
        if not self.answered.done():
            self.answered.set_result((b"expired",))


class Home:
    """A listener with handlers for trying connections."""

    def __init__(self) -> None:
        self.clock = SetClock()
        self.services: Any = SimpleNamespace(clock=self.clock, requests=Requests())
        self.budget = ByteBudget(1 << 20)
        self.buffers = Buffers()
        self.full = False
        self.dismissed: list[Connection] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.waited: list[Waited] = []
        self.held: list[asyncio.Future[Any]] = []
        self.handled: list[tuple[int, RequestContext]] = []
        self.takes_ms = 0
        raw = [
            (ECHO, self.echo),
            (LATER, self.later),
            (BAD, self.bad),
            (SILENT, self.silent),
            (LARGE, self.large),
            (HEAVY, self.heavy),
        ]
        self.apis = {key: Api(key, f"api {key}", 0, 2, 0, handler, True, False) for key, handler in raw}
        self.apis[API_VERSIONS] = Api(API_VERSIONS, "api_versions", 0, 4, 0, self.versions, False, False)
        self.apis[AS_IT_WAS] = Api(AS_IT_WAS, "metadata", 0, 13, 0, self.metadata, False, False)
        self.apis[SLOW] = Api(SLOW, "create_topics", 2, 7, 2, self.slow, False, True)

    # what a connection asks of its home

    def admit(self, connection: Connection) -> Frames | None:
        if self.full:
            return None
        return Frames(self.buffers, self.budget, 1 << 20, connection.link, connection, self.clock)

    def dismiss(self, connection: Connection) -> None:
        self.dismissed.append(connection)

    def track(self, work: Coroutine[Any, Any, None], size: int) -> None:
        self.budget.charge(size)
        task = asyncio.ensure_future(work)
        task.add_done_callback(lambda _: self.budget.give(size))
        self.tasks.append(task)

    # handlers

    def echo(self, frame: memoryview, at: int, ctx: RequestContext) -> tuple[Chunk, ...]:
        self.handled.append((ECHO, ctx))
        self.clock.advance(self.takes_ms)
        return (bytes(frame[at:]),)

    def later(self, frame: memoryview, at: int, ctx: RequestContext) -> Waited:
        self.waited.append(Waited())
        return self.waited[-1]

    def bad(self, frame: memoryview, at: int, ctx: RequestContext) -> None:
        if at < len(frame):
            raise ZeroDivisionError("a mistake of ours")
        raise Corrupt("not a request")

    def silent(self, frame: memoryview, at: int, ctx: RequestContext) -> None:
        self.handled.append((SILENT, ctx))

    def large(self, frame: memoryview, at: int, ctx: RequestContext) -> tuple[Chunk, ...]:
        self.handled.append((LARGE, ctx))
        return (bytes(300_000),)

    def heavy(self, frame: memoryview, at: int, ctx: RequestContext) -> Coroutine[Any, Any, Any]:
        async def work() -> Any:
            self.held.append(asyncio.get_running_loop().create_future())
            return await self.held[-1]

        return work()

    def versions(self, request: Any, ctx: RequestContext) -> dict[str, Any]:
        return {"api_keys": []}

    def metadata(self, request: Any, ctx: RequestContext) -> dict[str, Any]:
        self.handled.append((AS_IT_WAS, ctx))
        return {"brokers": [], "cluster_id": "c", "controller_id": 1, "topics": []}

    async def slow(self, request: Any, ctx: RequestContext) -> dict[str, Any]:
        self.held.append(asyncio.get_running_loop().create_future())
        return {"topics": await self.held[-1]}


class Client:
    """The other end of a connection."""

    def __init__(self, home: Home | None = None) -> None:
        self.home = home or Home()
        self.link = RecordingLink()
        self.connection = Connection(self.home, 7)
        self.connection.opened(self.link)
        self._received = b""

    def send(self, data: bytes) -> None:
        while data and not self.link.paused:
            room = self.connection.buffer()
            size = min(len(room), len(data))
            room[:size] = data[:size]
            data = data[size:]
            self.connection.received(size)

    def answers(self) -> list[tuple[int, bytes]]:
        """(correlation id, rest) of every answer since the last call."""
        data, found, at = self.link.take(), [], 0
        while at < len(data):
            size, correlation = struct.unpack_from(">ii", data, at)
            assert len(data) >= at + 4 + size, "an answer is cut"
            found.append((correlation, data[at + 8 : at + 4 + size]))
            at += 4 + size
        return found

    def order(self) -> list[int]:
        return [correlation for correlation, _ in self.answers()]


def request(key: int, correlation: int, body: bytes = b"", version: int = 0, client: bytes = b"me") -> bytes:
    head = struct.pack(">hhih", key, version, correlation, len(client)) + client
    return struct.pack(">i", len(head + body)) + head + body


CREATE_NOTHING = struct.pack(">iib", 0, 1000, 0)


@pytest.fixture(autouse=True)
def talkative(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every line, not one per second."""
    monkeypatch.setattr(module, "_trouble", logging.getLogger("trouble"))


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


# --- in order


async def test_answers_at_once() -> None:
    client = Client()
    client.send(request(ECHO, 1, b"a") + request(ECHO, 2, b"b"))
    assert client.answers() == [(1, b"a"), (2, b"b")]
    assert client.link.sends == 1
    assert client.connection.is_idle


async def test_waits_overlap_and_answers_come_in_the_order_of_requests() -> None:
    client = Client()
    client.send(request(LATER, 1) + request(ECHO, 2, b"b") + request(LATER, 3) + request(ECHO, 4, b"d"))
    assert len(client.home.waited) == 2
    assert len(client.home.handled) == 2
    client.home.waited[1].answered.set_result((b"c",))
    await turns()
    assert client.answers() == []
    client.home.waited[0].answered.set_result((b"a",))
    await turns()
    assert client.answers() == [(1, b"a"), (2, b"b"), (3, b"c"), (4, b"d")]
    assert client.connection.is_idle


async def test_a_request_without_an_answer_leaves_no_gap() -> None:
    client = Client()
    client.send(request(LATER, 1) + request(SILENT, 2) + request(ECHO, 3, b"c"))
    client.home.waited[0].answered.set_result((b"a",))
    await turns()
    assert client.order() == [1, 3]


async def test_a_change_holds_back_what_comes_after_it() -> None:
    client = Client()
    client.send(request(SLOW, 1, CREATE_NOTHING, 2) + request(ECHO, 2, b"b"))
    await turns()
    assert client.home.handled == []
    assert client.link.paused
    client.home.held[0].set_result([])
    await turns()
    assert client.order() == [1, 2]
    assert not client.link.paused


async def test_a_change_behind_a_wait_is_made_and_told_in_turn() -> None:
    client = Client()
    client.send(request(LATER, 1) + request(SLOW, 2, CREATE_NOTHING, 2) + request(ECHO, 3))
    await turns()
    client.home.held[0].set_result([])
    await turns()
    assert [key for key, _ in client.home.handled] == [ECHO]
    assert client.order() == []
    client.home.waited[0].answered.set_result((b"a",))
    await turns()
    assert client.order() == [1, 2, 3]


async def test_heavy_work_holds_the_connection_and_its_memory_is_charged() -> None:
    client = Client()
    client.send(request(HEAVY, 1, bytes(100_000)) + request(ECHO, 2))
    await turns()
    assert client.home.handled == []
    assert client.home.budget.used > 100_000
    client.home.held[0].set_result((b"done",))
    await turns()
    assert client.order() == [1, 2]
    assert client.home.budget.used == 0


async def test_work_of_a_client_that_left_stays_charged_until_it_ends() -> None:
    client = Client()
    client.send(request(HEAVY, 1, bytes(100_000)))
    await turns()
    client.connection.closed()
    assert client.home.budget.used > 100_000
    client.home.held[0].set_result(None)
    await turns()
    assert client.home.budget.used == 0
    assert client.answers() == []


# --- limits


async def test_many_waits_stop_the_reading() -> None:
    client = Client()
    client.send(b"".join(request(LATER, number) for number in range(300)))
    assert len(client.home.waited) == MAX_SLOTS
    assert client.link.paused
    for number in range(300):
        client.home.waited[number].answered.set_result((b"x",))
        await turns()
    assert client.order() == list(range(300))
    assert not client.link.paused


async def test_answers_that_wait_behind_another_are_limited_in_number() -> None:
    client = Client()
    client.send(request(LATER, 0) + b"".join(request(ECHO, number) for number in range(1, 1000)))
    assert len(client.home.handled) < MAX_SLOTS
    assert client.link.paused
    client.home.waited[0].answered.set_result((b"x",))
    await turns()
    assert client.order() == list(range(1000))
    assert not client.link.paused


async def test_answers_that_wait_behind_another_are_limited_in_bytes() -> None:
    client = Client()
    client.send(request(LATER, 0) + b"".join(request(LARGE, number) for number in range(1, 30)))
    assert len(client.home.handled) <= 1 + module._MAX_UNSENT // 300_000 + 1
    client.home.waited[0].answered.set_result((b"x",))
    await turns()
    assert client.order() == list(range(30))


async def test_a_client_that_does_not_read_is_not_served_further() -> None:
    client = Client()
    client.link.full = True
    client.send(b"".join(request(LARGE, number) for number in range(40)))
    assert len(client.home.handled) <= 2 + module._MAX_UNSENT // 300_000
    assert client.link.paused
    assert not client.connection.is_idle
    client.link.drain()
    client.connection.drained()
    await turns()
    assert client.order() == list(range(40))
    assert not client.link.paused


async def test_large_answers_leave_before_they_pile_up() -> None:
    client = Client()
    client.send(b"".join(request(LARGE, number) for number in range(20)))
    assert client.link.sends >= 10


async def test_one_client_does_not_keep_the_loop_for_itself() -> None:
    client = Client()
    client.home.takes_ms = 5
    client.send(b"".join(request(ECHO, number) for number in range(100)))
    assert 0 < len(client.home.handled) < 10
    assert client.link.paused
    await turns(100)
    assert client.order() == list(range(100))
    assert not client.link.paused


async def test_too_many_connections() -> None:
    home = Home()
    home.full = True
    client = Client(home)
    assert client.link.aborted
    client.connection.closed()
    assert home.dismissed == []


# --- what is not a request


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0",
        struct.pack(">hhi", ECHO, 0, 1),
        struct.pack(">hhih", 999, 0, 1, -1),
        struct.pack(">hhih", -1, 0, 1, -1),
        struct.pack(">hhih", ECHO, 3, 1, -1),
        struct.pack(">hhih", ECHO, -1, 1, -1),
        struct.pack(">hhih", AS_IT_WAS, 0, 1, -1),
        struct.pack(">hhih", AS_IT_WAS, 0, 1, -1) + b"\x7f\xff\xff\xff",
        struct.pack(">hhih", AS_IT_WAS, 12, 1, -1) + b"\xff\xff\xff\xff\x0f",
        struct.pack(">hhih", AS_IT_WAS, 12, 1, 3000) + b"abc",
    ],
)
async def test_what_has_no_answer_closes_the_connection(
    frame: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client()
    with caplog.at_level(logging.INFO):
        client.send(
            request(ECHO, 1, b"before") + struct.pack(">i", len(frame)) + frame + request(ECHO, 2, b"after")
        )
    assert client.answers() == [(1, b"before")]
    assert client.link.closed
    assert "closed" in caplog.text
    assert "Traceback" not in caplog.text


async def test_a_mistake_of_ours_closes_one_connection_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = Client()
    client.send(request(BAD, 1, b"x"))
    assert client.link.closed
    assert "ZeroDivisionError" in caplog.text


async def test_nothing_is_handled_after_the_connection_was_refused() -> None:
    client = Client()
    client.link.full = True
    client.send(b"".join(request(LARGE, number) for number in range(4)) + request(BAD, 9) + request(ECHO, 5))
    client.link.drain()
    client.connection.drained()
    await turns()
    assert client.link.closed
    assert [key for key, _ in client.home.handled] == [LARGE] * 4
    client.connection.drained()
    assert [key for key, _ in client.home.handled] == [LARGE] * 4


async def test_a_wait_that_fails_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    client = Client()
    client.send(request(LATER, 1) + request(ECHO, 2))
    client.home.waited[0].answered.set_exception(Corrupt("no"))
    await turns()
    assert client.link.closed
    assert client.answers() == []


async def test_a_change_that_fails_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    client = Client()
    client.send(request(SLOW, 1, CREATE_NOTHING, 2))
    await turns()
    client.home.held[0].set_exception(ZeroDivisionError())
    await turns()
    assert client.link.closed
    assert "ZeroDivisionError" in caplog.text


async def test_bytes_after_the_body_are_not_looked_at() -> None:
    """As in Kafka: a newer client may know more."""
    client = Client()
    client.send(request(AS_IT_WAS, 1, struct.pack(">i", 0) + b"more"))
    assert client.order() == [1]


@pytest.mark.parametrize("version", [5, 99, -1])
async def test_api_versions_of_an_unknown_version_is_answered_at_version_0(version: int) -> None:
    client = Client()
    client.send(request(API_VERSIONS, 3, b"whatever", version))
    ((correlation, body),) = client.answers()
    assert correlation == 3
    assert body == struct.pack(">hihhh", 35, 1, API_VERSIONS, 0, 4)


async def test_the_header_of_flexible_versions_has_tags_in_both_directions() -> None:
    client = Client()
    tags = b"\2\0\1x\5\0"  # two that nobody knows
    client.send(request(AS_IT_WAS, 1, tags + b"\1\0\0\0", 12))
    ((correlation, body),) = client.answers()
    assert correlation == 1
    assert body[:1] == b"\0"


@pytest.mark.parametrize(
    ("size", "name", "told"),
    [(-1, b"", None), (0, b"", ""), (4, b"\xff\xfeab", "��ab"), (3, "ü1".encode(), "ü1")],
)
async def test_client_ids_of_all_kinds(size: int, name: bytes, told: str | None) -> None:
    client = Client()
    head = struct.pack(">hhih", ECHO, 0, 1, size) + name
    client.send(struct.pack(">i", len(head)) + head)
    assert client.home.handled[0][1].client_id == told


# --- the end


async def test_a_client_that_leaves_ends_its_waits() -> None:
    client = Client()
    client.send(request(LATER, 1) + request(LATER, 2))
    client.connection.closed()
    await turns()
    assert all(waited.answered.cancelled() for waited in client.home.waited)
    assert client.home.dismissed == [client.connection]
    assert client.answers() == []


async def test_when_the_node_stops_waits_are_answered_with_what_there_is() -> None:
    client = Client()
    client.send(request(LATER, 1) + request(ECHO, 2, b"b") + request(SLOW, 3, CREATE_NOTHING, 2))
    await turns()
    client.connection.quiesce()
    await turns()
    assert client.answers() == [(1, b"expired"), (2, b"b")]
    client.home.held[0].set_result([])
    await turns()
    assert client.order() == [3]
    assert client.connection.is_idle


async def test_when_the_node_stops_no_further_request_is_begun() -> None:
    client = Client()
    client.send(request(SLOW, 1, CREATE_NOTHING, 2) + request(ECHO, 2))
    await turns()
    client.connection.quiesce()
    client.home.held[0].set_result([])
    await turns()
    assert client.order() == [1]
    assert client.home.handled == []
    assert client.link.paused
