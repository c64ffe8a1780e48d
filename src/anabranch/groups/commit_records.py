"""What a commit writes, a record an offset, and what it is answered.

A client may commit hundreds of offsets of a topic at once, as a rule with nothing to say about them.  Those
are written all at once, and what they share is worked out once:

    partitions   0   1   2 ..  ──> keys     that differ in the partition alone
    offsets     71  68  93 ..  ─┬> values   that differ in these two alone
    epochs       4   4   4 ..  ─┘

Others are written one by one.  Metadata that is too long is refused, the rest of the commit is not.
"""

from collections.abc import Sequence
from functools import partial
from itertools import count, repeat
from typing import NamedTuple

from anabranch.groups.committing import Commit, TopicCommit
from anabranch.groups.effects import Answer, Effects, KeyValue
from anabranch.groups.fields import INT32
from anabranch.groups.pending_offsets import Numbered
from anabranch.groups.records import (
    offset_key_prefix,
    write_bare_offsets,
    write_offset_fields,
    write_offset_keys,
)
from anabranch.wire.kafka.schema import ErrorCode

_MANY = 4  # fewer are less work one by one
_key_value = partial(tuple.__new__, KeyValue)  # `_make` without its frame
_numbered = partial(tuple.__new__, Numbered)


class Terms(NamedTuple):
    """What holds for all of a commit."""

    first: int
    """The number of its first record in the order of the log."""
    now_ms: int
    expires_ms: int
    """-1 if its offsets have no retention of their own."""
    metadata_max: int


Written = tuple[str, Sequence[int], Sequence[Numbered]]
"""A topic, partitions of it, and what is to be kept of their offsets, in the order of the records."""


def write_commit(request: Commit, terms: Terms, effects: Effects) -> tuple[Answer, list[Written]]:
    """The answer, and what is written."""
    assert not effects.records, "the numbers of records are counted from the first one"
    answers = []
    written = []
    for topic in request.topics:
        offsets = topic.offsets
        if len(offsets.partitions) < _MANY or terms.expires_ms >= 0 or any(offsets.metadata):
            codes, kept = _one_by_one(request.group_id, topic, terms, effects)
        else:
            codes, kept = _at_once(request.group_id, topic, terms, effects)
        answers.append({"name": topic.name, "topic_id": topic.topic_id, "partitions": codes})
        if kept[1]:
            written.append(kept)
    return {"topics": answers}, written


def _at_once(
    group_id: str, topic: TopicCommit, terms: Terms, effects: Effects
) -> tuple[list[Answer], Written]:
    """Of offsets with no metadata, nor a retention."""
    name, topic_id, (partitions, offsets, leader_epochs, _) = topic
    numbers = count(terms.first + len(effects.records))
    shared = repeat(""), repeat(terms.now_ms), repeat(-1), repeat(topic_id)
    kept = list(map(_numbered, zip(offsets, leader_epochs, *shared, numbers, strict=False)))
    keys = write_offset_keys(group_id, name, partitions)
    values = write_bare_offsets(offsets, leader_epochs, terms.now_ms, topic_id)
    effects.records += map(_key_value, zip(keys, values, strict=True))
    codes = [{"partition_index": index, "error_code": ErrorCode.none} for index in partitions]
    return codes, (name, partitions, kept)


def _one_by_one(
    group_id: str, topic: TopicCommit, terms: Terms, effects: Effects
) -> tuple[list[Answer], Written]:
    first, now_ms, expires_ms, metadata_max = terms
    name, topic_id, offsets = topic
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
            value = (offset, leader_epoch, metadata, now_ms, expires_ms, topic_id)
            partitions.append(index)
            kept.append(_numbered((*value, first + len(records))))
            records.append(_key_value((prefix + INT32.pack(index), write_offset_fields(*value))))
        codes.append({"partition_index": index, "error_code": code})
    return codes, (name, partitions, kept)


def _java_length(text: str) -> int:
    """The length as Java counts it, which is what `offset.metadata.max.bytes` limits."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
