"""Answers of effects: whoever waits for a decision is told what it says, or why it cannot be said."""

import asyncio
from collections.abc import Iterable

from anabranch.base.errors import (
    CoordinatorNotAvailable,
    Fenced,
    Invalid,
    NotCoordinator,
    NotEnoughReplicas,
    TimedOut,
    UnknownTopic,
)
from anabranch.groups.effects import Answer, Effects, Token


def refusal(error: Exception) -> Exception:
    """What a client is told that could not be served for `error`: as Kafka's coordinators tell it."""
    if isinstance(error, Invalid | Fenced):
        return error
    if isinstance(error, UnknownTopic | TimedOut | NotEnoughReplicas):
        return CoordinatorNotAvailable(str(error))
    return NotCoordinator(str(error))


def fail(effects: Effects, error: Exception) -> None:
    """What was decided is not said: whoever waits is told `error`, or what the decision has for that."""
    answer(effects.otherwise)
    told = refusal(error)
    for token, _ in effects.replies:
        if isinstance(token, asyncio.Future):
            _tell(token, told)


def refuse(tokens: Iterable["asyncio.Future[Answer]"]) -> None:
    """Whoever waits is to look for another coordinator."""
    for token in tokens:
        _tell(token, NotCoordinator("the coordinator is served here no more"))


def answer(replies: list[tuple[Token, Answer]]) -> None:
    """Those who still wait are told."""
    for token, said in replies:
        if isinstance(token, asyncio.Future) and not token.done():
            token.set_result(said)


def _tell(token: "asyncio.Future[Answer]", error: Exception) -> None:
    if not token.done():
        token.set_exception(error)
        token.exception()  # whoever waited may have left without a word
