"""Compaction filter: which records of a batch stay.

    record   without a key                     goes
             not the last of its key           goes
             the last, with a value            stays
             the last, without (a tombstone)   stays until the batch's delete horizon has passed
    batch    of an aborted transaction         all its records go
             marker of a transaction           goes when nothing else of the transaction is left and its
                                               delete horizon has passed
             nothing left of it                goes, except the last one of a known producer, whose sequence
                                               number counts, and the last one of what is cleaned

The delete horizon (KIP-534) is set when a batch with a tombstone, or a marker of an empty transaction,
is first kept: `delete.retention.ms` from then, in the batch's header in place of the base timestamp.
A reader that begins at offset 0 and is done before that sees every deletion.

Beyond `end` nothing is known of the keys and every record stays.  A batch that cannot be read stays as
it is.  One whose checksum is wrong is never rewritten, which would make it look right.

The messages of a Pulsar entry are records like others (`compaction_entries`); an entry that must stay though
nothing is left of it becomes an empty batch of Kafka's.

In a compacted view (`compaction_view`) deletions go at once, and records without a key may stay.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from anabranch.base.disk import Buffer
from anabranch.base.errors import Corrupt, TooLarge, UnsupportedForFormat
from anabranch.log.compaction_entries import Member, OpenEntry
from anabranch.log.compaction_fates import Fates
from anabranch.log.compaction_keys import LastOffsets
from anabranch.records.batch import HEADER_SIZE, PULSAR_ENTRY, BatchHeader, crc_of
from anabranch.records.builder import empty_batch, retain
from anabranch.records.control import Marker, read_marker
from anabranch.records.record import Span, iter_records, iter_spans, payload_of

UNREADABLE = (Corrupt, TooLarge, UnsupportedForFormat)
"""What reading a batch may raise; it stays as it is then."""

Record = TypeVar("Record", Span, Member)

_LATEST_HORIZON = (1 << 62) - 1  # where base timestamps end


class LastWrite(NamedTuple):
    """What a partition knows of a producer: its epoch, and where its last batch ends, -1 if it has none."""

    offset: int
    epoch: int


class Rules(NamedTuple):
    now_ms: int
    delete_retention_ms: int
    end: int
    """The keys below it are known."""
    round_end: int
    """The first offset that is not cleaned; the batch before it stays in any case."""
    producers: Mapping[int, LastWrite]
    unpacked_limit_bytes: int
    drops_deletions: bool = False
    keeps_keyless: bool = False


class BatchFilter:
    __slots__ = ("_fates", "_keys", "_rules", "keyless", "removed", "unreadable")

    def __init__(self, keys: LastOffsets, fates: Fates, rules: Rules) -> None:
        self._keys = keys
        self._fates = fates
        self._rules = rules
        self.keyless = 0
        self.removed = 0
        self.unreadable = 0

    def rest_of(self, header: BatchHeader, batch: Buffer) -> Buffer | None:
        """What is left of `batch`: itself, a smaller one, or None."""
        try:
            if header.is_control:
                check(header, batch)
                return self._rest_of_marker(header, batch)
            aborted = self._fates.is_aborted(header)
            check(header, batch)
            return self._emptied(header, batch) if aborted else self._rest_of_data(header, batch)
        except UNREADABLE:
            self.unreadable += 1
            return batch

    def _rest_of_marker(self, header: BatchHeader, batch: Buffer) -> Buffer | None:
        spent = self._fates.is_spent(header, marker_of(header, batch))
        if not spent:
            return batch
        horizon = header.delete_horizon_ms
        if header.count and horizon is None:
            payload = memoryview(batch)[HEADER_SIZE:]
            return retain(header, payload, list(iter_spans(header, payload)), self._new_horizon())
        if header.count and horizon is not None and horizon > self._rules.now_ms:
            return batch
        return self._emptied(header, batch)

    def _rest_of_data(self, header: BatchHeader, batch: Buffer) -> Buffer | None:
        rules = self._rules
        if header.base_offset >= rules.end:
            return batch
        if header.attributes & PULSAR_ENTRY:
            entry = OpenEntry(header, batch, rules.unpacked_limit_bytes)
            return self._rest_of_records(header, batch, entry.members, entry.retain)
        payload = payload_of(header, batch, rules.unpacked_limit_bytes)
        spans = list(iter_spans(header, payload))
        return self._rest_of_records(
            header, batch, spans, lambda kept, horizon_ms: retain(header, payload, kept, horizon_ms)
        )

    def _rest_of_records(
        self,
        header: BatchHeader,
        batch: Buffer,
        records: Sequence[Record],
        retained: Callable[[list[Record], int | None], Buffer],
    ) -> Buffer | None:
        rules, horizon = self._rules, header.delete_horizon_ms
        tombstones_stay = not rules.drops_deletions and (horizon is None or rules.now_ms < horizon)
        kept = [record for record in records if self._stays(record, tombstones_stay)]
        self.removed += len(records) - len(kept)
        if not kept:
            return self._emptied(header, batch)
        # A tombstone beyond `end` has not done its work yet, so a batch that reaches there waits.
        needs_horizon = (
            horizon is None
            and not rules.drops_deletions
            and header.last_offset < rules.end
            and not all(record.has_value for record in kept)
        )
        if needs_horizon:
            return retained(kept, self._new_horizon())
        return batch if len(kept) == len(records) else retained(kept, None)

    def _stays(self, record: Span | Member, tombstones_stay: bool) -> bool:
        if record.offset >= self._rules.end:
            return True
        if record.key is None:
            self.keyless += not self._rules.keeps_keyless
            return self._rules.keeps_keyless
        return record.offset >= self._keys.get(record.key) and (record.has_value or tombstones_stay)

    def _emptied(self, header: BatchHeader, batch: Buffer) -> Buffer | None:
        """`batch` without records if it has to be there all the same, else nothing."""
        if not self._must_stay(header):
            return None
        if not header.count:
            return batch
        return empty_batch(header._replace(attributes=header.attributes & ~PULSAR_ENTRY))

    def _must_stay(self, header: BatchHeader) -> bool:
        if header.last_offset + 1 == self._rules.round_end:
            return True
        last = self._rules.producers.get(header.producer_id)
        if last is None:
            return False
        if last.offset >= 0:
            return header.last_offset == last.offset
        return header.is_control and header.producer_epoch == last.epoch

    def _new_horizon(self) -> int:
        return min(self._rules.now_ms + self._rules.delete_retention_ms, _LATEST_HORIZON)


def check(header: BatchHeader, batch: Buffer) -> None:
    """Corrupt if `batch` is not what was written."""
    if crc_of(batch) != header.crc:
        raise Corrupt(f"the batch at offset {header.base_offset} does not match its checksum")


def marker_of(header: BatchHeader, batch: Buffer) -> Marker | None:
    """The marker in a control batch, None if there is none that we know."""
    record = next(iter_records(header, memoryview(batch)[HEADER_SIZE:]), None)
    return None if record is None else read_marker(record)
