"""A connection to one broker: requests out, answers in, in order, in the thread that asks.

    connection = Connection(Address("127.0.0.1", 9092), "spark", timeout_s=30)
    connection.ask(METADATA, {...})                     one question, one answer

    connection.send(FETCH, {...})                       or several on their way at once:
    connection.send(FETCH, {...})                       the broker works on the second
    first = connection.receive()                        while we work on the first

A request goes out at the newest version that both sides know (or that `_NEWEST` allows); fields that this
version lacks are left out.  Byte fields of an answer are views into the frame it came in.  Frames of fetched
records use the same memory, since new memory costs as much as the copying: nothing that is made of an answer
may look at it once the next is taken.  What comes in is bounded, and an answer that does not come in time is
an error: the connection is of no use afterwards.
"""

import socket
import struct
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from anabranch.base.errors import Corrupt, Invalid, Unavailable
from anabranch.wire.kafka.decoder import Cursor, decode_answer, skip_tags
from anabranch.wire.kafka.encoder import request_encoder, uvarint
from anabranch.wire.kafka.schema import answers_flexibly, api_name, is_flexible, newest_version

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, API_VERSIONS = 8, 9, 10, 18
INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN = 22, 24, 25
END_TXN, TXN_OFFSET_COMMIT = 26, 28

_NEWEST = {
    PRODUCE: 11,  # 12 adds partitions to transactions by itself, 13 names topics by id
    FETCH: 12,  # 13 names topics by id
    METADATA: 12,
    OFFSET_COMMIT: 9,  # 10 names topics by id
    OFFSET_FETCH: 7,  # 8 asks for several groups
    FIND_COORDINATOR: 3,  # 4 asks for several keys
    ADD_PARTITIONS_TO_TXN: 3,  # 4 is for brokers
    END_TXN: 4,  # 5 bumps epochs: a transaction could not be ended by who did not begin it
    TXN_OFFSET_COMMIT: 4,  # 5 adds the group to the transaction by itself
}
_LARGEST_ANSWER_BYTES = 1 << 30


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Connection:
    def __init__(self, address: Address, client_id: str, timeout_s: float) -> None:
        self._address = address
        self._client_id = client_id.encode()
        self._sent = 0
        self._waiting: deque[tuple[int, int, int]] = deque()  # correlation, API, version
        self._versions = {API_VERSIONS: (0, 0)}
        self._room = bytearray()
        try:
            self._socket = socket.create_connection(address, timeout_s)
        except OSError as error:
            raise Unavailable(f"{address} cannot be reached: {error}") from error
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            listed = self.ask(API_VERSIONS, {})
        except BaseException:
            self.close()
            raise
        self._versions |= {one.api_key: (one.min_version, one.max_version) for one in listed.api_keys}

    def ask(self, api_key: int, values: Mapping[str, Any]) -> Any:
        """The answer to one request; none other is on its way."""
        assert not self._waiting, "answers come in order: take those that are due first"
        self.send(api_key, values)
        return self.receive()

    def send(self, api_key: int, values: Mapping[str, Any], tags: Mapping[int, bytes] | None = None) -> None:
        """A request goes out; `tags` of ours go with it, if it is of a version that has any."""
        version = self.version(api_key)
        self._sent += 1
        body = bytearray(struct.pack(">ihhih", 0, api_key, version, self._sent, len(self._client_id)))
        body += self._client_id
        if is_flexible(api_key, version):
            body.append(0)  # no tags
        request_encoder(api_key, version)(body, values)
        if tags and is_flexible(api_key, version):
            assert not body[-1], "tags of the schema's own"
            body[-1:] = uvarint(len(tags))
            for tag, value in sorted(tags.items()):
                body += uvarint(tag) + uvarint(len(value)) + value
        struct.pack_into(">i", body, 0, len(body) - 4)
        try:
            self._socket.sendall(body)
        except OSError as error:
            raise Unavailable(f"{self._address} does not take a request: {error}") from error
        if api_key != PRODUCE or values["acks"]:
            self._waiting.append((self._sent, api_key, version))

    def receive(self) -> Any:
        """The answer to the oldest request that has none yet."""
        sent, api_key, version = self._waiting.popleft()
        cursor = Cursor(self._frame(api_key), 0)
        (correlation,) = struct.unpack(">i", cursor.take(4))
        if correlation != sent:
            raise Corrupt(f"{self._address} answers request {correlation}, not {sent}")
        if answers_flexibly(api_key, version):
            skip_tags(cursor)
        return decode_answer(api_key, version, cursor.frame, cursor.at)

    def version(self, api_key: int) -> int:
        """The version in which requests go out."""
        least, most = self._versions.get(api_key, (0, -1))
        version = min(most, newest_version(api_key), _NEWEST.get(api_key, most))
        if version < least:
            raise Invalid(f"{self._address} does not know {api_name(api_key)} in a version that we know")
        return version

    def _frame(self, api_key: int) -> memoryview:
        prefix = memoryview(bytearray(4))
        self._fill(prefix)
        (size,) = struct.unpack(">i", prefix)
        if not 4 <= size <= _LARGEST_ANSWER_BYTES:
            raise Corrupt(f"{self._address} sends an answer of {size} bytes")
        frame = self._kept(size) if api_key == FETCH else memoryview(bytearray(size))
        self._fill(frame)
        return frame

    def _kept(self, size: int) -> memoryview:
        if len(self._room) < size:
            self._room = bytearray(size)
        return memoryview(self._room)[:size]

    def _fill(self, room: memoryview) -> None:
        at = 0
        while at < len(room):
            try:
                count = self._socket.recv_into(room[at:])
            except OSError as error:
                raise Unavailable(f"{self._address} does not answer: {error}") from error
            if not count:
                raise Unavailable(f"{self._address} closed the connection")
            at += count

    def close(self) -> None:
        self._socket.close()


def addresses(bootstrap: str) -> list[Address]:
    """The brokers that `host:port,host:port` names."""
    found = []
    for text in bootstrap.split(","):
        host, _, port = text.strip().rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise Invalid(f"kafka.bootstrap.servers: {text.strip()!r} is not HOST:PORT")
        found.append(Address(host.strip("[]"), int(port)))
    return found
