"""What Kafka's consumers can be given of a partition that Pulsar producers write to as well.

    Kafka │ Kafka │ Pulsar │ Kafka
    └── these ────┘ └ refused: a consumer that comes here is told so, and may seek past it

To Kafka's clients an entry of Pulsar's is a batch whose records are garbage: some would stall on it without a
word, others might even find records in it.  So a read ends before the first one, and one that begins there
is an error that clients report, with the offset.
"""

from anabranch.base.errors import Corrupt
from anabranch.base.network import FileRange
from anabranch.records.batch import HEADER_SIZE, PULSAR_ENTRY, read_header

_MOST_BATCHES = 256  # that are looked at; the reader comes back for more


class NotForKafka(Corrupt):
    """A Pulsar producer wrote it, and it is not translated."""


def kafka_part(part: FileRange) -> FileRange:
    """The batches of `part` before the first that a Pulsar producer wrote.  NotForKafka if there are none."""
    position, end = part.position, part.position + part.size
    for _ in range(_MOST_BATCHES):
        if position >= end:
            return part
        header = read_header(part.file.pread(HEADER_SIZE, position))
        if header.attributes & PULSAR_ENTRY:
            break
        position += header.size_bytes
    if position == part.position:
        raise NotForKafka(
            f"offset {header.base_offset} is a Pulsar producer's, which Kafka consumers cannot read yet"
        )
    return FileRange(part.file, part.position, position - part.position)
