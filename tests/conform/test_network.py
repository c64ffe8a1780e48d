"""What every network promises, on sockets and in memory: order, back-pressure, and how connections end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from anabranch.base.disk import DirectDisk, File
from anabranch.base.errors import Unavailable
from anabranch.base.network import FileRange, Listener, Network, SocketOptions, TcpNetwork
from tests.support.links import Upper
from tests.support.memory_network import Wire
from tests.support.waiting import until

PATTERN = bytes(range(251)) * 20_011  # about five megabytes, more than any socket takes at once


class Stalled(Upper):
    """Reads nothing until it is told to."""

    def opened(self, link: Any) -> None:
        super().opened(link)
        link.pause()


class Ends:
    """A client's network, a server's, and where that one listens."""

    def __init__(self, client: Network, server: Network, host: str) -> None:
        self.client, self.server, self.host = client, server, host

    async def listen(self, factory: Any, port: int = 0) -> Listener:
        return await self.server.listen(self.host, port, factory, SocketOptions())

    @asynccontextmanager
    async def connected(
        self, mine: Upper | None = None, theirs: Upper | None = None
    ) -> AsyncIterator[tuple[Upper, Upper]]:
        mine, theirs = mine or Upper(), theirs or Upper()
        listener = await self.listen(lambda: theirs)
        await self.client.connect(listener.host, listener.port, mine, 60)
        await until(lambda: "opened" in theirs.happened)
        try:
            yield mine, theirs
        finally:
            listener.close()
            for end in (mine, theirs):
                end.link.abort()
                end.link.resume()
            await until(lambda: "closed" in mine.happened and "closed" in theirs.happened)
            await asyncio.sleep(0)


@pytest.fixture(params=["tcp", "memory"])
async def ends(request: pytest.FixtureRequest) -> Ends:
    if request.param == "tcp":
        return Ends(TcpNetwork(), TcpNetwork(), "127.0.0.1")
    wire = Wire()
    return Ends(wire.host("a"), wire.host("b"), "b")


@pytest.fixture
def file(tmp_path: Path) -> File:
    made = DirectDisk().open(tmp_path / "segment")
    made.append(PATTERN)
    return made


async def test_bytes_go_both_ways_in_order(ends: Ends) -> None:
    async with ends.connected() as (mine, theirs):
        mine.link.send([b"he", bytearray(b"ll"), memoryview(b"o"), b""])
        mine.link.send([b" world"])
        theirs.link.send([b"hi"])
        await until(lambda: theirs.got == b"hello world" and mine.got == b"hi")
        assert (mine.link.unsent, theirs.link.unsent) == (0, 0)
        assert mine.happened == theirs.happened == ["opened"]


async def test_a_link_says_who_is_there(ends: Ends) -> None:
    async with ends.connected() as (mine, theirs):
        assert mine.link.remote.rpartition(":")[0] == ends.host
        assert theirs.link.remote.rpartition(":")[2].isdigit()


async def test_what_is_large_arrives_whole_and_drained_is_said_once_it_has_left(ends: Ends) -> None:
    async with ends.connected() as (mine, theirs):
        mine.link.send([PATTERN])
        mine.link.send([b"!"])
        assert mine.link.unsent > 0
        await until(lambda: len(theirs.got) == len(PATTERN) + 1)
        assert theirs.got == PATTERN + b"!"
        await until(lambda: "drained" in mine.happened)
        assert mine.link.unsent == 0


async def test_ranges_of_files_between_bytes(ends: Ends, file: File) -> None:
    async with ends.connected() as (mine, theirs):
        mine.link.send([b"<", FileRange(file, 10, 100), b"|", FileRange(file, 0, len(PATTERN)), b">"])
        mine.link.send([FileRange(file, 3, 5)])
        expected = b"<" + PATTERN[10:110] + b"|" + PATTERN + b">" + PATTERN[3:8]
        await until(lambda: len(theirs.got) == len(expected))
        assert theirs.got == expected
        file.close()


async def test_a_range_that_is_not_in_memory(ends: Ends, file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(File, "is_cached", lambda *_: False)
    async with ends.connected() as (mine, theirs):
        mine.link.send([FileRange(file, 0, 100_000), b"."])
        mine.link.send([b"!"])
        await until(lambda: len(theirs.got) == 100_002)
        assert theirs.got == PATTERN[:100_000] + b".!"
        file.close()


async def test_a_range_that_is_gone_ends_the_connection(ends: Ends, file: File) -> None:
    async with ends.connected() as (mine, theirs):
        file.close()
        mine.link.send([b"x" * 20_000, FileRange(file, 0, 100_000)])
        await until(lambda: "closed" in mine.happened and "closed" in theirs.happened)
        assert len(theirs.got) <= 20_000


async def test_who_does_not_read_holds_the_sender_up(ends: Ends) -> None:
    async with ends.connected(theirs=Stalled()) as (mine, theirs):
        for _ in range(4):
            mine.link.send([PATTERN])
        await asyncio.sleep(0.05)
        assert theirs.got == b""
        left = mine.link.unsent
        assert left > 2 * len(PATTERN)
        assert mine.happened == ["opened"]
        theirs.link.resume()
        await until(lambda: len(theirs.got) > 1 << 20)
        theirs.link.pause()
        await asyncio.sleep(0.05)
        seen, left = len(theirs.got), mine.link.unsent
        await asyncio.sleep(0.05)
        assert (len(theirs.got), mine.link.unsent) == (seen, left)
        theirs.link.resume()
        await until(lambda: len(theirs.got) == 4 * len(PATTERN))
        assert theirs.got == 4 * PATTERN
        await until(lambda: mine.happened == ["opened", "drained"])


async def test_a_peer_may_pause_while_it_is_given_something(ends: Ends) -> None:
    theirs = Upper()
    theirs.on_received = lambda: theirs.link.pause()
    async with ends.connected(theirs=theirs) as (mine, _):
        mine.link.send([PATTERN])
        rounds = 0
        while len(theirs.got) < len(PATTERN):
            seen = len(theirs.got)
            theirs.link.resume()
            await until(lambda seen=seen: len(theirs.got) > seen)
            rounds += 1
        assert theirs.got == PATTERN
        assert rounds > 10


async def test_close_waits_for_what_was_sent(ends: Ends) -> None:
    async with ends.connected() as (mine, theirs):
        mine.link.send([PATTERN])
        mine.link.close()
        await until(lambda: theirs.happened == ["opened", "closed"])
        assert theirs.got == PATTERN
        await until(lambda: mine.happened[-1] == "closed")
        assert mine.happened.count("closed") == 1


async def test_abort_does_not_wait(ends: Ends) -> None:
    async with ends.connected(theirs=Stalled()) as (mine, theirs):
        mine.link.send([PATTERN])
        assert mine.link.unsent
        mine.link.abort()
        await until(lambda: mine.happened == ["opened", "closed"])
        assert mine.link.unsent == 0
        theirs.link.resume()
        await until(lambda: theirs.happened == ["opened", "closed"])
        assert len(theirs.got) < len(PATTERN)


async def test_nothing_is_given_to_who_has_closed(ends: Ends) -> None:
    async with ends.connected() as (mine, theirs):
        theirs.on_received = lambda: theirs.link.close()
        mine.link.send([b"first"])
        await until(lambda: theirs.happened == ["opened", "closed"])
        mine.link.send([b"second"])
        await until(lambda: mine.happened == ["opened", "closed"])
        assert theirs.got == b"first"


async def test_both_hear_of_an_end_once(ends: Ends) -> None:
    async with ends.connected() as (mine, theirs):
        mine.link.abort()
        theirs.link.abort()
        mine.link.close()
        await until(lambda: "closed" in mine.happened and "closed" in theirs.happened)
        await asyncio.sleep(0.01)
        assert mine.happened == theirs.happened == ["opened", "closed"]
        mine.link.send([b"nobody"])
        mine.link.abort()
        mine.link.resume()


async def test_nobody_listens(ends: Ends) -> None:
    listener = await ends.listen(Upper)
    listener.close()
    mine = Upper()
    with pytest.raises(Unavailable, match=f"{listener.host}:{listener.port} cannot be reached"):
        await ends.client.connect(listener.host, listener.port, mine, 60)
    assert mine.happened == []


async def test_a_listener_that_closes_leaves_its_connections(ends: Ends) -> None:
    theirs, mine = Upper(), Upper()
    listener = await ends.listen(lambda: theirs)
    await ends.client.connect(listener.host, listener.port, mine, 60)
    await until(lambda: theirs.happened == ["opened"])
    listener.close()
    mine.link.send([b"still"])
    await until(lambda: theirs.got == b"still")
    with pytest.raises(Unavailable):
        await ends.client.connect(listener.host, listener.port, Upper(), 60)
    mine.link.abort()
    await until(lambda: "closed" in mine.happened and "closed" in theirs.happened)


async def test_a_port_is_somebodys(ends: Ends) -> None:
    listener = await ends.listen(Upper)
    with pytest.raises(OSError, match=r"[Aa]ddress already in use"):
        await ends.listen(Upper, listener.port)
    listener.close()
    again = await ends.listen(Upper, listener.port)
    assert again.port == listener.port
    again.close()


async def test_a_server_that_wants_nobody(ends: Ends) -> None:
    """Who connects hears of it: at once, or as soon as he is connected."""

    class Unwilling(Upper):
        def opened(self, link: Any) -> None:
            super().opened(link)
            link.abort()

    listener, mine = await ends.listen(Unwilling), Upper()
    try:
        await ends.client.connect(listener.host, listener.port, mine, 60)
    except Unavailable:
        pass
    else:
        await until(lambda: mine.happened == ["opened", "closed"])
    listener.close()
    await asyncio.sleep(0.01)


# --- what only the one in memory can do


async def joined(wire: Wire) -> tuple[Upper, Upper]:
    mine, theirs = Upper(), Upper()
    listener = await wire.host("b").listen("b", 0, lambda: theirs, SocketOptions())
    await wire.host("a").connect("b", listener.port, mine, 60)
    listener.close()
    return mine, theirs


async def test_a_slow_wire_keeps_the_order() -> None:
    wire, loop = Wire(), asyncio.get_running_loop()
    wire.delay("a", "b", 0.02)
    began = loop.time()
    mine, theirs = await joined(wire)
    assert loop.time() - began >= 0.04
    sent = loop.time()
    mine.link.send([b"1"])
    wire.delay("b", "a", 0.0)
    mine.link.send([b"2"])
    await until(lambda: theirs.got == b"12")
    assert loop.time() - sent >= 0.02
    mine.link.abort()
    await until(lambda: "closed" in theirs.happened)


async def test_a_cut_wire_is_silent_until_it_is_mended() -> None:
    wire = Wire()
    mine, theirs = await joined(wire)
    wire.cut("b", "a")
    mine.link.send([b"x" * (1 << 20)])
    theirs.link.close()
    with pytest.raises(Unavailable, match=r"b:10000 cannot be reached: no answer in 0\.05 s"):
        await wire.host("a").connect("b", 10_000, Upper(), 0.05)
    assert (mine.happened, theirs.got) == (["opened"], b"")
    assert mine.link.unsent > 0
    wire.mend("a", "b")
    await until(lambda: mine.happened == ["opened", "closed"])


async def test_a_wire_that_is_mended_in_time() -> None:
    wire = Wire()
    mine, theirs = await joined(wire)
    wire.cut("a", "b")
    mine.link.send([PATTERN])
    theirs.link.send([b"answer"])
    await asyncio.sleep(0.02)
    assert (mine.got, theirs.got) == (b"", b"")
    wire.mend("a", "b")
    await until(lambda: theirs.got == PATTERN and mine.got == b"answer")
    mine.link.close()
    await until(lambda: "closed" in theirs.happened)


async def test_a_connection_that_is_reset() -> None:
    wire = Wire()
    mine, theirs = await joined(wire)
    others = await joined(wire)
    mine.link.send([PATTERN])
    wire.reset("c", "b")
    mine.link.send([b"."])
    wire.reset("b", "a")
    await until(lambda: [end.happened for end in (mine, theirs, *others)] == 4 * [["opened", "closed"]])
    assert theirs.got == b""
    assert not wire.links


async def test_a_host_reaches_itself() -> None:
    wire = Wire()
    here = wire.host("a")
    mine, theirs = Upper(), Upper()
    listener = await here.listen("0.0.0.0", 9092, lambda: theirs, SocketOptions())
    assert (listener.host, listener.port) == ("a", 9092)
    await here.connect("localhost", 9092, mine, 60)
    mine.link.send([b"me"])
    await until(lambda: theirs.got == b"me")
    mine.link.abort()


async def test_a_host_that_goes_down_and_comes_up() -> None:
    wire = Wire()
    mine, theirs = await joined(wire)
    await wire.host("b").listen("b", 9092, Upper, SocketOptions())
    wire.down("b")
    await until(lambda: mine.happened == theirs.happened == ["opened", "closed"])
    with pytest.raises(Unavailable):
        await wire.host("a").connect("b", 9092, Upper(), 60)
    await wire.host("b").listen("b", 9092, Upper, SocketOptions())
    (await wire.host("a").connect("b", 9092, Upper(), 60)).close()
