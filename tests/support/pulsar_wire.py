"""Pulsar's protocol without sockets: a whole broker, and clients that speak to it frame by frame.

    async with pulsar_broker(folder) as broker:
        client = broker.connect()
        answer = await client.ask(PRODUCER, topic="orders", producer_id=1, request_id=1)
        client.tell(SEND, entry("hello"), producer_id=1, sequence_id=0)
        receipt = await client.hear(SEND_RECEIPT)

Everything behind the link is the real thing, put together by `Node`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from anabranch.base.disk import Disk
from anabranch.base.network import Chunk, Peer
from anabranch.node import Node
from anabranch.wire.pulsar import commands_pb2 as pb
from anabranch.wire.pulsar.frames import SIZE, Frame, read_frame, write_frame, write_frame_with
from tests.support.links import RecordingLink
from tests.support.worlds import a_node, a_world

Command = pb.BaseCommand
WAIT_S = 60.0


class UnreachableNetwork:
    """Listeners that nobody can reach but the test, by their number in order of opening."""

    def __init__(self) -> None:
        self.factories: list[Callable[[], Peer]] = []

    async def listen(self, host: str, port: int, factory: Callable[[], Peer], options: object) -> Any:
        self.factories.append(factory)
        return _Listening(host, 10_000 + len(self.factories))


class _Listening:
    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port

    def close(self) -> None:
        """Nobody comes by himself."""


class _Link(RecordingLink):
    """Tells who waits that something came, and its connection that it is closed."""

    def __init__(self, remote: str) -> None:
        super().__init__(remote)
        self.news = asyncio.Event()
        self.peer: Any = None

    def send(self, chunks: Sequence[Chunk]) -> None:  # type: ignore[override]
        super().send(chunks)
        self.news.set()

    def close(self) -> None:
        super().close()
        self.abort()

    def abort(self) -> None:
        if not self.aborted:
            super().abort()
            self.news.set()
            asyncio.get_running_loop().call_soon(self.peer.closed)


class Client:
    """One connection.  What the broker says is kept until it is asked for."""

    def __init__(self, peer: Peer, remote: str) -> None:
        self._peer = peer
        self.link = _Link(remote)
        self.link.peer = peer
        peer.opened(self.link)
        self._heard: list[Frame] = []

    # --- saying

    def tell(self, type: int, entry: bytes | None = None, /, **fields: Any) -> None:
        self.send(frame(type, entry, **fields))

    def send(self, data: bytes) -> None:
        """Bytes as they are, in as many reads as they take."""
        while data and not self.link.aborted:
            buffer = self._peer.buffer()
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            self._peer.received(size)
            data = data[size:]

    async def ask(self, type: int, /, **fields: Any) -> Command:
        """Say it, and wait for what has its request id."""
        self.tell(type, **fields)
        return await self.answer(fields["request_id"])

    async def connect(self, version: int = 21, client: str = "test") -> pb.Connected:
        self.tell(Command.CONNECT, client_version=client, protocol_version=version)
        return (await self.hear(Command.CONNECTED)).connected

    # --- hearing

    async def answer(self, request_id: int) -> Command:
        return (await self.wait_for(lambda said: request_id_of(said.command) == request_id)).command

    async def hear(self, type: int) -> Command:
        return (await self.wait_for(lambda said: said.command.type == type)).command

    async def message(self) -> Frame:
        return await self.wait_for(lambda said: said.command.type == Command.MESSAGE)

    async def closed(self) -> None:
        """Wait until the broker has hung up."""
        async with asyncio.timeout(WAIT_S):
            while not self.link.aborted:
                self.link.news.clear()
                await self.link.news.wait()

    def heard(self) -> list[str]:
        """All that was said and not asked for, by name."""
        self._read()
        names = [Command.Type.Name(said.command.type) for said in self._heard]
        self._heard.clear()
        return names

    def leave(self) -> None:
        self.link.abort()

    async def wait_for(self, wanted: Callable[[Frame], bool]) -> Frame:
        async with asyncio.timeout(WAIT_S):
            while True:
                self._read()
                for i, said in enumerate(self._heard):
                    if wanted(said):
                        return self._heard.pop(i)
                assert not self.link.aborted, "the broker has hung up"
                self.link.news.clear()
                await self.link.news.wait()

    def _read(self) -> None:
        data = memoryview(self.link.take())
        while data:
            end = SIZE.size + SIZE.unpack_from(data)[0]
            self._heard.append(read_frame(data[SIZE.size : end]))
            data = data[end:]


class PulsarBroker:
    def __init__(self, node: Node, network: UnreachableNetwork) -> None:
        self.node = node
        self._network = network
        self._clients = 0

    def meet(self) -> Client:
        """A client that has said nothing yet."""
        self._clients += 1
        return Client(self._network.factories[1](), f"127.0.0.1:{40_000 + self._clients}")

    async def connect(self, **options: Any) -> Client:
        client = self.meet()
        await client.connect(**options)
        return client


@asynccontextmanager
async def pulsar_broker(data: Path, disk: Disk | None = None, **settings: str) -> AsyncIterator[PulsarBroker]:
    """A broker on `data`, which may have been another's before; a setting's dots are underscores."""
    network = UnreachableNetwork()
    async with a_node(data, a_world(disk=disk, network=network), **settings) as node:
        yield PulsarBroker(node, network)


def frame(type: int, entry: bytes | None = None, /, **fields: Any) -> bytes:
    field = Command.DESCRIPTOR.fields_by_number[type]
    message = getattr(pb, field.message_type.name)(**fields)
    command = Command(type=type, **{field.name: message})  # type: ignore[arg-type]
    return write_frame(command) if entry is None else write_frame_with(command, entry)


def request_id_of(command: Command) -> int | None:
    message = getattr(command, Command.DESCRIPTOR.fields_by_number[command.type].name)
    return message.request_id if "request_id" in message.DESCRIPTOR.fields_by_name else None
