"""Sending a request to who serves it, looked up and tried again until the caller's time is up.

    steps = sending(to, request, routing, pace)      a generator: decisions only
    Ask(address, request, most_s)   ->  the answer; Unavailable or Corrupt is thrown in if there is none
    Pause(seconds)                  ->  nothing, after so long
    Lookup(to)                      ->  nothing, after `looking_up` has been through its own steps

`blocking` and `aio` take the steps, each in its way; whatever is decided, is decided here:

  * the connection is lost, or nobody is there: the address is forgotten, and who serves `to` looked up
  * NOT_LEADER_OR_FOLLOWER, NOT_COORDINATOR, FENCED_LEADER_EPOCH and their like: looked up, tried again
  * COORDINATOR_LOAD_IN_PROGRESS, CONCURRENT_TRANSACTIONS and their like: tried again
  * UNKNOWN_TOPIC_OR_PARTITION: likewise while the topic may still be on its way to that broker
    (`Pace.topics_come_s`); then the answer is the caller's
  * any other code: the answer is the caller's, who knows what was asked
  * a broker that hangs takes all of the caller's time only if nobody else could answer

Between tries there is one back-off.  When time is up the last error stands: Unavailable.  A request that was
sent may have been carried out though its answer was lost, and goes out again: what must not happen twice has
to say so itself (a producer by its sequence numbers).
"""

from collections.abc import Callable, Generator
from math import inf
from typing import Any, NamedTuple

from anabranch.base.backoff import Backoff
from anabranch.base.errors import Corrupt, Unavailable, UnknownTopic
from anabranch.client.answers import check, error_name, is_retried, is_stale, kind_of, outer_code
from anabranch.client.destinations import Address, AnyBroker, Coordinator, Leader, To
from anabranch.client.requests import FIND_COORDINATOR, METADATA, Request
from anabranch.client.routing import NOBODY, Routing
from anabranch.wire.kafka.schema import api_name

_TURN_S = 5.0  # of one of several brokers that can answer: what any knows, it has at hand


class Ask(NamedTuple):
    address: Address
    request: Request
    most_s: float = inf
    """How long to wait at most, within the caller's time."""


class Pause(NamedTuple):
    seconds: float


class Lookup(NamedTuple):
    """To be looked up; several may wait for one of these."""

    to: To


Step = Ask | Pause | Lookup
Steps = Generator[Step, Any, Any]


class Pace:
    """How long and how often: the caller's deadline and the back-off within it."""

    def __init__(
        self, monotonic: Callable[[], float], timeout_s: float, backoff: Backoff, topics_come_s: float
    ) -> None:
        self._monotonic = monotonic
        self._timeout_s = timeout_s
        self._backoff = backoff
        self._topics_come_s = topics_come_s
        self._began = monotonic()

    def progressed(self) -> None:
        """It worked: what fails from now on has all the time again."""
        self._began = self._monotonic()
        self._backoff.reset()

    def pause(self, error: Unavailable | UnknownTopic) -> Pause:
        """The pause before the next try.  Raises `error` if there is no time for one."""
        seconds = self._backoff.next_s()
        if seconds > self.left_s():
            raise error
        return Pause(seconds)

    def left_s(self) -> float:
        return max(0.0, self._began + self._timeout_s - self._monotonic())

    def topic_may_come(self) -> bool:
        return self._monotonic() < self._began + self._topics_come_s


def sending(to: To, request: Request, routing: Routing, pace: Pace) -> Steps:
    """The answer to `request`.  Unavailable when time is up."""
    while True:
        try:
            answer = yield from _asked(to, request, routing)
        except Unavailable as error:
            yield pace.pause(error)
            continue
        except UnknownTopic as error:
            if not pace.topic_may_come():
                raise
            yield pace.pause(error)
            continue
        codes = request.codes(answer) if request.is_answered else ()
        code = next(filter(is_retried, codes), 0)
        if not code:
            return answer
        if is_stale(code):
            routing.expire(to)
        if kind_of(code) is UnknownTopic and not pace.topic_may_come():
            return answer
        yield pace.pause(Unavailable(f"{api_name(request.api_key)} to {to}: {error_name(code)}"))


def _asked(to: To, request: Request, routing: Routing) -> Steps:
    """The answer of who serves `to` now, whatever it says."""
    if isinstance(to, AnyBroker):
        return (yield from _asked_any(request, routing))
    address = routing.address_of(to)
    if address is None:
        yield Lookup(to)
        address = routing.address_of(to)
        if address is None:
            raise Unavailable(f"there is no {str(to).removeprefix('the ')} now")
    return (yield from _asked_at(address, request, routing))


def _asked_at(address: Address, request: Request, routing: Routing, most_s: float = inf) -> Steps:
    try:
        answer = yield Ask(address, request, most_s)
    except (Unavailable, Corrupt) as error:
        routing.lost(address)
        if isinstance(error, Corrupt):
            raise Unavailable(f"{address} gave no answer: {error}") from error
        raise
    routing.answered(address)
    return answer


def _asked_any(request: Request, routing: Routing) -> Steps:
    """The answer of the first broker that gives one."""
    failure: Unavailable | None = None
    candidates = routing.candidates()
    most_s = inf if len(candidates) == 1 else _TURN_S
    for address in candidates:
        try:
            return (yield from _asked_at(address, request, routing, most_s))
        except Unavailable as error:
            failure = failure or error
    assert failure is not None, "a client has an address to begin with"
    raise failure


def looking_up(to: To, routing: Routing) -> Steps:
    """`routing` knows again who serves `to`, unless nobody does.  UnknownTopic if it is not there."""
    if isinstance(to, Coordinator):
        values = {"key": to.key, "key_type": to.kind, "coordinator_keys": [to.key]}
        answer = yield from _asked_any(Request(FIND_COORDINATOR, values), routing)
        found = answer.coordinators[0] if answer.coordinators else answer
        check(found.error_code, str(to))
        routing.learn_coordinator(to, Address(found.host, found.port))
        return
    topics = [to.partition.topic] if isinstance(to, Leader) else []
    answer = yield from _asked_any(metadata(topics), routing)
    routing.learn(answer)
    if isinstance(to, Leader):
        _check_there(to, answer, routing)


def _check_there(to: Leader, answer: Any, routing: Routing) -> None:
    for topic in answer.topics:
        check(topic.error_code, f"topic {topic.name!r}")
        if to.partition.partition not in {one.partition_index for one in topic.partitions}:
            raise UnknownTopic(f"topic {topic.name!r} has no partition {to.partition.partition}")
    if routing.led(to.partition).broker == NOBODY:
        routing.ask_another()
        raise Unavailable(f"{to.partition} has no leader")


def metadata(topics: list[str] | None, *, create: bool = False) -> Request:
    """A question for `topics`, for all if None."""
    values = {
        "topics": None if topics is None else [{"name": topic} for topic in topics],
        "allow_auto_topic_creation": create,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }
    return Request(METADATA, values, outer_code)
