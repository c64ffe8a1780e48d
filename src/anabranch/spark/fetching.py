"""Ranges of partitions' offsets, fetched and decoded: an iterator of Arrow record batches.

    |----- range -----|
    |== fetched ==|== on its way ==|        the broker answers the next request while we decode this one

The broker gives whole batches, so the first may begin before the range and the last may end behind it: rows
outside are cut off.  Offsets have gaps (control batches, compaction, aborted transactions), so a range is at
its end when a batch reaches it, not when a number of rows has come.

What is gone (retention or a deletion overtook the query) is an error that names the offsets, DataLost, or,
if the reader does not care (`fail_on_data_loss` off), skipped.
"""

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from anabranch.base.disk import Buffer
from anabranch.base.errors import OffsetOutOfRange, Unavailable, UnknownTopic
from anabranch.client.answers import check
from anabranch.client.cluster import EARLIEST, Cluster
from anabranch.client.destinations import Leader, TopicPartition
from anabranch.client.requests import FETCH, Request
from anabranch.client.visible import Aborted, visible_batches, whole_batches
from anabranch.spark.columns import to_arrow
from anabranch.spark.decode import Region, plain_parts, read_fields
from anabranch.spark.ranges import DataLost, Fetching, Range
from anabranch.wire.kafka.fetch import WISHES_TAG

if TYPE_CHECKING:
    from anabranch.spark.varints import Ints

_LONGEST_WAIT_MS = 500  # of the broker, for a byte


class _Fetched(NamedTuple):
    rows: pa.RecordBatch | None
    next_offset: int


def read_ranges(ranges: Iterable[Range], how: Fetching, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of `ranges`, one after the other, with the columns of `schema`."""
    with Cluster(how.settings) as cluster:
        for wanted in ranges:
            yield from _read_range(cluster, wanted, how, schema)


def _read_range(
    cluster: Cluster, wanted: Range, how: Fetching, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    position = wanted.start
    pace = cluster.pace()
    if how.described:
        how = how._replace(is_lone=len(cluster.partitions([wanted.partition.topic])) == 1)
    while position < wanted.end:
        try:
            for fetched in _fetched(cluster, wanted._replace(start=position), how, schema):
                if fetched.rows is not None and fetched.rows.num_rows:
                    yield fetched.rows
                if fetched.next_offset > position:
                    pace.progressed()
                position = fetched.next_offset
        except OffsetOutOfRange:
            position = _skip_lost(cluster, wanted._replace(start=position), how)
        except UnknownTopic as error:
            if how.fail_on_data_loss:
                raise DataLost(f"{wanted.partition} is not there any more: {error}. {_ADVICE}") from error
            return
        except Unavailable as error:
            try:
                cluster.pause(pace, error)
            except _Ended:
                if how.fail_on_data_loss:
                    raise
                return


class _Ended(DataLost, Unavailable):
    """The log ends before the range does.  A new leader may not know yet how far its log is committed."""


_ADVICE = 'Set the option failOnDataLoss to "false" to go on with what is there.'


def _skip_lost(cluster: Cluster, rest: Range, how: Fetching) -> int:
    """Where to go on when the broker has not the first offset of `rest`."""
    bounds = cluster.offsets_at({rest.partition: EARLIEST})
    earliest = bounds[rest.partition]
    if how.fail_on_data_loss:
        what = f"offsets {rest.start} to {min(earliest, rest.end) - 1} of {rest.partition} are gone"
        if earliest <= rest.start:
            what = f"{rest.partition} ends before offset {rest.start}: it was deleted and made anew, or cut"
        raise DataLost(f"{what}; the first that is there is {earliest}. {_ADVICE}")
    return earliest if earliest > rest.start else rest.end


def _fetched(cluster: Cluster, wanted: Range, how: Fetching, schema: pa.Schema) -> Iterator[_Fetched]:
    """What the leader gives, a request ahead of what is decoded."""
    leader = Leader(wanted.partition)
    pending = cluster.start(leader, _request(wanted.partition, wanted.start, how))
    position = wanted.start
    quiet_until = time.monotonic() + how.settings.timeout_s
    while True:
        answer = _answer(pending.take(how.settings.timeout_s), wanted.partition)
        buffer = answer.records or b""
        stored = list(whole_batches(buffer))
        if stored:
            position = max(position, stored[-1].header.last_offset + 1)
            quiet_until = time.monotonic() + how.settings.timeout_s
        elif time.monotonic() > quiet_until:
            limit = answer.last_stable_offset if how.committed else answer.high_watermark
            raise _Ended(f"{wanted.partition} ends at offset {limit}, before {wanted.end}. {_ADVICE}")
        if position < wanted.end:
            pending = cluster.start(leader, _request(wanted.partition, position, how))
        aborted = [Aborted(one.producer_id, one.first_offset) for one in answer.aborted_transactions or ()]
        visible = [
            one
            for one in visible_batches(buffer, stored, aborted if how.committed else ())
            if one.header.last_offset >= wanted.start and one.header.base_offset < wanted.end
        ]
        for part, regions in plain_parts(buffer, visible):
            if any(region.batch.header.count for region in regions):
                rows = _rows(part, regions, wanted, how, schema)
                yield _Fetched(rows, regions[-1].batch.header.last_offset + 1)
        yield _Fetched(None, position)
        if position >= wanted.end:
            return


def _rows(
    part: Buffer, regions: list[Region], wanted: Range, how: Fetching, schema: pa.Schema
) -> pa.RecordBatch:
    fields = read_fields(part, regions)
    inside = (fields.offsets >= wanted.start) & (fields.offsets < wanted.end)
    if how.only is not None:
        inside &= among(how.only, fields.offsets)
    return to_arrow(fields.only(inside), *wanted.partition, schema, how.typed, is_lone=how.is_lone)


def among(only: "Ints", offsets: "Ints") -> "np.typing.NDArray[np.bool_]":
    """Which of `offsets` are in `only`, which is in order and has some."""
    places = np.minimum(np.searchsorted(only, offsets), len(only) - 1)
    found: np.typing.NDArray[np.bool_] = only[places] == offsets
    return found


def _request(partition: TopicPartition, offset: int, how: Fetching) -> Request:
    one = {
        "partition": partition.partition,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": how.fetch_bytes,
    }
    values = {
        "replica_id": -1,
        "max_wait": min(_LONGEST_WAIT_MS, round(how.settings.timeout_s * 250)),
        "min_bytes": 1,
        "max_bytes": how.fetch_bytes,
        "isolation_level": int(how.committed),
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": partition.topic, "partitions": [one]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    return Request(FETCH, values, tags={WISHES_TAG: bytes((how.wishes,))} if how.wishes else None)


def _answer(answer: Any, partition: TopicPartition) -> Any:
    check(answer.error_code, f"fetching {partition}")
    (topic,) = answer.responses
    (one,) = topic.partitions
    check(one.error_code, f"fetching {partition}")
    return one
