"""Kafka's headers and Pulsar's properties, and what of one the other cannot say.

Headers are pairs of a name and bytes or null, in order, and a name may come twice.  Properties are text, and
clients see a map of them.  So headers that are more than a map of text travel a second time, whole, as one
property `kafka.headers`: a JSON list of pairs in their order,

    [["trace", "a1"], ["trace", "b2"], ["raw", {"base64": "/wA="}], ["none", null]]

and a message that has such a property gives these headers.  What Pulsar has and Kafka has not becomes a
header whose name begins with `pulsar.`.
"""

import base64
import binascii

import msgspec

from anabranch.records.record import Header

HEADERS = "kafka.headers"
ORDERING_KEY = b"pulsar.ordering-key"
SCHEMA_VERSION = b"pulsar.schema-version"
CHUNK = b"pulsar.chunk"
CHUNK_OF = b"pulsar.chunk-of"
ENCRYPTED = b"pulsar.encrypted"
METADATA = b"pulsar.metadata"
PRODUCER_NAME = b"pulsar.producer-name"
PUBLISH_TIME = b"pulsar.publish-time"
BATCH_SIZE = b"pulsar.batch-size"


class _Raw(msgspec.Struct):
    base64: str


_Written = list[tuple[str | _Raw, str | _Raw | None]]
_decoder = msgspec.json.Decoder(_Written)


def as_text(data: bytes) -> tuple[str, bool]:
    """`data` as text, and whether that took base64."""
    try:
        return data.decode("utf-8"), False
    except UnicodeDecodeError:
        return base64.b64encode(data).decode("ascii"), True


def as_bytes(text: str | bytes) -> bytes:
    """The protobuf library gives bytes for strings that are not UTF-8."""
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")


def write_headers(headers: tuple[Header, ...]) -> str:
    """All of `headers`, as one text."""
    pairs = [(_written(name), None if value is None else _written(value)) for name, value in headers]
    return msgspec.json.encode(pairs).decode()


def read_headers_text(text: str | bytes) -> tuple[Header, ...] | None:
    """What `write_headers` was given; None if it was not."""
    try:
        pairs = _decoder.decode(text)
        return tuple((_read(name), None if value is None else _read(value)) for name, value in pairs)
    except (msgspec.MsgspecError, binascii.Error, UnicodeError):
        return None


def _written(data: bytes) -> str | _Raw:
    text, encoded = as_text(data)
    return _Raw(text) if encoded else text


def _read(value: str | _Raw) -> bytes:
    if isinstance(value, str):
        return value.encode()
    return base64.b64decode(value.base64.encode("ascii"), validate=True)
