"""The fields that records of internal topics are made of, read and written one after the other.

    fixed     int16, int32, int64                     big-endian
    string    int16 length, -1 for null               bytes: int32 length
    compact   unsigned varint of length + 1, 0 null   in flexible versions, strings, bytes and arrays alike
    tagged    count, then (tag, size, content)        at the end of a flexible structure

Whoever reads may be reading another broker's files: a length beyond the end is Corrupt, and tags that
are not known are passed over.
"""

import struct
from collections.abc import Iterable

from anabranch.base.errors import Corrupt, TooLarge

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")
INT64 = struct.Struct(">q")

_ONE_BYTE = tuple(bytes((number,)) for number in range(128))
_LONGEST_STRING = (1 << 15) - 1


class Fields:
    """Reads `data` from front to back."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self._at = at

    def int8(self) -> int:
        return int.from_bytes(self.take(1), signed=True)

    def int16(self) -> int:
        return self._fixed(INT16)

    def int32(self) -> int:
        return self._fixed(INT32)

    def int64(self) -> int:
        return self._fixed(INT64)

    def varint(self) -> int:
        """Unsigned, up to 32 bits."""
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 28:
                raise Corrupt("a number in a record is longer than 5 bytes")

    def count(self, *, flexible: bool = False) -> int:
        """The length of an array; -1 for null.  No more than there can be items."""
        size = self.varint() - 1 if flexible else self.int32()
        if size > len(self._data) - self._at:
            raise Corrupt(f"an array in a record claims {size} items")
        return size

    def string(self, *, flexible: bool = False) -> str:
        text = self.optional_string(flexible=flexible)
        if text is None:
            raise Corrupt("a text in a record is null and must not be")
        return text

    def optional_string(self, *, flexible: bool = False) -> str | None:
        size = self.varint() - 1 if flexible else self.int16()
        if size < 0:
            return None
        try:
            return str(self.take(size), "utf-8")
        except UnicodeDecodeError as error:
            raise Corrupt("a text in a record is not UTF-8") from error

    def blob(self, *, flexible: bool = False) -> bytes:
        return self.take(max(0, self.varint() - 1 if flexible else self.int32()))

    def int32s(self) -> list[int]:
        """A compact array of them."""
        return [self.int32() for _ in range(self.count(flexible=True))]

    def tags(self) -> dict[int, bytes]:
        return {self.varint(): self.take(self.varint()) for _ in range(self.varint())}

    def take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise Corrupt(f"a field in a record needs {size} bytes, {len(self._data) - self._at} are left")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def _fixed(self, layout: struct.Struct) -> int:
        try:
            value: int = layout.unpack_from(self._data, self._at)[0]
        except struct.error as error:
            raise Corrupt("a record ends in the middle of a field") from error
        self._at += layout.size
        return value


def string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    data = text.encode()
    if len(data) > _LONGEST_STRING:
        raise TooLarge(f"a text of {len(data)} bytes does not fit a record, {_LONGEST_STRING} do")
    return INT16.pack(len(data)) + data


def blob(data: bytes) -> bytes:
    return INT32.pack(len(data)) + data


def compact_string(text: str | None) -> bytes:
    return b"\x00" if text is None else compact_blob(text.encode())


def compact_blob(data: bytes) -> bytes:
    return varint(len(data) + 1) + data


def compact_array(items: Iterable[bytes]) -> bytes:
    encoded = list(items)
    return varint(len(encoded) + 1) + b"".join(encoded)


def int32s(numbers: Iterable[int]) -> bytes:
    return compact_array(INT32.pack(number) for number in numbers)


def varint(number: int) -> bytes:
    """Unsigned."""
    if number < 128:
        return _ONE_BYTE[number]
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def tagged(fields: dict[int, bytes]) -> bytes:
    """The tagged fields that end a flexible structure."""
    return varint(len(fields)) + b"".join(
        varint(tag) + varint(len(content)) + content for tag, content in sorted(fields.items())
    )
