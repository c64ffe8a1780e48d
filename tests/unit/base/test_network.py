"""Links over real sockets, on both event loops: bytes and file ranges in order, whatever the peer does."""

import asyncio
import errno
import gc
import os
import socket
import struct
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop

from anabranch.base import network, page_cache
from anabranch.base.disk import DirectDisk, File
from anabranch.base.errors import Unavailable
from anabranch.base.network import FileRange, Link, Listener, SocketOptions, TcpNetwork
from tests.support.links import Upper
from tests.support.waiting import until

Scenario = Callable[[], Coroutine[Any, Any, None]]
Run = Callable[[Scenario], None]

PATTERN = bytes(range(251)) * 4001  # a prime, so that a shift never looks right: about a megabyte


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Run a scenario on a loop; no descriptor and no complaint may be left."""

    def go(scenario: Scenario) -> None:
        complaints: list[dict[str, Any]] = []

        async def whole() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
            (
                await TcpNetwork().listen("127.0.0.1", 0, Upper, SocketOptions(1))
            ).close()  # libuv keeps one in reserve
            await asyncio.sleep(0.01)
            before = len(os.listdir("/proc/self/fd"))
            await scenario()
            gc.collect()
            await until(lambda: len(os.listdir("/proc/self/fd")) <= before, "descriptors are left open")
            await asyncio.get_running_loop().shutdown_default_executor()

        with asyncio.Runner(loop_factory=request.param) as runner, warnings.catch_warnings():
            runner.run(whole())
        gc.collect()
        assert complaints == []

    return go


@asynccontextmanager
async def connected(small: bool = False) -> AsyncIterator[tuple[Upper, socket.socket]]:
    """A server's side of a connection and the client's socket, whose buffers may be small."""
    peers: list[Upper] = []

    def factory() -> Upper:
        peers.append(Upper())
        return peers[-1]

    listener = await TcpNetwork().listen("127.0.0.1", 0, factory, SocketOptions(10))
    client = socket.socket()
    if small:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, (listener.host, listener.port))
    await until(lambda: peers and peers[0].happened)
    if small:
        peers[0].link._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # type: ignore[attr-defined]
    try:
        yield peers[0], client
    finally:
        listener.close()
        client.close()
        peers[0].link.abort()
        await until(lambda: "closed" in peers[0].happened)
        await asyncio.sleep(0)


async def read(client: socket.socket, size: int) -> bytes:
    loop, data = asyncio.get_running_loop(), bytearray()
    while len(data) < size:
        piece = await loop.sock_recv(client, min(size - len(data), 1 << 16))
        if not piece:
            break
        data += piece
    return bytes(data)


async def read_all(client: socket.socket) -> bytes:
    data = bytearray()
    while piece := await asyncio.get_running_loop().sock_recv(client, 1 << 16):
        data += piece
    return bytes(data)


@pytest.fixture
def file(tmp_path: Path) -> File:
    made = DirectDisk().open(tmp_path / "segment")
    made.append(PATTERN)
    made.close()
    return DirectDisk().open(tmp_path / "segment")


# --- connecting


def test_a_link_to_a_listener(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as (listener, servers):
            mine = Upper()
            link = await TcpNetwork().connect(listener.host, listener.port, mine, 10)
            assert mine.happened == ["opened"]
            assert mine.link is link
            assert link.remote == f"{listener.host}:{listener.port}"
            link.send([PATTERN])
            await until(lambda: servers and servers[0].got == PATTERN)
            servers[0].link.send([b"answer"])
            await until(lambda: mine.got == b"answer")
            servers[0].link.abort()
            await until(lambda: mine.happened == ["opened", "closed"])

    run(scenario)


def test_nobody_to_connect_to(run: Run) -> None:
    async def scenario() -> None:
        with socket.socket() as idle:
            idle.bind(("127.0.0.1", 0))
            for host, port in (("127.0.0.1", idle.getsockname()[1]), ("no such.host", 1)):
                mine = Upper()
                with pytest.raises(Unavailable, match="cannot be reached"):
                    await TcpNetwork().connect(host, port, mine, 10)
                assert mine.happened == []

    run(scenario)


def test_a_listener_that_does_not_take_connections(run: Run) -> None:
    async def scenario() -> None:
        with socket.socket() as idle, socket.socket() as first, socket.socket() as second:
            idle.bind(("127.0.0.1", 0))
            idle.listen(0)
            for one in (first, second):  # what the queue holds
                one.setblocking(False)
                with suppress(BlockingIOError):
                    one.connect(idle.getsockname())
            mine = Upper()
            with pytest.raises(Unavailable, match="cannot be reached: no answer in"):
                await TcpNetwork().connect(*idle.getsockname(), mine, 0.2)
            assert mine.happened == []

    run(scenario)


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[Listener, list[Upper]]]:
    peers: list[Upper] = []

    def factory() -> Upper:
        peers.append(Upper())
        return peers[-1]

    listener = await TcpNetwork().listen("127.0.0.1", 0, factory, SocketOptions(10))
    try:
        yield listener, peers
    finally:
        listener.close()
        for one in peers:
            one.link.abort()
        await asyncio.sleep(0)


# --- both ways


def test_bytes_go_both_ways(run: Run) -> None:
    async def scenario() -> None:
        async with connected() as (peer, client):
            await asyncio.get_running_loop().sock_sendall(client, b"hello")
            await until(lambda: peer.got == b"hello")
            peer.link.send([b"wor", bytearray(b"ld"), memoryview(b"!"), b""])
            assert peer.link.unsent == 0
            assert await read(client, 6) == b"world!"
            assert peer.link.remote == "{}:{}".format(*client.getsockname())

    run(scenario)


def test_bytes_and_ranges_leave_in_order(run: Run, file: File) -> None:
    async def scenario() -> None:
        chunks: list[Any] = []
        for number in range(300):
            chunks.append(struct.pack(">i", number))
            chunks.append(FileRange(file, number * 100, 1 + number * 7))
            if number % 3 == 0:
                chunks += [b"x" * number, FileRange(file, 5, 0), bytearray(number), memoryview(b"yz")]
        whole = b"".join(
            PATTERN[c.position : c.position + c.size] if isinstance(c, FileRange) else bytes(c)
            for c in chunks
        )
        async with connected(small=True) as (peer, client):
            for at in range(0, len(chunks), 17):
                peer.link.send(chunks[at : at + 17])
            assert 0 < peer.link.unsent <= len(whole)
            assert await read(client, len(whole)) == whole
            await until(lambda: "drained" in peer.happened)
            assert peer.link.unsent == 0
        file.close()

    run(scenario)


def test_many_small_chunks_leave_in_order(run: Run) -> None:
    async def scenario() -> None:
        chunks = [b"%06d" % number for number in range(20_000)]
        async with connected(small=True) as (peer, client):
            peer.link.send(chunks)
            assert await read(client, 120_000) == b"".join(chunks)

    run(scenario)


def test_a_small_range_leaves_with_what_is_around_it(
    run: Run, file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sent_alone(link: object, head: FileRange) -> None:
        raise AssertionError(f"{head.size} bytes were sent on their own")

    monkeypatch.setattr(network.TcpLink, "_send_range", sent_alone)

    async def scenario() -> None:
        async with connected() as (peer, client):
            peer.link.send([b"a", FileRange(file, 0, 1000), b"b", FileRange(file, 1000, 1000), b"c"])
            assert await read(client, 2003) == b"a" + PATTERN[:1000] + b"b" + PATTERN[1000:2000] + b"c"
        file.close()

    run(scenario)


def test_cold_ranges_are_read_by_a_thread_and_keep_their_place(
    run: Run, file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def never_cached(file: File, at: int, size: int) -> bool:
        asked.append(at)
        return False

    monkeypatch.setattr(File, "is_cached", never_cached)
    monkeypatch.setattr(network, "_NOWAIT", None)  # small ranges have no way of their own then

    async def scenario() -> None:
        async with connected() as (peer, client):
            peer.link.send([b"a", FileRange(file, 0, 1000), b"b", FileRange(file, 1000, 1000), b"c"])
            peer.link.send([b"d"])
            assert await read(client, 2004) == b"a" + PATTERN[:1000] + b"b" + PATTERN[1000:2000] + b"cd"
            assert asked == [0, 1000], "a range that was read is asked about again"
            assert peer.link.unsent == 0
            await until(lambda: "drained" in peer.happened)
        file.close()

    run(scenario)


async def test_whether_a_range_is_cached(file: File) -> None:
    file.pread(len(PATTERN), 0)
    assert FileRange(file, 0, len(PATTERN)).is_cached()
    await FileRange(file, 10, len(PATTERN) + 1000).read_ahead()
    file.close()


@pytest.mark.parametrize("answer", [errno.EOPNOTSUPP, errno.EINVAL])
def test_a_file_system_that_cannot_say_is_taken_for_cached(
    file: File, answer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def preadv(*_: object) -> int:
        raise OSError(answer, os.strerror(answer))

    monkeypatch.setattr(os, "preadv", preadv)
    assert FileRange(file, 0, 1).is_cached()
    file.close()


async def test_a_file_system_that_would_always_wait_is_not_believed(
    file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = os.preadv

    def preadv(fd: int, buffers: list[bytearray], position: int, flags: int = 0) -> int:
        if flags:
            raise BlockingIOError(errno.EAGAIN, "would wait")
        return really(fd, buffers, position)

    monkeypatch.setattr(os, "preadv", preadv)
    monkeypatch.setattr(page_cache, "_doubted", set())
    part = FileRange(file, 0, len(PATTERN))
    assert not part.is_cached()
    await part.read_ahead()
    assert part.is_cached()
    file.close()


# --- peers that do not read


def test_a_peer_that_does_not_read_costs_references_not_records(run: Run, file: File) -> None:
    async def scenario() -> None:
        async with connected(small=True) as (peer, _client):
            for _ in range(1000):
                peer.link.send([FileRange(file, 0, len(PATTERN))])
            assert peer.link.unsent > 900_000_000
            assert len(peer.link._queue) <= 1000  # type: ignore[attr-defined]
            assert peer.happened == ["opened"]
        file.close()

    run(scenario)


def test_paused_nothing_is_received(run: Run) -> None:
    async def scenario() -> None:
        async with connected() as (peer, client):
            peer.link.pause()
            peer.link.pause()
            await asyncio.get_running_loop().sock_sendall(client, b"x" * 1000)
            await asyncio.sleep(0.05)
            assert peer.got == b""
            peer.link.resume()
            peer.link.resume()
            await until(lambda: len(peer.got) == 1000)

    run(scenario)


def test_paused_while_receiving(run: Run) -> None:
    async def scenario() -> None:
        async with connected() as (peer, client):
            peer.on_received = lambda: peer.link.pause()
            await asyncio.get_running_loop().sock_sendall(client, b"x" * 200_000)
            await until(lambda: peer.got)
            await asyncio.sleep(0.05)
            first = len(peer.got)
            assert 0 < first <= 65536
            await asyncio.sleep(0.05)
            assert len(peer.got) == first
            while len(peer.got) < 200_000:
                peer.link.resume()
                await asyncio.sleep(0)

    run(scenario)


# --- the end


def test_close_waits_for_what_was_sent(run: Run, file: File) -> None:
    async def scenario() -> None:
        async with connected(small=True) as (peer, client):
            peer.link.send([b"head", FileRange(file, 0, len(PATTERN)), b"tail"])
            peer.link.close()
            assert peer.happened == ["opened"]
            assert await read(client, len(PATTERN) + 8) == b"head" + PATTERN + b"tail"
            assert await read_all(client) == b""
            await until(lambda: peer.happened[-1] == "closed")
        file.close()

    run(scenario)


def test_close_with_nothing_to_send_is_at_once(run: Run) -> None:
    async def scenario() -> None:
        async with connected() as (peer, client):
            peer.link.close()
            assert await read_all(client) == b""
            await until(lambda: peer.happened == ["opened", "closed"])
            for call in (peer.link.close, peer.link.abort, peer.link.pause, peer.link.resume):
                call()
            peer.link.send([b"to nobody"])

    run(scenario)


def test_abort_drops_what_was_not_sent(run: Run, file: File) -> None:
    async def scenario() -> None:
        async with connected(small=True) as (peer, client):
            peer.link.send([FileRange(file, 0, len(PATTERN)), b"tail"])
            peer.link.abort()
            await until(lambda: peer.happened == ["opened", "closed"])
            assert peer.link.unsent == 0
            with suppress(ConnectionResetError):
                assert len(await read_all(client)) < len(PATTERN)
        file.close()

    run(scenario)


def test_a_peer_that_leaves_in_the_middle(run: Run, file: File) -> None:
    async def scenario() -> None:
        async with connected(small=True) as (peer, client):
            peer.link.send([FileRange(file, 0, len(PATTERN))])
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            await until(lambda: peer.happened[-1] == "closed")
            assert peer.happened == ["opened", "closed"]
            peer.link.send([b"to nobody"])
        file.close()

    run(scenario)


def test_a_peer_that_leaves_while_a_range_is_read(
    run: Run, file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(File, "is_cached", lambda *_: False)

    async def scenario() -> None:
        async with connected() as (peer, _client):
            peer.link.send([FileRange(file, 0, 1000)])
            peer.link.abort()
            await until(lambda: peer.happened == ["opened", "closed"])
            await asyncio.sleep(0.05)
        file.close()

    run(scenario)


def gone(file: File) -> None:
    os.unlink(file.path)


def cut(file: File) -> None:
    os.truncate(file.path, 500)


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("harm", [gone, cut, File.close])
def test_a_range_that_is_gone_closes_the_link(
    run: Run, file: File, harm: Callable[[File], None], cold: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(File, "is_cached", lambda *_: not cold)

    async def scenario() -> None:
        async with connected() as (peer, client):
            harm(file)
            peer.link.send([b"head", FileRange(file, 0, 1000)])
            received = b""
            with suppress(ConnectionResetError):
                received = await read_all(client)
            assert len(received) < 1004
            await until(lambda: peer.happened[-1] == "closed")
        file.close()

    run(scenario)


def test_a_link_that_cannot_be_opened_is_closed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """No descriptors are left: this client goes, the others stay."""

    async def scenario() -> None:
        peers: list[Upper] = []

        def factory() -> Upper:
            peers.append(Upper())
            return peers[-1]

        listener = await TcpNetwork().listen("127.0.0.1", 0, factory, SocketOptions(10))
        dup = os.dup

        def none_left(fd: int) -> int:
            raise OSError(errno.EMFILE, "Too many open files")

        loop = asyncio.get_running_loop()
        monkeypatch.setattr(os, "dup", none_left)
        refused = socket.create_connection((listener.host, listener.port))
        refused.setblocking(False)
        try:
            await loop.sock_sendall(refused, b"hello")
            assert await read_all(refused) == b""
        except ConnectionResetError:
            pass
        refused.close()
        assert [peer.happened for peer in peers] == [[]]
        monkeypatch.setattr(os, "dup", dup)
        with socket.create_connection((listener.host, listener.port)) as client:
            client.setblocking(False)
            await loop.sock_sendall(client, b"hello")
            await until(lambda: len(peers) == 2 and peers[1].got == b"hello")
        await until(lambda: peers[1].happened == ["opened", "closed"])
        listener.close()
        await asyncio.sleep(0)

    run(scenario)


def test_aborted_as_soon_as_it_opens(run: Run) -> None:
    async def scenario() -> None:
        class Refusing(Upper):
            def opened(self, link: Link) -> None:
                super().opened(link)
                link.abort()

            def buffer(self) -> memoryview:
                raise AssertionError("nothing should be received")

        peers: list[Refusing] = []

        def factory() -> Refusing:
            peers.append(Refusing())
            return peers[-1]

        listener = await TcpNetwork().listen("127.0.0.1", 0, factory, SocketOptions(10))
        client = socket.create_connection((listener.host, listener.port))
        with suppress(ConnectionError):
            client.sendall(b"hello")
        await until(lambda: peers and peers[0].happened == ["opened", "closed"])
        client.close()
        listener.close()
        await asyncio.sleep(0)

    run(scenario)


def test_a_closed_listener_takes_nobody_and_keeps_those_it_has(run: Run) -> None:
    async def scenario() -> None:
        async with connected() as (peer, client):
            other = await TcpNetwork().listen("127.0.0.1", 0, Upper, SocketOptions(10))
            other.close()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((other.host, other.port))
            peer.link.send([b"still here"])
            assert await read(client, 10) == b"still here"

    run(scenario)
