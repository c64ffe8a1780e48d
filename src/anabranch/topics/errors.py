"""Topic errors, named by Pulsar's own reason; `server/pulsar/errors.py` has the codes.

The base class says what the client should do about it, as everywhere (`base/errors.py`).
"""

from anabranch.base.errors import Conflict, Fenced, Invalid, NotFound, Unavailable


class ProducerBusy(Conflict):
    """The topic has no place for this producer now: a name in use, an exclusive one, too many."""


class ProducerNameInUse(ProducerBusy):
    """Another producer of that name is connected."""


class ProducerFenced(Fenced):
    """Another producer has, or had meanwhile, the topic to itself; this one is to give up."""


class ProducerClosed(Fenced):
    """The producer was closed, by its client or by the broker, and sends no more."""


class TopicTerminated(Invalid):
    """The topic takes no more messages, for good."""


class TopicClosed(Unavailable):
    """The topic is being unloaded or deleted; look it up again."""


class TopicBusy(Conflict):
    """It has producers or consumers, and nobody said to do it all the same."""


class BacklogHold(Unavailable):
    """The backlog is beyond its quota: producers are to hold what they have and come back."""


class BacklogExceeded(Unavailable):
    """The backlog is beyond its quota: producers are to fail what they have."""


class NotAllowed(Invalid):
    """A rule of the topic, its namespace or the broker forbids it."""


class NotEncrypted(Invalid):
    """The topic takes encrypted messages only."""

    def __init__(self) -> None:
        super().__init__("Messages must be encrypted")


class SubscriptionNotFound(NotFound): ...


class SubscriptionBusy(Conflict):
    """It has consumers."""


class TransactionNotFound(NotFound):
    """There is no such transaction, or it has ended."""


class InvalidTransactionStatus(Invalid):
    """The transaction is on its way to another end."""


class TransactionCoordinatorNotFound(NotFound):
    """This broker has no transaction coordinator of that number."""
