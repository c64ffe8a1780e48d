"""Kafka's error codes as our errors, seen from a client: what to do about an answer.

    Unavailable   ask again, after looking up who serves it
    NotFound      the topic or partition is not there
    Fenced        another producer of the same name has taken over
    Invalid       asking again will not help

An error carries Kafka's name for it and what it was about.
"""

from anabranch.base.errors import (
    AnabranchError,
    Fenced,
    Invalid,
    OffsetOutOfRange,
    Unavailable,
    UnknownTopic,
)
from anabranch.wire.kafka.schema import ErrorCode

_RETRIED = {
    ErrorCode.unknown_server_error,
    ErrorCode.leader_not_available,
    ErrorCode.not_leader_or_follower,
    ErrorCode.request_timed_out,
    ErrorCode.broker_not_available,
    ErrorCode.replica_not_available,
    ErrorCode.network_exception,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
    ErrorCode.not_enough_replicas,
    ErrorCode.not_enough_replicas_after_append,
    ErrorCode.concurrent_transactions,
    ErrorCode.kafka_storage_error,
    ErrorCode.fenced_leader_epoch,
    ErrorCode.unknown_leader_epoch,
    ErrorCode.unstable_offset_commit,
    ErrorCode.throttling_quota_exceeded,
    ErrorCode.offset_not_available,
}
_KINDS: dict[ErrorCode, type[AnabranchError]] = {
    **dict.fromkeys(_RETRIED, Unavailable),
    ErrorCode.offset_out_of_range: OffsetOutOfRange,
    ErrorCode.unknown_topic_or_partition: UnknownTopic,
    ErrorCode.producer_fenced: Fenced,
    ErrorCode.invalid_producer_epoch: Fenced,
    ErrorCode.transaction_coordinator_fenced: Fenced,
    ErrorCode.invalid_producer_id_mapping: Fenced,
}


def error_name(code: int) -> str:
    """`UNKNOWN_TOPIC_OR_PARTITION` for 3."""
    try:
        return ErrorCode(code).name.upper()
    except ValueError:
        return f"error {code}"


def check(code: int, what: str) -> None:
    """The error that `code` stands for, unless it stands for none."""
    if code:
        kind = _KINDS.get(ErrorCode(code), Invalid) if code in _KNOWN else Invalid
        raise kind(f"{what}: {error_name(code)}")


_KNOWN = {int(code) for code in ErrorCode}
