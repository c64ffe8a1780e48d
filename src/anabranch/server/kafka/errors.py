"""Kafka's error codes: the code of each of our errors, mapped here and nowhere else.

An error has the code of its class, or of the nearest class above it that has one, so that a new kind
of `Invalid` is INVALID_REQUEST until somebody gives it a better one.  What was not raised on purpose
is UNKNOWN_SERVER_ERROR, and its message is not sent to clients.
"""

from anabranch.base import errors
from anabranch.wire.kafka.schema import ErrorCode

_CODES: dict[type[BaseException], ErrorCode] = {
    # The request is wrong.
    errors.Invalid: ErrorCode.invalid_request,
    errors.InvalidTopicName: ErrorCode.invalid_topic_exception,
    errors.InvalidConfig: ErrorCode.invalid_config,
    errors.InvalidPartitions: ErrorCode.invalid_partitions,
    errors.InvalidReplicationFactor: ErrorCode.invalid_replication_factor,
    errors.InvalidReplicaAssignment: ErrorCode.invalid_replica_assignment,
    errors.ElectionNotNeeded: ErrorCode.election_not_needed,
    errors.NoReassignmentInProgress: ErrorCode.no_reassignment_in_progress,
    errors.TopicDeletionDisabled: ErrorCode.topic_deletion_disabled,
    errors.PolicyViolation: ErrorCode.policy_violation,
    errors.InvalidRecord: ErrorCode.invalid_record,
    errors.InvalidTimestamp: ErrorCode.invalid_timestamp,
    errors.TooLarge: ErrorCode.message_too_large,
    errors.RecordListTooLarge: ErrorCode.record_list_too_large,
    errors.TelemetryTooLarge: ErrorCode.telemetry_too_large,
    errors.UnsupportedForFormat: ErrorCode.unsupported_for_message_format,
    errors.UnsupportedCompression: ErrorCode.unsupported_compression_type,
    errors.OffsetOutOfRange: ErrorCode.offset_out_of_range,
    errors.InvalidRecordState: ErrorCode.invalid_record_state,
    errors.InvalidShareSessionEpoch: ErrorCode.invalid_share_session_epoch,
    errors.OutOfOrderSequence: ErrorCode.out_of_order_sequence_number,
    errors.InvalidTransactionState: ErrorCode.invalid_txn_state,
    # What it names is not there, or is.
    errors.NotFound: ErrorCode.resource_not_found,
    errors.UnknownTopic: ErrorCode.unknown_topic_or_partition,
    errors.UnknownTopicId: ErrorCode.unknown_topic_id,
    errors.UnknownBroker: ErrorCode.broker_id_not_registered,
    errors.UnknownNamespace: ErrorCode.invalid_topic_exception,  # of a topic that is to be made
    errors.UnknownSubscription: ErrorCode.unknown_subscription_id,
    errors.ShareSessionNotFound: ErrorCode.share_session_not_found,
    errors.FetchSessionNotFound: ErrorCode.fetch_session_id_not_found,
    errors.InvalidFetchSessionEpoch: ErrorCode.invalid_fetch_session_epoch,
    errors.FetchSessionTopicIdError: ErrorCode.fetch_session_topic_id_error,
    errors.Exists: ErrorCode.topic_already_exists,
    # Somebody else's turn.
    errors.NotOwner: ErrorCode.not_leader_or_follower,
    errors.NotCoordinator: ErrorCode.not_coordinator,
    errors.NotController: ErrorCode.not_controller,
    errors.Fenced: ErrorCode.producer_fenced,
    errors.InvalidProducerEpoch: ErrorCode.invalid_producer_epoch,
    errors.TransactionCoordinatorFenced: ErrorCode.transaction_coordinator_fenced,
    errors.FencedLeaderEpoch: ErrorCode.fenced_leader_epoch,
    errors.FencedStateEpoch: ErrorCode.fenced_state_epoch,
    errors.UnknownLeaderEpoch: ErrorCode.unknown_leader_epoch,
    # It would work later.  Of Kafka's codes this is the one that every client retries.
    errors.Conflict: ErrorCode.request_timed_out,
    errors.Unavailable: ErrorCode.request_timed_out,
    errors.EligibleLeadersNotAvailable: ErrorCode.eligible_leaders_not_available,
    errors.PreferredLeaderNotAvailable: ErrorCode.preferred_leader_not_available,
    errors.TimedOut: ErrorCode.request_timed_out,
    errors.Throttled: ErrorCode.throttling_quota_exceeded,
    errors.ShareSessionLimitReached: ErrorCode.share_session_limit_reached,
    errors.CoordinatorLoading: ErrorCode.coordinator_load_in_progress,
    errors.CoordinatorUnreadable: ErrorCode.coordinator_not_available,
    errors.CoordinatorNotAvailable: ErrorCode.coordinator_not_available,
    errors.NotEnoughReplicas: ErrorCode.not_enough_replicas,
    errors.IneligibleReplica: ErrorCode.ineligible_replica,
    errors.StaleBrokerEpoch: ErrorCode.stale_broker_epoch,
    errors.OffsetNotAvailable: ErrorCode.offset_not_available,
    errors.DiskFull: ErrorCode.kafka_storage_error,
    errors.DiskFailed: ErrorCode.kafka_storage_error,
    OSError: ErrorCode.kafka_storage_error,  # what the disk said, as it said it
    errors.Corrupt: ErrorCode.corrupt_message,
}


def code_of(error: BaseException) -> ErrorCode:
    for kind in type(error).__mro__:
        if kind in _CODES:
            return _CODES[kind]
    return ErrorCode.unknown_server_error


def message_of(error: BaseException) -> str | None:
    """What a client may read about it."""
    return str(error) if isinstance(error, errors.AnabranchError) else None
