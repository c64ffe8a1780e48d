"""A client of a whole broker over a connection without a socket, which may have several requests in flight.

client = Connected(broker)
first = client.send(0, 9, acks=-1, ...)     # its correlation id
client.answered()                            # [(first, answer)], in the order in which they came
"""

import asyncio
import io
import struct
from collections.abc import Coroutine
from typing import Any

from kio.serial import entity_reader, entity_writer

from anabranch.base.budget import ByteBudget
from anabranch.server.connection import Connection
from anabranch.server.framing import Buffers, Frames
from anabranch.server.kafka.registry import load_apis
from anabranch.wire.kafka.schema import answers_flexibly, is_flexible, request_schema, response_schema
from tests.support.links import RecordingLink
from tests.support.waiting import until
from tests.unit.server.kafka.whole_broker import WholeBroker, build


class Connected:
    def __init__(self, broker: WholeBroker) -> None:
        self.services = broker.services
        self.apis = load_apis()
        self.tasks: set[asyncio.Task[None]] = set()
        self.link = RecordingLink()
        self._unread = b""
        self._buffers = Buffers()
        self._budget = ByteBudget(1 << 30)
        self._sent: list[tuple[int, int]] = []
        self.connection = Connection(self, 1)
        self.connection.opened(self.link)

    # --- what the connection asks of its home

    def admit(self, connection: Connection) -> Frames:
        return Frames(self._buffers, self._budget, 1 << 20, self.link, connection, self.services.clock)

    def dismiss(self, connection: Connection) -> None: ...

    def track(self, work: Coroutine[Any, Any, None], size: int) -> object:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    # --- what a client does

    def send(self, key: int, version: int, /, **values: Any) -> int:
        correlation_id = len(self._sent)
        self._sent.append((key, version))
        body = io.BytesIO()
        schema = request_schema(key, version)
        entity_writer(schema)(body, build(schema, values))
        head = struct.pack(">hhih", key, version, correlation_id, 2) + b"me"
        frame = head + (b"\0" if is_flexible(key, version) else b"") + body.getvalue()
        self._unread += struct.pack(">i", len(frame)) + frame
        self._feed()
        return correlation_id

    def _feed(self) -> None:
        """What the connection reads of what was sent, now or when it goes on reading."""
        while self._unread and not self.link.paused:
            room = self.connection.buffer()
            size = min(len(room), len(self._unread))
            room[:size], self._unread = self._unread[:size], self._unread[size:]
            self.connection.received(size)
        if self._unread:
            asyncio.get_running_loop().call_later(0.001, self._feed)

    def answered(self) -> list[tuple[int, Any]]:
        """What came since the last call, with the correlation ids."""
        data, at, found = self.link.take(), 0, []
        while at < len(data):
            size, correlation_id = struct.unpack_from(">ii", data, at)
            key, version = self._sent[correlation_id]
            body = data[at + 8 + answers_flexibly(key, version) : at + 4 + size]
            answer, read = entity_reader(response_schema(key, version))(body, 0)
            assert read == len(body)
            found.append((correlation_id, answer))
            at += 4 + size
        return found

    async def only_answer(self) -> Any:
        """The answer to the one request that was sent since the last call, when it comes."""
        await until(lambda: self.link.chunks)
        ((_, answer),) = self.answered()
        return answer
