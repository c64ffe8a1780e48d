"""Subscription errors, named by Pulsar's own reason; `server/pulsar/errors.py` has the codes.

The base class says what the client should do about it, as everywhere (`base/errors.py`).
"""

from anabranch.base.errors import Conflict, Invalid, NotFound


class ConsumerBusy(Conflict):
    """There is no place for this consumer now: an exclusive one, taken hash ranges, too many."""


class SubscriptionTypeMismatch(Conflict):
    """Consumers of another kind are attached (Pulsar's SubscriptionBusyException: "of different type")."""


class ConsumerAssignError(Invalid):
    """The hash ranges that a consumer asks for are not ranges, or belong to others."""


class NotAllowed(Invalid):
    """The kind of subscription does not know such a thing: cumulative acks of a shared one."""


class InvalidAck(Invalid):
    """An acknowledgement of what is not in the log yet."""


class InvalidPermits(Invalid):
    """Permits that no client can mean; its connection is closed."""


class ConsumerGone(NotFound):
    """The consumer was detached; what it still says is about nothing."""
