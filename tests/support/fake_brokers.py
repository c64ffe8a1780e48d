"""Kafka brokers without any: bytes of requests in, bytes of answers out, as the test says.

    brokers = FakeBrokers({1: Address("b1", 9092), 2: Address("b2", 9092)})
    brokers.answers[LIST_GROUPS] = lambda address, request: {"error_code": 0, "groups": []}
    Client(settings, dial=brokers.dial)                    for the blocking client
    AsyncClient(settings, brokers.network(), clock, random)

They know Metadata (`topics`), FindCoordinator (`coordinators`) and ApiVersions (`versions`) by themselves.
"""

import asyncio
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from anabranch.base.errors import Unavailable
from anabranch.base.network import Chunk, Link, Listener, Peer, SocketOptions
from anabranch.client.destinations import Address
from anabranch.client.requests import API_VERSIONS, FIND_COORDINATOR, METADATA, PRODUCE
from anabranch.wire.kafka.decoder import Cursor, decode, skip_tags
from anabranch.wire.kafka.encoder import encoder
from anabranch.wire.kafka.schema import ErrorCode, answers_flexibly, is_flexible, newest_version

Answer = Callable[[Address, Any], Mapping[str, Any]]


class FakeBrokers:
    def __init__(self, brokers: Mapping[int, Address]) -> None:
        self.brokers = dict(brokers)
        self.topics: dict[str, list[tuple[int, int]]] = {}
        """Of each partition: leader and epoch."""
        self.topic_ids: dict[str, UUID] = {}
        self.coordinators: dict[str, int] = {}
        self.versions = {key: (0, newest_version(key)) for key in range(93) if _is_there(key)}
        self.answers: dict[int, Answer] = {
            API_VERSIONS: lambda address, request: {
                "api_keys": [
                    {"api_key": key, "min_version": least, "max_version": most}
                    for key, (least, most) in self.versions.items()
                ]
            },
            METADATA: lambda address, request: self.metadata(request),
            FIND_COORDINATOR: lambda address, request: self._coordinator(request),
        }
        self.asked: list[tuple[str, int, int]] = []
        """Host, API and version of each request."""
        self.away: set[Address] = set()
        self.opened: list[Address] = []
        self.spoil: Callable[[int, bytes], bytes] = lambda api_key, frame: frame

    def of(self, api_key: int) -> list[str]:
        """Who was asked."""
        return [host for host, key, _ in self.asked if key == api_key]

    def answer(self, address: Address, data: bytes) -> bytes:
        """What the broker at `address` sends for a whole request."""
        api_key, version, correlation, size = struct.unpack_from(">hhih", data, 4)
        cursor = Cursor(memoryview(data), 4 + 10 + size)
        if is_flexible(api_key, version):
            skip_tags(cursor)
        request = decode(api_key, version, cursor.frame, cursor.at)
        self.asked.append((address.host, api_key, version))
        values = self.answers[api_key](address, request)
        if api_key == PRODUCE and not request.acks:
            return b""
        body = bytearray(struct.pack(">i", correlation))
        body += b"\0" if answers_flexibly(api_key, version) else b""
        encoder(api_key, version)(body, values)
        frame = self.spoil(api_key, bytes(body))
        return struct.pack(">i", len(frame)) + frame if frame else b""

    def metadata(self, request: Any, topics: Mapping[str, list[tuple[int, int]]] | None = None) -> Any:
        known = self.topics if topics is None else topics
        wanted = list(known) if request.topics is None else [one.name for one in request.topics]
        return {
            "brokers": [
                {"node_id": id, "host": at.host, "port": at.port, "rack": None}
                for id, at in self.brokers.items()
            ],
            "controller_id": min(self.brokers),
            "cluster_id": "fake",
            "topics": [self._topic(name, known.get(name)) for name in wanted],
        }

    def _topic(self, name: str, led: list[tuple[int, int]] | None) -> dict[str, Any]:
        code = ErrorCode.unknown_topic_or_partition if led is None else ErrorCode.none
        partitions = [
            {
                "partition_index": index,
                "leader_id": leader,
                "leader_epoch": epoch,
                "replica_nodes": [],
                "isr_nodes": [],
                "offline_replicas": [],
                "error_code": ErrorCode.leader_not_available if leader < 0 else ErrorCode.none,
            }
            for index, (leader, epoch) in enumerate(led or [])
        ]
        id = self.topic_ids.get(name)
        return {
            "error_code": code,
            "name": name,
            "topic_id": id,
            "is_internal": False,
            "partitions": partitions,
        }

    def _coordinator(self, request: Any) -> dict[str, Any]:
        key = request.coordinator_keys[0] if request.coordinator_keys else request.key
        id = self.coordinators.get(key)
        at = self.brokers[id] if id is not None else Address("", -1)
        found = {
            "node_id": -1 if id is None else id,
            "host": at.host,
            "port": at.port,
            "error_code": ErrorCode.coordinator_not_available if id is None else ErrorCode.none,
            "error_message": "",
        }
        return {**found, "coordinators": [{"key": key, **found}]}

    def dial(self, address: Address, timeout_s: float) -> Any:
        """A connection for the blocking client."""
        if address in self.away:
            raise ConnectionRefusedError("nobody is there")
        self.opened.append(address)
        return FakeSocket(self, address)

    def network(self) -> "FakeNetwork":
        return FakeNetwork(self)


