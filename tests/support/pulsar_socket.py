"""A client of Pulsar's protocol, frame by frame, over a real connection to a broker process.

It has the face of `pulsar_wire.Client`, so that whatever speaks by the one speaks by the other:

    async with connected(broker.pulsar) as client:
        await client.ask(PRODUCER, topic="orders", producer_id=1, request_id=1)
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from anabranch.wire.pulsar.frames import SIZE, Frame, read_frame
from tests.support.pulsar_wire import Command, frame, request_id_of

WAIT_S = 30.0


class SocketClient:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._heard: list[Frame] = []

    def tell(self, type: int, entry: bytes | None = None, /, **fields: Any) -> None:
        self._writer.write(frame(type, entry, **fields))

    async def ask(self, type: int, /, **fields: Any) -> Command:
        self.tell(type, **fields)
        wanted = fields["request_id"]
        return (await self.wait_for(lambda said: request_id_of(said.command) == wanted)).command

    async def message(self) -> Frame:
        return await self.wait_for(lambda said: said.command.type == Command.MESSAGE)

    async def wait_for(self, wanted: Callable[[Frame], bool]) -> Frame:
        async with asyncio.timeout(WAIT_S):
            while True:
                for i, said in enumerate(self._heard):
                    if wanted(said):
                        return self._heard.pop(i)
                (size,) = SIZE.unpack(await self._reader.readexactly(SIZE.size))
                self._heard.append(read_frame(memoryview(await self._reader.readexactly(size))))

    def leave(self) -> None:
        """Without a word."""
        self._writer.transport.abort()


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[SocketClient]:
    host, _, port = url.removeprefix("pulsar://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    client = SocketClient(reader, writer)
    try:
        client.tell(Command.CONNECT, client_version="test", protocol_version=21)
        await client.wait_for(lambda said: said.command.type == Command.CONNECTED)
        yield client
    finally:
        writer.transport.abort()
