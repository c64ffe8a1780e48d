"""Offset commit records: one per partition, and the answer to each.

A client may commit hundreds of offsets of a topic at once, usually without metadata.  These are written all
at once, and what they share is worked out once:

    partitions   0   1   2 ..  ──> keys     that differ in the partition alone
    offsets     71  68  93 ..  ─┬> values   that differ in these two alone
    epochs       4   4   4 ..  ─┘

Others are written one by one, and so are a few.  Too long metadata is refused, the rest of a commit is not.
"""

from collections.abc import Sequence
from functools import partial
from itertools import count, repeat

from anabranch.groups.committing import Commit, TopicCommit
from anabranch.groups.effects import Answer, Effects, Encoded, KeyValue
from anabranch.groups.fields import INT32
from anabranch.groups.pending_offsets import Numbered
from anabranch.groups.records import (
    alike_offset_keys,
    alike_offsets,
    offset_key_prefix,
    write_offset_fields,
)
from anabranch.records.builder import encode_alike
from anabranch.wire.kafka.schema import ErrorCode

_MANY = 4  # a topic; fewer are less work one by one
_key_value = partial(tuple.__new__, KeyValue)  # `_make` without its frame
_numbered = partial(tuple.__new__, Numbered)

Terms = tuple[int, int, int, int]
"""What holds for all of a commit: the number of its first record in the order of the log, the time, when its
offsets expire (-1 if they have no retention of their own), how long their metadata may be."""

Written = tuple[str, Sequence[int], Sequence[Numbered]]
"""A topic, partitions of it, and what is to be kept of their offsets, in the order of the records."""

Outcome = tuple[Answer, list[Written], Encoded | None]
"""The answer, what is written, and its records unless they are in the effects."""


def write_commit(request: Commit, terms: Terms, effects: Effects) -> Outcome:
    """Records that are not given back are put into `effects`, which has no others."""
    assert not effects.records, "the numbers of records are counted from the first one"
    topics = request.topics
    size = 0
    for topic in topics:
        size += len(topic.offsets.partitions)
    if size >= _MANY * len(topics) > 0 and terms[2] < 0 and _are_bare(topics):
        return _at_once(request, terms)
    answers = []
    written = []
    for topic in topics:
        codes, kept = _one_by_one(request.group_id, topic, terms, effects)
        answers.append({"name": topic.name, "topic_id": topic.topic_id, "partitions": codes})
        if kept[1]:
            written.append(kept)
    return {"topics": answers}, written, None


def _are_bare(topics: Sequence[TopicCommit]) -> bool:
    """Nothing is said about any offset."""
    return not any(any(topic.offsets.metadata) for topic in topics)


def _at_once(request: Commit, terms: Terms) -> Outcome:
    """Of offsets with no metadata, nor a retention."""
    first_number, now_ms, _, _ = terms
    answers = []
    written: list[Written] = []
    records: list[bytes] = []
    for name, topic_id, (partitions, offsets, leader_epochs, _) in request.topics:
        first = len(records)
        shared = repeat(""), repeat(now_ms), repeat(-1), repeat(topic_id)
        numbers = count(first_number + first)
        kept = list(map(_numbered, zip(offsets, leader_epochs, *shared, numbers, strict=False)))
        if kept:
            written.append((name, partitions, kept))
        keys = alike_offset_keys(request.group_id, name, partitions)
        records += encode_alike(first, keys, alike_offsets(offsets, leader_epochs, now_ms, topic_id))
        codes = [{"partition_index": index, "error_code": ErrorCode.none} for index in partitions]
        answers.append({"name": name, "topic_id": topic_id, "partitions": codes})
    return {"topics": answers}, written, Encoded(len(records), records)


def _one_by_one(
    group_id: str, topic: TopicCommit, terms: Terms, effects: Effects
) -> tuple[list[Answer], Written]:
    first, now_ms, expires_ms, metadata_max = terms
    name, topic_id, offsets = topic
    has_retention = expires_ms >= 0  # and so a record that has no field for the epoch and the id
    kept_id = None if has_retention else topic_id
    prefix = offset_key_prefix(group_id, name)
    records = effects.records
    codes = []
    partitions = []
    kept = []
    for index, offset, leader_epoch, said in zip(*offsets, strict=True):
        metadata = said or ""
        code = ErrorCode.none
        if metadata and _java_length(metadata) > metadata_max:
            code = ErrorCode.offset_metadata_too_large
        else:
            epoch = -1 if has_retention else leader_epoch
            value = (offset, epoch, metadata, now_ms, expires_ms, kept_id)
            partitions.append(index)
            kept.append(_numbered((*value, first + len(records))))
            records.append(_key_value((prefix + INT32.pack(index), write_offset_fields(*value))))
        codes.append({"partition_index": index, "error_code": code})
    return codes, (name, partitions, kept)


def _java_length(text: str) -> int:
    """The length as Java counts it, which is what `offset.metadata.max.bytes` limits."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
