import inspect

import pytest

from anabranch.base import errors
from anabranch.server.kafka.errors import code_of, message_of
from anabranch.wire.kafka.schema import ErrorCode

EVERY = [
    kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.AnabranchError)
]


@pytest.mark.parametrize("kind", [kind for kind in EVERY if kind is not errors.AnabranchError])
def test_every_error_has_a_code(kind: type[errors.AnabranchError]) -> None:
    assert code_of(kind("why")) not in (ErrorCode.none, ErrorCode.unknown_server_error)
    assert message_of(kind("why")) == "why"


@pytest.mark.parametrize(
    "kind", [kind for kind in EVERY if issubclass(kind, errors.Unavailable | errors.Conflict)]
)
def test_what_would_work_later_is_retried(kind: type[errors.AnabranchError]) -> None:
    assert code_of(kind("why")).retriable


@pytest.mark.parametrize("kind", [kind for kind in EVERY if issubclass(kind, errors.Invalid)])
def test_what_is_wrong_is_not_retried(kind: type[errors.AnabranchError]) -> None:
    # A session that is wrong is given up, and the fetch is sent again with a new one.
    session = issubclass(
        kind,
        errors.InvalidFetchSessionEpoch | errors.FetchSessionTopicIdError | errors.InvalidShareSessionEpoch,
    )
    assert code_of(kind("why")).retriable == session


def test_a_new_kind_has_the_code_of_the_one_above() -> None:
    class Novel(errors.InvalidTopicName): ...

    assert code_of(Novel("why")) == ErrorCode.invalid_topic_exception


def test_what_nobody_raised_on_purpose() -> None:
    assert code_of(ValueError("a secret")) == ErrorCode.unknown_server_error
    assert message_of(ValueError("a secret")) is None
