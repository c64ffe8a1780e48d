"""Pulsar's error codes: the code of each of our errors, mapped here and nowhere else.

An error has the code of its class, or of the nearest class above it that has one.  What was not raised on
purpose is UnknownError, and its message is not sent to clients.

Clients act on some codes by themselves: ServiceNotReady and TooManyRequests are tried again, TopicNotFound
and the like are given to the application.  So what is worth another try is one of those two.
"""

from anabranch.base import errors
from anabranch.records.entries import ChecksumMismatch
from anabranch.schemas import errors as schemas
from anabranch.subscriptions import errors as subscriptions
from anabranch.subscriptions.durable import GroupInUse
from anabranch.subscriptions.pending_acks import TransactionConflict
from anabranch.topics import errors as topics
from anabranch.wire.pulsar.commands_pb2 import ServerError


class ConsumerNotFound(errors.NotFound):
    """The id is of no consumer that is open on this connection."""


class SubscriptionWithoutName(errors.Invalid): ...


class MetadataTooLarge(errors.Invalid):
    """What a client says of its producer or consumer is too much to keep."""


class NameTooLong(errors.Invalid): ...


class NoTransactions(errors.Invalid):
    """Transactions are switched off, as they are on Pulsar's brokers unless somebody switches them on."""

    def __init__(self) -> None:
        super().__init__("Transactions are not enabled.")


_CODES: dict[type[BaseException], ServerError] = {
    # The request is wrong.
    errors.Invalid: ServerError.NotAllowedError,
    errors.InvalidTopicName: ServerError.InvalidTopicName,
    errors.InvalidNamespace: ServerError.InvalidTopicName,
    errors.InvalidConfig: ServerError.MetadataError,
    errors.Corrupt: ServerError.MetadataError,
    ChecksumMismatch: ServerError.ChecksumError,
    # Pulsar has its complaints about names under this code, and clients know that they do.
    SubscriptionWithoutName: ServerError.ProducerBusy,
    MetadataTooLarge: ServerError.MetadataError,
    schemas.IncompatibleSchema: ServerError.IncompatibleSchema,
    schemas.InvalidSchema: ServerError.IncompatibleSchema,
    schemas.LibraryMissing: ServerError.IncompatibleSchema,
    topics.NotAllowed: ServerError.NotAllowedError,
    topics.NotEncrypted: ServerError.MetadataError,
    topics.TopicTerminated: ServerError.TopicTerminatedError,
    topics.InvalidTransactionStatus: ServerError.InvalidTxnStatus,
    subscriptions.ConsumerAssignError: ServerError.ConsumerAssignError,
    # What it names is not there, or is.
    errors.NotFound: ServerError.MetadataError,
    errors.UnknownTopic: ServerError.TopicNotFound,
    errors.UnknownTenant: ServerError.TopicNotFound,
    errors.UnknownNamespace: ServerError.TopicNotFound,
    errors.Exists: ServerError.NotAllowedError,
    topics.SubscriptionNotFound: ServerError.SubscriptionNotFound,
    ConsumerNotFound: ServerError.MetadataError,
    topics.TransactionNotFound: ServerError.TransactionNotFound,
    topics.TransactionCoordinatorNotFound: ServerError.TransactionCoordinatorNotFound,
    # Somebody else's turn.
    errors.NotOwner: ServerError.ServiceNotReady,
    errors.NotController: ServerError.ServiceNotReady,
    errors.Fenced: ServerError.ProducerFenced,
    errors.FencedLeaderEpoch: ServerError.ServiceNotReady,
    topics.ProducerBusy: ServerError.ProducerBusy,
    topics.ProducerFenced: ServerError.ProducerFenced,
    topics.SubscriptionBusy: ServerError.MetadataError,  # who unsubscribes beside others hears that
    subscriptions.ConsumerBusy: ServerError.ConsumerBusy,
    subscriptions.SubscriptionTypeMismatch: ServerError.ConsumerBusy,
    GroupInUse: ServerError.ConsumerBusy,
    TransactionConflict: ServerError.TransactionConflict,
    # Later.
    errors.Conflict: ServerError.ServiceNotReady,
    errors.Unavailable: ServerError.ServiceNotReady,
    errors.Throttled: ServerError.TooManyRequests,
    topics.BacklogHold: ServerError.ProducerBlockedQuotaExceededError,
    topics.BacklogExceeded: ServerError.ProducerBlockedQuotaExceededException,
    errors.DiskFull: ServerError.PersistenceError,
    errors.DiskFailed: ServerError.PersistenceError,
    OSError: ServerError.PersistenceError,  # what the disk said, as it said it
}


def code_of(error: BaseException) -> ServerError:
    for kind in type(error).__mro__:
        if kind in _CODES:
            return _CODES[kind]
    return ServerError.UnknownError


def message_of(error: BaseException) -> str:
    """What a client may read about it."""
    return str(error) if isinstance(error, errors.AnabranchError) else "the broker failed, see its log"
