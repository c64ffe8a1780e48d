"""Requests that the client library does not offer, sent by hand: one question, one answer.

    with Exchange("127.0.0.1:9092") as exchange:
        exchange.to_coordinator(DESCRIBE_TRANSACTIONS, "payments", {"transactional_ids": ["payments"]})

A connection a broker, opened when it is needed.  A request goes out at the newest version that both sides
know; fields that this version lacks are left out.  Answers are what `wire.kafka.decoder` makes of them.
"""

import socket
import struct
from collections.abc import Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self

from anabranch.base.errors import Corrupt
from anabranch.cli.client import ANSWER_SECONDS, reach
from anabranch.cli.failure import CommandError
from anabranch.wire.kafka.decoder import Cursor, decode_answer, skip_tags
from anabranch.wire.kafka.encoder import request_encoder
from anabranch.wire.kafka.schema import ErrorCode, answers_flexibly, api_name, is_flexible, newest_version

METADATA, FIND_COORDINATOR, LIST_GROUPS, API_VERSIONS = 3, 10, 16, 18
INIT_PRODUCER_ID, WRITE_TXN_MARKERS = 22, 27
DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS = 32, 44
DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 61, 65, 66
SHARE_GROUP_DESCRIBE, DESCRIBE_SHARE_GROUP_OFFSETS, ALTER_SHARE_GROUP_OFFSETS = 77, 90, 91

GROUPS, TRANSACTIONS = 0, 1  # FindCoordinator: the kind of key
_CLIENT_ID = b"anabranch-cli"
_LARGEST_ANSWER_BYTES = 256 << 20


class Address(NamedTuple):
    host: str
    port: int


class Exchange:
    def __init__(self, bootstrap: str) -> None:
        reach(bootstrap)
        self._bootstrap = [_address(text) for text in bootstrap.split(",")]
        self._connections: dict[Address, _Connection] = {}

    def to_any(self, api_key: int, values: Mapping[str, Any]) -> Any:
        for address in self._bootstrap:
            try:
                return self._to(address, api_key, values)
            except CommandError:
                if address == self._bootstrap[-1]:
                    raise
        raise AssertionError("a bootstrap without addresses")

    def to_all(self, api_key: int, values: Mapping[str, Any]) -> list[Any]:
        """The answer of every broker of the cluster."""
        brokers = self._metadata([]).brokers
        return [self._to(Address(broker.host, broker.port), api_key, values) for broker in brokers]

    def to_coordinator(
        self, api_key: int, key: str, values: Mapping[str, Any], key_type: int = TRANSACTIONS
    ) -> Any:
        """The answer of the coordinator of `key`, a transactional id or a group."""
        question = {"key": key, "key_type": key_type, "coordinator_keys": [key]}
        answer = self.to_any(FIND_COORDINATOR, question)
        found = answer.coordinators[0] if answer.coordinators else answer
        check(found.error_code, f"the coordinator of {key!r}")
        return self._to(Address(found.host, found.port), api_key, values)

    def to_leader(self, api_key: int, topic: str, partition: int, values: Mapping[str, Any]) -> Any:
        """The answer of the broker that leads a partition."""
        answer = self._metadata([topic])
        check(answer.topics[0].error_code, topic)
        for index in answer.topics[0].partitions:
            if index.partition_index == partition:
                check(index.error_code, f"{topic} partition {partition}")
                brokers = {broker.node_id: broker for broker in answer.brokers}
                leader = brokers[index.leader_id]
                return self._to(Address(leader.host, leader.port), api_key, values)
        raise CommandError(f"{topic} has no partition {partition}", "`anabranch topic describe` shows them")

    def partitions(self, topic: str) -> list[int]:
        answer = self._metadata([topic])
        check(answer.topics[0].error_code, topic)
        return sorted(partition.partition_index for partition in answer.topics[0].partitions)

    def _metadata(self, topics: list[str]) -> Any:
        return self.to_any(
            METADATA,
            {
                "topics": [{"name": topic} for topic in topics],
                "allow_auto_topic_creation": False,
                "include_topic_authorized_operations": False,
            },
        )

    def _to(self, address: Address, api_key: int, values: Mapping[str, Any]) -> Any:
        try:
            if address not in self._connections:
                self._connections[address] = _Connection(address)
            return self._connections[address].ask(api_key, values)
        except (OSError, Corrupt) as error:
            raise CommandError(f"{address.host}:{address.port} gave no answer: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._connections.values():
            connection.close()


class _Connection:
    def __init__(self, address: Address) -> None:
        self._socket = socket.create_connection(address, ANSWER_SECONDS)
        self._answers = self._socket.makefile("rb")
        self._sent = 0
        self._versions = {API_VERSIONS: (0, 0)}
        listed = self.ask(API_VERSIONS, {})
        self._versions |= {one.api_key: (one.min_version, one.max_version) for one in listed.api_keys}

    def ask(self, api_key: int, values: Mapping[str, Any]) -> Any:
        version = self._version(api_key)
        self._sent += 1
        body = bytearray(struct.pack(">hhih", api_key, version, self._sent, len(_CLIENT_ID)) + _CLIENT_ID)
        if is_flexible(api_key, version):
            body.append(0)  # no tags
        request_encoder(api_key, version)(body, values)
        self._socket.sendall(struct.pack(">i", len(body)) + body)
        cursor = Cursor(memoryview(self._frame()), 0)
        (correlation,) = struct.unpack(">i", cursor.take(4))
        if correlation != self._sent:
            raise Corrupt(f"the answer to request {correlation}, not {self._sent}")
        if answers_flexibly(api_key, version):
            skip_tags(cursor)
        return decode_answer(api_key, version, cursor.frame, cursor.at)

    def _version(self, api_key: int) -> int:
        least, most = self._versions.get(api_key, (0, -1))
        version = min(most, newest_version(api_key))
        if version < least:
            raise CommandError(f"the broker does not know {api_name(api_key)}")
        return version

    def _frame(self) -> bytes:
        prefix = self._answers.read(4)
        if len(prefix) < 4:
            raise ConnectionError("it closed the connection")
        (size,) = struct.unpack(">i", prefix)
        if not 4 <= size <= _LARGEST_ANSWER_BYTES:
            raise Corrupt(f"an answer of {size} bytes")
        frame = self._answers.read(size)
        if len(frame) < size:
            raise ConnectionError("it closed the connection")
        return frame

    def close(self) -> None:
        self._answers.close()
        self._socket.close()


def check(error_code: int, what: str) -> None:
    """CommandError if `error_code` is one."""
    if error_code:
        raise CommandError(f"{what}: {error_name(error_code)}")


def error_name(error_code: int) -> str:
    try:
        return ErrorCode(error_code).name.upper()
    except ValueError:
        return f"error {error_code}"


def _address(text: str) -> Address:
    host, _, port = text.strip().rpartition(":")
    return Address(host.strip("[]"), int(port))
