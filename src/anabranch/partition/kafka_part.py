"""What Kafka's consumers are given of a partition that Pulsar producers write to as well.

    Kafka │ Kafka │ Pulsar │ Pulsar │ Kafka
    └─ as stored ─┘ └─ translated ──┘ └ the next read

A read gives what is of one kind, from where it begins to where the other begins, so that batches of Kafka's
own still go from the file to the socket.  Entries are translated once and kept for a while: readers that
follow one another closely share the work.  It is done in the loop, so a read translates a limited amount.
"""

from collections import OrderedDict

from anabranch.base.errors import AnabranchError, Corrupt
from anabranch.base.network import FileRange
from anabranch.records.batch import HEADER_SIZE, PULSAR_ENTRY, read_header
from anabranch.records.to_kafka import as_kafka_batch

_MOST_BATCHES = 256  # that are looked at; the reader comes back for more
_TRANSLATED_BYTES = 128 << 10  # of entries a read, some milliseconds
_KEPT_BYTES = 16 << 20
_UNPACKED_BYTES = 64 << 20


class NotForKafka(Corrupt):
    """A Pulsar producer wrote it, and it cannot be translated."""


class KafkaParts:
    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, int, int], bytes] = OrderedDict()
        self._kept_bytes = 0

    def of(self, part: FileRange) -> FileRange | bytes:
        """The beginning of `part` that is of one kind, as Kafka's clients read it."""
        position, end = part.position, part.position + part.size
        first = read_header(part.file.pread(HEADER_SIZE, position))
        is_pulsar = first.attributes & PULSAR_ENTRY
        most = min(end, position + _TRANSLATED_BYTES) if is_pulsar else end
        position += first.size_bytes
        for _ in range(_MOST_BATCHES - 1):
            if position >= most:
                break
            header = read_header(part.file.pread(HEADER_SIZE, position))
            if header.attributes & PULSAR_ENTRY != is_pulsar:
                break
            position += header.size_bytes
        found = FileRange(part.file, part.position, position - part.position)
        return self._translated(found) if is_pulsar else found

    def _translated(self, part: FileRange) -> bytes:
        key = (str(part.file.path), part.position, part.size)
        kept = self._kept.get(key)
        if kept is None:
            kept = _translate(part.file.pread(part.size, part.position))
            self._kept[key] = kept
            self._kept_bytes += len(kept)
            while self._kept_bytes > _KEPT_BYTES and len(self._kept) > 1:
                self._kept_bytes -= len(self._kept.popitem(last=False)[1])
        else:
            self._kept.move_to_end(key)
        return kept


def _translate(data: bytes) -> bytes:
    view = memoryview(data)
    batches: list[bytes] = []
    at = 0
    while at < len(view):
        header = read_header(view, at)
        try:
            batches.append(as_kafka_batch(header, view[at : at + header.size_bytes], _UNPACKED_BYTES))
        except AnabranchError as error:
            if batches:  # those before it first
                break
            raise NotForKafka(f"offset {header.base_offset} is a Pulsar producer's: {error}") from error
        at += header.size_bytes
    return b"".join(batches)
