"""Error codes of answers as errors of ours: what to do about an answer.

    Unavailable   ask again, after looking up who serves it
    UnknownTopic  the topic or partition is not there, as far as that broker knows
    Exists        it is there already
    Fenced        another producer of the same name has taken over
    Invalid       asking again will not help

An error carries Kafka's name for it and what it was about.
"""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from anabranch.base.errors import (
    AnabranchError,
    Exists,
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
    ErrorCode.not_controller,
    ErrorCode.not_enough_replicas,
    ErrorCode.not_enough_replicas_after_append,
    ErrorCode.concurrent_transactions,
    ErrorCode.kafka_storage_error,
    ErrorCode.fenced_leader_epoch,
    ErrorCode.unknown_leader_epoch,
    ErrorCode.unknown_topic_id,
    ErrorCode.inconsistent_topic_id,
    ErrorCode.unstable_offset_commit,
    ErrorCode.throttling_quota_exceeded,
    ErrorCode.offset_not_available,
}
_KINDS: dict[int, type[AnabranchError]] = {
    **dict.fromkeys(map(int, _RETRIED), Unavailable),
    int(ErrorCode.offset_out_of_range): OffsetOutOfRange,
    int(ErrorCode.unknown_topic_or_partition): UnknownTopic,
    int(ErrorCode.topic_already_exists): Exists,
    int(ErrorCode.producer_fenced): Fenced,
    int(ErrorCode.invalid_producer_epoch): Fenced,
    int(ErrorCode.transaction_coordinator_fenced): Fenced,
    int(ErrorCode.invalid_producer_id_mapping): Fenced,
}
_STALE = {
    int(code)
    for code in (
        ErrorCode.leader_not_available,
        ErrorCode.not_leader_or_follower,
        ErrorCode.broker_not_available,
        ErrorCode.replica_not_available,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.not_controller,
        ErrorCode.kafka_storage_error,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
    )
}


def error_name(code: int) -> str:
    """`UNKNOWN_TOPIC_OR_PARTITION` for 3."""
    try:
        return ErrorCode(code).name.upper()
    except ValueError:
        return f"error {code}"


def kind_of(code: int) -> type[AnabranchError]:
    """The error that `code`, which is one, stands for."""
    return _KINDS.get(code, Invalid)


def is_retried(code: int) -> bool:
    """Whether time may change the answer."""
    return kind_of(code) in (Unavailable, UnknownTopic)


def is_stale(code: int) -> bool:
    """Whether the code says that somebody else may be the one to ask."""
    return code in _STALE


def check(code: int, what: str) -> None:
    """The error that `code` stands for, unless it stands for none."""
    if code:
        raise kind_of(code)(f"{what}: {error_name(code)}")


def check_told(code: int, message: str | None, what: str) -> None:
    """The same, in the broker's own words if it has any."""
    if code:
        name = error_name(code)
        raise kind_of(code)(f"{message.rstrip('.')} ({name})" if message else f"{what}: {name}")


def codes_of(answer: Any) -> Iterator[int]:
    """Every error code of an answer, the outermost first."""
    nested: list[SimpleNamespace] = []
    for name, value in vars(answer).items():
        if type(value) is int:
            if value and name.endswith("error_code"):
                yield value
        elif type(value) is list:
            if value and type(value[0]) is SimpleNamespace:
                nested += value
        elif type(value) is SimpleNamespace:
            nested.append(value)
    for item in nested:
        yield from codes_of(item)


def outer_code(answer: Any) -> Iterator[int]:
    """The error code of an answer as a whole, whatever it says of its items."""
    if code := getattr(answer, "error_code", 0):
        yield code
