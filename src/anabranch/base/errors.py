"""Errors, named by what the caller should do.

Raised where the fact is known, mapped to a protocol's own code once, at the edge
(`server/kafka/errors.py`).  A message is written for the person who will read it.

    AnabranchError
      Invalid          the request is wrong; sending it again will not help
      NotFound         what it names is not there
      Exists           what it would make is there already
      Conflict         somebody else changed it first; read again, then retry
      NotOwner         another node serves this; look it up again
      Fenced           the caller has been replaced and must stop
      Corrupt          bytes are not what they claim to be
      Unavailable      it would work later; retry with backoff
"""


class AnabranchError(Exception):
    """Base of everything raised on purpose."""


class Invalid(AnabranchError): ...


class InvalidTopicName(Invalid): ...


class InvalidNamespace(Invalid):
    """A tenant or namespace that cannot be called so."""


class InvalidConfig(Invalid): ...


class InvalidPartitions(Invalid):
    """A number of partitions that a topic cannot have or be brought to."""


class InvalidReplicationFactor(Invalid):
    """Not positive, or more than there are brokers."""


class InvalidReplicaAssignment(Invalid):
    """Replicas chosen by hand that cannot hold their partitions."""


class NoReassignmentInProgress(Invalid): ...


class TopicDeletionDisabled(Invalid): ...


class NotEmpty(Invalid):
    """It cannot go while something is in it."""


class PolicyViolation(Invalid):
    """Legal in itself, but beyond what this cluster allows."""


class InvalidRecord(Invalid):
    """A record breaks a rule of its topic (no key on a compacted topic, a timestamp out of range)."""


class InvalidTimestamp(InvalidRecord): ...


class TooLarge(Invalid):
    """A batch or request is beyond a configured limit."""


class TelemetryTooLarge(TooLarge): ...


class RecordListTooLarge(TooLarge):
    """A batch that no segment of its log could hold."""


class UnsupportedForFormat(Invalid):
    """Old message formats (magic 0 and 1) and unknown codecs."""


class UnsupportedCompression(UnsupportedForFormat):
    """A codec that does not exist, or that the request's version is too old for."""


class OffsetOutOfRange(Invalid): ...


class OutOfOrderSequence(Invalid): ...


class IneligibleReplica(Invalid):
    """A replica that is said to be in sync, and whose broker is gone, stops, or has restarted since."""


class InvalidTransactionState(Invalid):
    """The transaction is not in a state that allows this."""


class InvalidRecordState(Invalid):
    """Of a share group: the record is not acquired, or by somebody else."""


class InvalidShareSessionEpoch(Invalid): ...


class NoShareState(Invalid):
    """Nothing is kept of the share partition: its group has not been given it, or it was deleted since."""


class NotFound(AnabranchError): ...


class UnknownTopic(NotFound): ...


class UnknownTopicId(NotFound): ...


class UnknownBroker(NotFound):
    """No broker of that id is registered."""


class UnknownTenant(NotFound): ...


class UnknownNamespace(NotFound): ...


class UnknownSubscription(NotFound):
    """Of a client's metrics: it was told another one since."""


class FetchSessionNotFound(NotFound): ...


class ShareSessionNotFound(NotFound): ...


class InvalidFetchSessionEpoch(Invalid): ...


class FetchSessionTopicIdError(Invalid): ...


class Exists(AnabranchError): ...


class Conflict(AnabranchError): ...


class ElectionNotNeeded(Conflict):
    """The partition has the leader that was asked for, or one at all."""


class NotOwner(AnabranchError):
    """Another broker serves it; `leader` does, elected in `epoch`, where that is known."""

    def __init__(self, message: str, leader: int = -1, epoch: int = -1) -> None:
        super().__init__(message)
        self.leader = leader
        self.epoch = epoch


class NotCoordinator(NotOwner):
    """The group or transaction belongs to another broker's coordinator; find it again."""


class NotController(AnabranchError):
    """Another broker is the controller, or there is none; ask the one that the metadata names."""


class Fenced(AnabranchError): ...


class InvalidProducerEpoch(Fenced):
    """A newer instance of the producer has written since."""


class TransactionCoordinatorFenced(Fenced): ...


class FencedLeaderEpoch(Fenced):
    """The client knows an older leader than this one."""


class StaleBrokerEpoch(Fenced):
    """The broker is not registered, or has registered again since."""


class FencedStateEpoch(Fenced):
    """The state of the share partition was set from outside since it was read."""


class Corrupt(AnabranchError): ...


class Unavailable(AnabranchError): ...


class UnknownLeaderEpoch(Unavailable):
    """The client knows a newer leader than this replica does."""


class Throttled(Unavailable):
    """Too early or too much; the limit is the caller's own."""


class ShareSessionLimitReached(Unavailable):
    """The broker keeps as many sessions of share consumers as it may."""


class CoordinatorLoading(Unavailable):
    """The coordinator is reading its state back; ask again shortly."""


class CoordinatorUnreadable(CoordinatorLoading):
    """Reading it back has failed, and will be tried again; ask again later."""


class CoordinatorNotAvailable(Unavailable):
    """There is no coordinator yet; ask again shortly."""


class NotEnoughReplicas(Unavailable):
    """Fewer replicas are in sync than `min.insync.replicas`: the records were not stored."""


class OffsetNotAvailable(Unavailable):
    """The leader is new and does not know yet how far its records are safe."""


class DiskFull(Unavailable): ...


class DiskFailed(Unavailable):
    """The disk did not take what it was given; what was written may not be there."""


class EligibleLeadersNotAvailable(Unavailable):
    """No replica that could lead the partition is in sync."""


class PreferredLeaderNotAvailable(Unavailable):
    """The first replica is away or not in sync."""


class Refused(Unavailable):
    """Nobody listens there: the process is dead, not slow."""


class TimedOut(Unavailable): ...


class SessionExpired(Unavailable):
    """The session with the metadata store is over, and what it held may be others' by now."""