def _is_there(api_key: int) -> bool:
    try:
        newest_version(api_key)
    except KeyError:
        return False
    return True


class FakeSocket:
    """A connection of the blocking client."""

    def __init__(self, brokers: FakeBrokers, address: Address) -> None:
        self._brokers = brokers
        self._address = address
        self._coming = bytearray()
        self.most_bytes = 1 << 30
        """That one read gives."""
        self.closed = False

    def settimeout(self, timeout_s: float) -> None:
        assert timeout_s > 0

    def sendall(self, data: bytes) -> None:
        if self._address in self._brokers.away:
            raise BrokenPipeError("the broker is gone")
        self._coming += self._brokers.answer(self._address, bytes(data))

    def recv_into(self, room: memoryview) -> int:
        assert len(room), "a buffer without room"
        if self._address in self._brokers.away:
            return 0
        size = min(len(room), len(self._coming), self.most_bytes)
        room[:size] = self._coming[:size]
        del self._coming[:size]
        return size

    def close(self) -> None:
        self.closed = True


class FakeNetwork:
    """Links to the fake brokers, for the client on an event loop."""

    def __init__(self, brokers: FakeBrokers) -> None:
        self._brokers = brokers
        self.links: list[FakeLink] = []
        self.holds = False
        """Answers wait until `release`."""

    async def listen(
        self, host: str, port: int, factory: Callable[[], Peer], options: SocketOptions
    ) -> Listener:
        raise NotImplementedError

    async def connect(self, host: str, port: int, peer: Peer, timeout_s: float) -> Link:
        address = Address(host, port)
        await asyncio.sleep(0)
        if address in self._brokers.away:
            raise Unavailable(f"{address} cannot be reached")
        self._brokers.opened.append(address)
        link = FakeLink(self._brokers, self, address, peer)
        self.links.append(link)
        peer.opened(link)
        return link

    def release(self) -> None:
        for link in self.links:
            link.deliver()


class FakeLink:
    def __init__(self, brokers: FakeBrokers, network: FakeNetwork, address: Address, peer: Peer) -> None:
        self._brokers = brokers
        self._network = network
        self._address = address
        self.peer = peer
        self._coming = bytearray()
        self.unsent = 0
        self.remote = str(address)
        self.is_over = False

    def send(self, chunks: Sequence[Chunk]) -> None:
        assert not self.is_over
        data = b"".join(bytes(chunk) for chunk in chunks)  # type: ignore[arg-type]
        self._coming += self._brokers.answer(self._address, data)
        if not self._network.holds:
            asyncio.get_running_loop().call_soon(self.deliver)

    def deliver(self) -> None:
        while self._coming and not self.is_over:
            room = self.peer.buffer()
            size = min(len(room), len(self._coming))
            room[:size] = self._coming[:size]
            del self._coming[:size]
            self.peer.received(size)

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self.is_over:
            self.is_over = True
            asyncio.get_running_loop().call_soon(self.peer.closed)
