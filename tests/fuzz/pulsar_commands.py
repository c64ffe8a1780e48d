"""Real Pulsar commands of every type, and what becomes of them when bytes go wrong.

    corpus = PulsarCorpus(seed)
    corpus.opening()              # frames that connect a client and give it producers and consumers
    corpus.real()                 # a command that a client might say, if it is odd
    corpus.mangled()              # one of those, damaged

The same seed gives the same commands.  Values are plausible by the names of their fields, because damage to a
command that makes sense reaches further than noise does.
"""

import random
import struct
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from anabranch.server.pulsar.registry import load_commands
from anabranch.wire.pulsar import commands_pb2 as pb
from tests.support.entries import batch_of, entry_of
from tests.support.pulsar_wire import frame

TOPICS = [f"fuzz-{n}" for n in range(3)] + [
    "non-persistent://public/default/fuzz-n",
    "fuzz-parts-partition-1",
]
ODD_TOPICS = [
    "",
    "a/b/c/d/e",
    "persistent://no/where/t",
    "x" * 400,
    "\u2603",
    "fuzz-0-partition-7",
    "://",
    "..",
]
NAMES = ["s", "other", "", "\u00e4", "n" * 300]
EXTREMES = [0, 1, 2, 127, 128, 255, 65535, (1 << 31) - 1, (1 << 32) - 1, (1 << 63) - 1, (1 << 64) - 1]
PATTERNS = ["persistent://public/default/fuzz.*", ".*", "(a+)+b", "(((", "[", "x{1000}{1000}", ""]
IDS = 4
_SEND = pb.BaseCommand.SEND


class PulsarCorpus:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self._types = [*load_commands(), _SEND, _SEND, _SEND]
        self._sequence = 0

    def opening(self) -> list[bytes]:
        """Producers and consumers of every id, of all kinds."""
        chance = self.chance
        said = [
            frame(pb.BaseCommand.CONNECT, client_version="fuzz", protocol_version=chance.choice([0, 12, 21]))
        ]
        for id in range(IDS):
            topic = chance.choice(TOPICS)
            said.append(frame(pb.BaseCommand.PRODUCER, topic=topic, producer_id=id, request_id=id))
            said.append(
                frame(
                    pb.BaseCommand.SUBSCRIBE,
                    topic=topic,
                    subscription=f"s{chance.randrange(6)}",
                    type=chance.randrange(4),
                    consumer_id=id,
                    request_id=id,
                    durable=chance.random() < 0.7,
                )
            )
        return said

    def real(self) -> bytes:
        """A frame."""
        type = self.chance.choice(self._types)
        if type == pb.BaseCommand.CONNECT and self.chance.random() < 0.9:
            type = pb.BaseCommand.PING
        if type == _SEND:
            return self._send()
        field = pb.BaseCommand.DESCRIPTOR.fields_by_number[type]
        return frame(type, **self._fields(field.message_type))

    def _send(self) -> bytes:
        chance = self.chance
        self._sequence += 1
        data = chance.randbytes(chance.choice([0, 1, 100, 5000]))
        entry = batch_of(data, b"x") if chance.random() < 0.3 else entry_of(data, sequence=self._sequence)
        if chance.random() < 0.2:
            entry = self._damaged(entry)
        fields: dict[str, Any] = {"producer_id": chance.randrange(IDS), "sequence_id": self._sequence}
        if chance.random() < 0.1:
            fields["highest_sequence_id"] = chance.choice(EXTREMES)
        if chance.random() < 0.2:
            fields |= {"txnid_most_bits": chance.randrange(3), "txnid_least_bits": self._txn()}
        return frame(_SEND, entry, **fields)

    def _fields(self, message: Any, depth: int = 0) -> dict[str, Any]:
        values = {}
        for field in message.fields:
            is_deep = depth >= 3 and field.type == FieldDescriptor.TYPE_MESSAGE
            if not field.is_required and (is_deep or self.chance.random() < 0.4):
                continue
            if field.is_repeated:
                count = self.chance.choice([0, 1, 3])
                values[field.name] = [self._value(field, depth) for _ in range(count)]
            else:
                values[field.name] = self._value(field, depth)
        return values

    def _value(self, field: FieldDescriptor, depth: int) -> Any:
        chance, kind = self.chance, field.type
        if kind == FieldDescriptor.TYPE_MESSAGE:
            return self._fields(field.message_type, depth + 1)
        if kind == FieldDescriptor.TYPE_ENUM:
            return chance.choice(field.enum_type.values).number
        if kind == FieldDescriptor.TYPE_STRING:
            return self._text(field.name)
        if kind == FieldDescriptor.TYPE_BYTES:
            return chance.randbytes(chance.choice([0, 8, 100]))
        if kind == FieldDescriptor.TYPE_BOOL:
            return chance.random() < 0.5
        if field.name in ("producer_id", "consumer_id", "watcher_id"):
            return chance.randrange(IDS + 1)
        if field.name in ("entry_id", "ledger_id", "batch_index") and chance.random() < 0.7:
            return chance.randrange(50)
        if field.name in ("txnid_most_bits", "coordinator_id") and chance.random() < 0.9:
            return chance.randrange(3)
        if field.name == "txnid_least_bits" and chance.random() < 0.9:
            return self._txn()
        if field.name == "message_permits" and chance.random() < 0.9:
            return chance.randrange(1, 100)
        return self._number(kind)

    def _txn(self) -> int:
        """A transaction that may well be there: one of the first producer ids, one of the first epochs."""
        return self.chance.randrange(6) << 15 | self.chance.randrange(3)

    def _number(self, kind: int) -> int:
        bits = 32 if kind in (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_UINT32) else 64
        is_signed = kind in (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64)
        number = self.chance.choice(EXTREMES) & ((1 << bits) - 1)
        return number - (1 << bits) if is_signed and number >> (bits - 1) else number

    def _text(self, name: str) -> str:
        chance = self.chance
        if name in ("topic", "partitions"):
            return chance.choice(TOPICS if chance.random() < 0.8 else ODD_TOPICS)
        if name == "namespace":
            return chance.choice(["public/default", "no/where", "", "a/b/c"])
        if name == "topics_pattern":
            return chance.choice(PATTERNS)
        return chance.choice(NAMES)

    # --- as they should not be

    def mangled(self) -> bytes:
        return self._damaged(self.real())

    def _damaged(self, data: bytes) -> bytes:
        chance, damaged = self.chance, bytearray(data)
        if not damaged:
            return data
        for _ in range(chance.choice([1, 1, 2, 8])):
            at = chance.randrange(len(damaged))
            match chance.randrange(5):
                case 0:
                    damaged[at] ^= 1 << chance.randrange(8)
                case 1:
                    damaged[at] = chance.choice([0, 1, 0x7F, 0x80, 0xFF])
                case 2:
                    damaged[at:at] = chance.randbytes(chance.choice([1, 4, 40]))
                case 3:
                    del damaged[at : at + chance.choice([1, 4, 40])]
                case 4:
                    damaged[at:at] = damaged[: chance.randrange(1, 60)]
            if not damaged:
                return b"\0"
        return bytes(damaged)

    def reframed(self) -> bytes:
        """Damage inside a frame whose size is right."""
        inside = self._damaged(self.real()[4:])
        return struct.pack(">I", len(inside)) + inside

    def noise(self) -> bytes:
        return self.chance.randbytes(self.chance.choice([1, 8, 100, 3000]))
