"""A connection's protocol, without the connection: requests to bytes, bytes to answers, in order.

    protocol = ClientProtocol("anabranch")
    number, data = protocol.send(request)      any number of requests may be on their way
    protocol.buffer(), protocol.received(n)    bytes come in
    protocol.next_answer()                     (number, answer) of the oldest request, or None so far

A broker answers in the order of requests, so what is on its way is a queue, and an answer with another
number than the oldest is Corrupt: the connection is of no use any more.  The first exchange is ApiVersions
(`first`); until it is answered (`is_ready`) nothing else can be sent, since the versions are not known.
Whatever authenticates comes between these two.

Byte fields of an answer (the records of a Fetch) are views into its frame and are not looked at.
"""

import struct
from collections import deque
from typing import Any, NamedTuple

from anabranch.base.errors import Corrupt, Invalid
from anabranch.client.frames import Frames
from anabranch.client.requests import API_VERSIONS, Request
from anabranch.wire.kafka.decoder import Cursor, decode_answer, skip_tags
from anabranch.wire.kafka.encoder import request_encoder, uvarint
from anabranch.wire.kafka.schema import answers_flexibly, api_name, is_flexible, newest_version

_HEADER = struct.Struct(">ihhih")
_CORRELATION = struct.Struct(">i")
_LENGTH = struct.Struct(">i")
_NO_TAGS = 0
_MOST_ITEMS = 2_000_000  # of all arrays of an answer: the replicas of 100,000 partitions are fewer

Answered = tuple[int, Any]


class _Sent(NamedTuple):
    number: int
    request: Request
    version: int


class ClientProtocol:
    first = Request(API_VERSIONS, {})

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id.encode()
        self._frames = Frames()
        self._versions = {API_VERSIONS: (0, 0)}
        self._count = 0
        self._in_flight: deque[_Sent] = deque()

    @property
    def is_ready(self) -> bool:
        return len(self._versions) > 1

    def send(self, request: Request) -> tuple[int, bytearray]:
        """The number of a request, and its bytes.  Invalid if the broker does not know it in our versions."""
        api_key, version = request.api_key, self.version(request)
        number = (self._count + 1) & 0x7FFFFFFF
        out = bytearray(_HEADER.pack(0, api_key, version, number, len(self._client_id)))
        out += self._client_id
        if is_flexible(api_key, version):
            out.append(_NO_TAGS)
        request_encoder(api_key, version)(out, request.values)
        if request.tags and is_flexible(api_key, version):
            _tag(out, request.tags)
        _LENGTH.pack_into(out, 0, len(out) - _LENGTH.size)
        self._count = number
        if request.is_answered:
            self._in_flight.append(_Sent(number, request, version))
            self._frames.largest_bytes = self._in_flight[0].request.largest_answer_bytes
        return number, out

    def version(self, request: Request) -> int:
        """The version in which a request goes out."""
        least, most = self._versions.get(request.api_key, (0, -1))
        version = min(most, newest_version(request.api_key))
        if (bound := request.newest_version) is not None:
            version = min(version, bound)
        if version < least:
            name = api_name(request.api_key)
            raise Invalid(f"the broker does not know {name} in a version that we know")
        return version

    # --- what comes in

    def reuse_memory(self, allowed: bool) -> None:
        """Whether the next large frame may use the memory of the one before, which is then gone."""
        self._frames.reuses_memory = allowed

    def buffer(self) -> memoryview:
        return self._frames.buffer()

    def received(self, size: int) -> None:
        self._frames.received(size)

    def next_answer(self) -> Answered | None:
        """The answer to the oldest request.  Corrupt if it is none."""
        frame = self._frames.next_frame()
        if frame is None:
            return None
        if not self._in_flight:
            raise Corrupt("an answer to nothing")
        number, request, version = self._in_flight.popleft()
        self._frames.largest_bytes = self._in_flight[0].request.largest_answer_bytes if self._in_flight else 0
        cursor = Cursor(frame, _CORRELATION.size)
        (correlation,) = _CORRELATION.unpack_from(frame)
        if correlation != number:
            raise Corrupt(f"the answer to request {correlation}, not {number}")
        if answers_flexibly(request.api_key, version):
            skip_tags(cursor)
        answer = decode_answer(request.api_key, version, frame, cursor.at, _MOST_ITEMS)
        if request.api_key == API_VERSIONS and not self.is_ready:
            self._learn(answer)
        return number, answer

    def _learn(self, answer: Any) -> None:
        if answer.error_code or not answer.api_keys:
            raise Corrupt(f"no versions, but error {answer.error_code}")
        self._versions |= {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}


def _tag(out: bytearray, tags: Any) -> None:
    assert out[-1] == _NO_TAGS, "tags of the schema's own"
    out[-1:] = uvarint(len(tags))
    for tag, value in sorted(tags.items()):
        out += uvarint(tag) + uvarint(len(value)) + value
