"""Who is told that a coordinator is gone: also those who have left."""

import asyncio
import gc

import pytest

from anabranch.base.errors import (
    AnabranchError,
    CoordinatorNotAvailable,
    DiskFull,
    InvalidProducerEpoch,
    NotCoordinator,
    NotEnoughReplicas,
    NotOwner,
    TimedOut,
    TooLarge,
    UnknownTopic,
)
from anabranch.groups.effect_answers import refusal, refuse
from anabranch.groups.effects import Answer


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (UnknownTopic("gone"), CoordinatorNotAvailable),
        (TimedOut("late"), CoordinatorNotAvailable),
        (NotEnoughReplicas("one is left"), CoordinatorNotAvailable),
        (NotOwner("elsewhere"), NotCoordinator),
        (DiskFull("no room"), NotCoordinator),
        (InvalidProducerEpoch("a newer one"), InvalidProducerEpoch),
        (TooLarge("too much"), TooLarge),
    ],
)
def test_errors_of_the_log_are_told_as_kafkas_coordinators_do(
    error: AnabranchError, told: type[AnabranchError]
) -> None:
    assert type(refusal(error)) is told


async def test_nobody_complains_of_who_has_left() -> None:
    """A client whose connection is gone waits no more, and its answer is nobody's."""
    loop = asyncio.get_running_loop()
    told: list[object] = []
    loop.set_exception_handler(lambda _, context: told.append(context))
    waits: asyncio.Future[Answer] = loop.create_future()
    refuse([waits, loop.create_future()])
    gc.collect()
    assert not told
    with pytest.raises(NotCoordinator):
        await waits
