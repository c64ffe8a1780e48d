"""Offset commits as fast as a broker takes them: requests written beforehand, many of them under way.

    commit(bootstrap, groups=4, partitions=1, window=16, requests=20_000)   -> requests per second

A connection a group, each with `window` requests unanswered: 1 is a client that waits for every commit, more
is many clients of a shard.  Every answer's codes are looked at; one that is not zero fails the run.  Frames
are packed once and patched (correlation id), so that the client costs next to nothing.
"""

import io
import selectors
import socket
import struct
import sys
import time
from typing import Any

from servers import ROOT

sys.path.insert(0, str(ROOT / "tests" / "compat" / "clients"))
import raw
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

OFFSET_COMMIT = 8
VERSION = 9
TIMEOUT_S = 60.0
_CORRELATION = struct.Struct(">i")
_CORRELATION_AT = 4 + 4  # after the length, the key and the version
LOADING = (14, 15, 16)
_CHUNK_BYTES = 1 << 18


def frame(key: int, version: int, values: dict[str, Any]) -> bytearray:
    schema = load_request_schema(key, version)
    told = {"request_api_key": key, "request_api_version": version, "correlation_id": 0, "client_id": "load"}
    header = raw.build(schema.__header_schema__, told)
    out = io.BytesIO()
    entity_writer(type(header))(out, header)
    entity_writer(schema)(out, raw.build(schema, values))
    return bytearray(struct.pack(">i", len(out.getvalue())) + out.getvalue())


def commit_frame(group: str, topic: str, partitions: int) -> bytearray:
    parts = [
        {"partition_index": i, "committed_offset": 7, "committed_leader_epoch": -1, "committed_metadata": ""}
        for i in range(partitions)
    ]
    values = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [{"name": topic, "partitions": parts}],
    }
    return frame(OFFSET_COMMIT, VERSION, values)


def codes_in(body: bytes) -> set[int]:
    schema: Any = load_response_schema(OFFSET_COMMIT, VERSION)
    _, used = entity_reader(schema.__header_schema__)(body, 0)
    answer, _ = entity_reader(schema)(body, used)
    return {int(part.error_code) for topic in answer.topics for part in topic.partitions}


class Committer:
    """One connection: how many were sent, how many answered, and what an accepted answer looks like."""

    def __init__(self, bootstrap: str, request: bytearray, window: int) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._request = request
        self._window = window
        self._sent = self.answered = 0
        self._rest = b""
        self._accepted = self._first_answer()

    def _first_answer(self) -> bytes:
        """The body of an answer without errors: later ones have the same bytes."""
        for _ in range(200):
            _CORRELATION.pack_into(self._request, _CORRELATION_AT, 0)
            self.socket.sendall(self._request)
            size = struct.unpack(">i", self._exactly(4))[0]
            body = self._exactly(size)
            codes = codes_in(body)
            if codes == {0}:
                return body[4:]
            if not codes <= set(LOADING):
                raise RuntimeError(f"a commit is refused with {codes}")
            time.sleep(0.05)
        raise TimeoutError("the coordinator is not there")

    def _exactly(self, size: int) -> bytes:
        return self.socket.recv(size, socket.MSG_WAITALL)

    def fill(self, upto: int) -> None:
        """Send until the window is full, or `upto` in all."""
        count = min(upto - self._sent, self._window - (self._sent - self.answered))
        burst = bytearray()
        for _ in range(count):
            self._sent += 1
            _CORRELATION.pack_into(self._request, _CORRELATION_AT, self._sent)
            burst += self._request
        if burst:
            self.socket.sendall(burst)

    def take(self) -> None:
        """Count the whole answers that have come."""
        data = self._rest + self.socket.recv(_CHUNK_BYTES)
        size = 8 + len(self._accepted)
        whole = len(data) // size
        for at in range(0, whole * size, size):
            if data[at + 8 : at + size] != self._accepted:
                raise RuntimeError(f"a commit is refused: {data[at : at + size].hex()}")
        self.answered += whole
        self._rest = data[whole * size :]


def run(committers: list[Committer], requests: int) -> float:
    """Seconds for `requests` on each."""
    selector = selectors.DefaultSelector()
    for committer in committers:
        selector.register(committer.socket, selectors.EVENT_READ, committer)
    started = time.monotonic()
    for committer in committers:
        committer.fill(requests)
    left = len(committers)
    while left:
        ready = selector.select(TIMEOUT_S)
        if not ready:
            raise TimeoutError("no answer to a commit")
        for key, _ in ready:
            committer = key.data
            committer.take()
            committer.fill(requests)
            if committer.answered == requests:
                selector.unregister(committer.socket)
                committer.socket.close()
                left -= 1
    return time.monotonic() - started


def commit(
    bootstrap: str, groups: list[str], topic: str, partitions: int, window: int, requests: int
) -> float:
    """Seconds for `requests` commits of `partitions` offsets by each of `groups` at the same time."""
    return run([Committer(bootstrap, commit_frame(g, topic, partitions), window) for g in groups], requests)
