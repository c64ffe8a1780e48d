"""Requests: an API, what it is asked, and how its answers are judged.

    Request(METADATA, {"topics": None}, codes=outer_code)

Values are what `wire.kafka.encoder` takes: a mapping by the schema's names.  A request goes out at the newest
version that both sides know, unless `newest` bounds it; fields that this version lacks are left out.  So a
bound stands where a newer version means something else, not where it only has more.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from anabranch.client.answers import codes_of

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 8, 9, 10
DESCRIBE_GROUPS, LIST_GROUPS, API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS = 15, 16, 18, 19, 20
INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN = 22, 24, 25
END_TXN, WRITE_TXN_MARKERS, TXN_OFFSET_COMMIT = 26, 27, 28
DESCRIBE_CONFIGS, CREATE_PARTITIONS, DELETE_GROUPS, INCREMENTAL_ALTER_CONFIGS = 32, 37, 42, 44
DELETE_RECORDS, ALTER_PARTITION, ENVELOPE = 21, 56, 58
LIST_PARTITION_REASSIGNMENTS, DESCRIBE_CLUSTER = 46, 60
DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 61, 65, 66
CONSUMER_GROUP_DESCRIBE = 69
INITIALIZE_SHARE_GROUP_STATE, READ_SHARE_GROUP_STATE, WRITE_SHARE_GROUP_STATE = 83, 84, 85
DELETE_SHARE_GROUP_STATE, READ_SHARE_GROUP_STATE_SUMMARY = 86, 87
SHARE_GROUP_DESCRIBE, DESCRIBE_SHARE_GROUP_OFFSETS, ALTER_SHARE_GROUP_OFFSETS = 77, 90, 91

_NEWEST = {
    PRODUCE: 11,  # 12 adds partitions to transactions by itself, 13 names topics by id
    FETCH: 12,  # 13 names topics by id
    METADATA: 12,
    OFFSET_COMMIT: 9,  # 10 names topics by id
    OFFSET_FETCH: 7,  # 8 asks for several groups
    ADD_PARTITIONS_TO_TXN: 3,  # 4 is for brokers
    END_TXN: 4,  # 5 bumps epochs: a transaction could not be ended by who did not begin it
    TXN_OFFSET_COMMIT: 4,  # 5 adds the group to the transaction by itself
}
_LARGEST_ANSWER_BYTES = 256 << 20
_LARGEST_FETCH_BYTES = 1 << 30  # a batch that is larger than what was asked for comes all the same

Codes = Callable[[Any], Iterator[int]]


class Request(NamedTuple):
    api_key: int
    values: Mapping[str, Any]
    codes: Codes = codes_of
    """The error codes of an answer that are worth asking again for."""
    newest: int | None = None
    tags: Mapping[int, bytes] | None = None
    """Tagged fields of our own, which go along if the version has any."""

    @property
    def newest_version(self) -> int | None:
        return _NEWEST.get(self.api_key) if self.newest is None else self.newest

    @property
    def is_answered(self) -> bool:
        return self.api_key != PRODUCE or bool(self.values["acks"])

    @property
    def largest_answer_bytes(self) -> int:
        return _LARGEST_FETCH_BYTES if self.api_key == FETCH else _LARGEST_ANSWER_BYTES
