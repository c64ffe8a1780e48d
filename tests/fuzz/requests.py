"""Real requests of every API and version, and what becomes of them when bytes go wrong.

    corpus = Corpus(seed, topics)
    corpus.real(3, 12)            # a request that a client might send
    corpus.mangled()              # one of those, damaged

The same seed gives the same requests.  kio writes them.  Values are plausible by the names of their fields,
because damage to a request that makes sense reaches further than noise does; waits are short.
"""

import datetime
import io
import random
import struct
from dataclasses import Field, fields
from typing import Any
from uuid import UUID

from kio.index import load_request_schema
from kio.serial import entity_writer
from kio.serial._introspect import EntityField, EntityTupleField, classify_field, get_field_tag, is_optional

from anabranch.records.batch import CRC_START, crc_of
from anabranch.records.builder import build_batch
from anabranch.records.record import Record
from anabranch.server.kafka.registry import load_apis
from tests.compat.clients.raw import build

EXTREMES = [0, 1, -1, 2, 127, 128, 255, 256, 32767, -32768, 65535, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)]
GROUPS = ["fuzz-group", "fuzz-other", ""]
MAX_WAIT_MS = 20


def served() -> list[tuple[int, int]]:
    """Every API and version of the broker."""
    return [
        (api.key, version)
        for api in load_apis().values()
        for version in range(api.min_version, api.max_version + 1)
    ]


class Corpus:
    def __init__(self, seed: int, topics: dict[str, UUID]) -> None:
        self.chance = random.Random(seed)
        self._topics = topics
        self._served = served()
        self._last: list[bytes] = [b"\0"]

    # --- requests as they should be

    def real(self, key: int, version: int) -> bytes:
        """A request without its length."""
        schema = load_request_schema(key, version)
        header = build(
            schema.__header_schema__,
            {
                "request_api_key": key,
                "request_api_version": version,
                "correlation_id": self.chance.randrange(1 << 31),
                "client_id": self.chance.choice(["fuzz", "", None]),
            },
        )
        out = io.BytesIO()
        entity_writer(type(header))(out, header)
        entity_writer(schema)(out, self._entity(schema))
        return out.getvalue()

    def _entity(self, schema: Any) -> Any:
        values = {}
        for field in fields(schema):
            if get_field_tag(field) is not None and self.chance.random() < 0.5:
                continue
            values[field.name] = self._field(field)
        return schema(**values)

    def _field(self, field: "Field[Any]") -> Any:
        chance, kind = self.chance, classify_field(field)
        if is_optional(field) and chance.random() < 0.2:
            return None
        if kind.is_array:
            count = chance.choice((0, 1, 1, 1, 2, 3))
            return tuple(self._one(field, kind) for _ in range(count))
        return self._one(field, kind)

    def _one(self, field: "Field[Any]", kind: Any) -> Any:
        if isinstance(kind, EntityField | EntityTupleField):
            return self._entity(kind.type_)
        return self._value(field.name, str(field.metadata["kafka_type"]))

    def _value(self, name: str, kafka_type: str) -> Any:
        chance = self.chance
        if kafka_type == "string":
            return self._text(name)
        if kafka_type in ("bytes", "records"):
            return self._batch() if kafka_type == "records" or chance.random() < 0.3 else chance.randbytes(20)
        if kafka_type == "uuid":
            return chance.choice([*self._topics.values(), UUID(int=chance.getrandbits(128)), None])
        if kafka_type == "bool":
            return chance.random() < 0.5
        if kafka_type == "float64":
            return chance.random()
        if kafka_type.startswith("timedelta"):
            return datetime.timedelta(milliseconds=chance.randrange(MAX_WAIT_MS))
        if kafka_type == "datetime_i64":
            return datetime.datetime.fromtimestamp(chance.randrange(2 * 10**9), datetime.UTC)
        return self._number(name, kafka_type)

    def _number(self, name: str, kafka_type: str) -> int:
        chance, bits = self.chance, int("".join(filter(str.isdigit, kafka_type)) or 16)
        if "timeout" in name or "wait" in name:
            return chance.randrange(MAX_WAIT_MS)
        if name == "resource_type":
            return 2  # topics: what is set for the broker would change the test
        usual = chance.choice([-1, 0, 0, 1, 1, 2, 3, 100])
        least = 0 if kafka_type.startswith("uint") else -(1 << (bits - 1))
        most = (1 << bits) - 1 if least == 0 else (1 << (bits - 1)) - 1
        chosen = usual if chance.random() < 0.9 else chance.choice(EXTREMES)
        return max(least, min(most, chosen))

    def _text(self, name: str) -> str:
        chance = self.chance
        if "group" in name:
            return chance.choice(GROUPS)
        if "transactional" in name:
            return chance.choice(["fuzz-transaction", ""])
        if chance.random() < 0.6:
            return chance.choice(list(self._topics))
        return chance.choice(
            ["", "cleanup.policy", "compact", "consumer", "range", "..", "ü", "fuzz-new", "1", "x" * 300]
        )

    def _batch(self) -> bytes:
        chance = self.chance
        records = [
            Record(i, 1_700_000_000_000 + i, chance.choice([None, b"k"]), chance.randbytes(10))
            for i in range(chance.randrange(1, 5))
        ]
        producer = chance.choice([{}, {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}])
        batch = build_batch(records, codec=chance.randrange(5), **producer)
        if chance.random() < 0.3:  # damage behind a checksum that fits
            for _ in range(chance.randrange(1, 4)):
                batch[chance.randrange(CRC_START, len(batch))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
            struct.pack_into(">I", batch, CRC_START - 4, crc_of(batch))
        return bytes(batch)

    # --- and as they should not be

    def mangled(self) -> bytes:
        """A request, damaged in one to four places, or not at all."""
        key, version = self.chance.choice(self._served)
        body = bytearray(self.real(key, version))
        for _ in range(self.chance.choice((0, 1, 1, 1, 2, 4))):
            body = self._damage(body)
        self._last = [*self._last[-50:], bytes(body)]
        return bytes(body)

    def _damage(self, body: bytearray) -> bytearray:
        chance = self.chance
        at = chance.randrange(len(body) + 1)
        end = min(len(body), at + chance.choice((1, 2, 4, 8, 30)))
        way = chance.randrange(8)
        if way == 0 and at < len(body):
            body[at] ^= 1 << chance.randrange(8)
        elif way == 1:
            del body[at:]
        elif way == 2:
            del body[at:end]
        elif way == 3:
            body[at:at] = body[at:end] * chance.choice((1, 2, 100))
        elif way == 4:
            body[at:at] = chance.randbytes(chance.choice((1, 4, 50)))
        elif way == 5:
            other = chance.choice(self._last)
            start = chance.randrange(len(other)) if other else 0
            body[at:end] = other[start : start + end - at]
        elif way == 6:
            body[at : at + 4] = struct.pack(">i", chance.choice([n for n in EXTREMES if abs(n) < 2**31]))
        else:
            body[at : at + 2] = struct.pack(">h", chance.choice([n for n in EXTREMES if abs(n) < 2**15]))
        return body or bytearray(b"\0")

    def framed(self, body: bytes) -> bytes:
        """With its length, or sometimes with another."""
        size = len(body)
        if self.chance.random() < 0.03:
            size = max(0, size + self.chance.choice((-1, 1, -4, 4, 1000)))
        return struct.pack(">i", size) + body

    def noise(self) -> bytes:
        return self.chance.randbytes(self.chance.randrange(1, 2000))
