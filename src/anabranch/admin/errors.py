"""HTTP errors: the status of each of our errors, mapped here and nowhere else.

As for the protocols, an error has the status of its class, or of the nearest class above it that has one.
Statuses are those that Pulsar answers, which says 412 where others say 400.
"""

from anabranch.base import errors
from anabranch.schemas import errors as schema_errors
from anabranch.subscriptions import errors as subscription_errors
from anabranch.topics import errors as topic_errors


class Refused(errors.Invalid):
    """A status that no error of ours stands for."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


_STATUSES: dict[type[BaseException], int] = {
    errors.Invalid: 412,
    errors.InvalidConfig: 412,
    errors.NotEmpty: 409,
    errors.TooLarge: 413,
    errors.NotFound: 404,
    errors.Exists: 409,
    errors.Conflict: 409,
    errors.NotOwner: 503,
    errors.NotController: 503,
    errors.Fenced: 409,
    errors.Unavailable: 503,
    errors.Throttled: 429,
    topic_errors.TopicBusy: 412,
    topic_errors.SubscriptionBusy: 412,
    topic_errors.NotAllowed: 405,
    subscription_errors.NotAllowed: 405,
    schema_errors.InvalidSchema: 422,
    schema_errors.LibraryMissing: 422,
    schema_errors.IncompatibleSchema: 409,
    errors.Corrupt: 500,
}


def status_of(error: BaseException) -> int:
    if isinstance(error, Refused):
        return error.status
    for kind in type(error).__mro__:
        if kind in _STATUSES:
            return _STATUSES[kind]
    return 500


def reason_of(error: BaseException) -> str:
    """What a client may read about it."""
    return str(error) if isinstance(error, errors.AnabranchError) else "the broker has failed; see its log"
