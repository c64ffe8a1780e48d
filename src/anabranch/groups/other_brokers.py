"""Other brokers: which of them leads a partition, and the way to ask it something.

    brokers.leader_of("__transaction_state", 7)     a broker's id, NO_BROKER while nobody leads it
    await brokers.ask(2, request, timeout_s=5)      its answer; Unavailable if there is none

    queues = BrokerQueues(send, most=1000)
    queues.put(2, question)                         sent with all that has come for broker 2 meanwhile

Leaders are those of the image, which is what other brokers go by, too.  Whoever is asked and is not the one
any more says so, and the image will have it soon.

A queue has one request on its way; what comes meanwhile goes out together with the next.  So there are as
many requests as the other broker answers, however many ask.  One that takes long, since something in it waits
for its replicas, has the next go out beside it, a few at most: what these ask for is done meanwhile, though
answers keep the order of requests.  After one that failed the queue pauses for a moment.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from functools import partial
from random import Random
from typing import Any, Generic, Protocol, TypeVar

from anabranch.base.backoff import Backoff
from anabranch.base.errors import AnabranchError, Unavailable
from anabranch.base.ids import BrokerId
from anabranch.client.aio import AsyncClient
from anabranch.client.destinations import Address
from anabranch.client.requests import Request
from anabranch.meta.image import NO_BROKER, ClusterImage

log = logging.getLogger(__name__)

FOR_CLIENTS = "for-clients"
"""How the name of a broker ends that asks on behalf of its own clients."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5
_SLOW_S = 0.25  # after which the next request goes out beside the one that is on its way
_MOST_AT_ONCE = 8


class OtherBrokers:
    def __init__(
        self,
        me: BrokerId,
        image: Callable[[], ClusterImage],
        address_of: Callable[[BrokerId], Address | None],
        client: AsyncClient,
    ) -> None:
        """`address_of` is where brokers reach each other; the client is closed with this."""
        self.me = me
        self._image = image
        self._address_of = address_of
        self._client = client

    def leader_of(self, topic: str, index: int) -> BrokerId:
        """NO_BROKER if nobody leads the partition, or there is none."""
        found = self._image().topics_by_kafka_name.get(topic)
        if found is None or not 0 <= index < found.partition_count:
            return NO_BROKER
        return found.partitions[index].leader

    async def ask(self, broker: BrokerId, request: Request, timeout_s: float) -> Any:
        """The answer of `broker`, asked once.  Unavailable or Corrupt if there is none."""
        address = self._address_of(broker)
        if address is None:
            raise Unavailable(f"broker {broker} is not there now")
        return await self._client.ask(address, request, timeout_s)

    def close(self) -> None:
        self._client.close()


class Question(Protocol):
    """Something that a broker is to be asked, and who waits for the answer."""

    @property
    def answered(self) -> "asyncio.Future[Any]": ...


Q = TypeVar("Q", bound=Question)


class _Queue(Generic[Q]):
    """What a broker is to be asked, and the requests that are on their way to it."""

    def __init__(self) -> None:
        self.waiting: deque[Q] = deque()
        self.sending: dict[asyncio.Task[bool], None] = {}
        self.working: asyncio.Task[None] | None = None


class BrokerQueues(Generic[Q]):
    def __init__(
        self, send: Callable[[BrokerId, list[Q]], Awaitable[None]], most: int, random: Random
    ) -> None:
        """`send` answers the questions it is given, at most `most`; what it raises is all their answer."""
        self._send = send
        self._most = most
        self._random = random
        self._queues: dict[BrokerId, _Queue[Q]] = {}

    def put(self, broker: BrokerId, question: Q) -> None:
        queue = self._queues.get(broker)
        if queue is None:
            queue = self._queues[broker] = _Queue()
        queue.waiting.append(question)
        if queue.working is None:
            queue.working = asyncio.ensure_future(self._work(broker, queue))

    async def _work(self, broker: BrokerId, queue: _Queue[Q]) -> None:
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S, self._random)
        waiting = queue.waiting
        while waiting:
            asked = [waiting.popleft() for _ in range(min(len(waiting), self._most))]
            sending = asyncio.ensure_future(self._ask(broker, asked))
            queue.sending[sending] = None
            sending.add_done_callback(partial(self._sent, broker, queue, asked))
            await asyncio.wait((sending,), timeout=_SLOW_S)
            if sending.done():
                if sending.result():
                    backoff.reset()
                else:
                    await asyncio.sleep(backoff.next_s())
            elif len(queue.sending) >= _MOST_AT_ONCE:
                await asyncio.wait(queue.sending, return_when=asyncio.FIRST_COMPLETED)
        queue.working = None
        self._maybe_forget(broker, queue)

    async def _ask(self, broker: BrokerId, asked: list[Q]) -> bool:
        """Whether there was an answer."""
        try:
            await self._send(broker, asked)
        except AnabranchError as error:
            refuse(asked, error)
        except Exception as error:  # a mistake, or nobody would be asked any more
            log.exception("broker %d: could not be asked, tried again", broker)
            refuse(asked, Unavailable(f"broker {broker} could not be asked: {error!r}"))
        else:
            return True
        return False

    def _sent(
        self, broker: BrokerId, queue: _Queue[Q], asked: list[Q], sending: "asyncio.Task[bool]"
    ) -> None:
        if sending.cancelled():
            refuse(asked, Unavailable("the broker stops"))
        del queue.sending[sending]
        self._maybe_forget(broker, queue)

    def _maybe_forget(self, broker: BrokerId, queue: _Queue[Q]) -> None:
        if queue.working is None and not queue.sending:
            self._queues.pop(broker, None)

    def close(self) -> None:
        for queue in self._queues.values():
            for task in (queue.working, *queue.sending):
                if task is not None:
                    task.cancel()
            refuse(queue.waiting, Unavailable("the broker stops"))


def unambiguous(asked: Sequence[Q], known_by: Callable[[Q], tuple[Hashable, Hashable]]) -> Iterator[list[Q]]:
    """`asked`, in lists in which what an answer is known by, the first of two, stands for one thing only."""
    left = list(asked)
    while left:
        meant: dict[Hashable, Hashable] = {}
        now: list[Q] = []
        later: list[Q] = []
        for question in left:
            key, thing = known_by(question)
            (now if meant.setdefault(key, thing) == thing else later).append(question)
        yield now
        left = later


def refuse(asked: "list[Q] | deque[Q]", error: AnabranchError) -> None:
    """Those that have no answer yet have this one."""
    for question in asked:
        if not question.answered.done():
            question.answered.set_exception(error)


def heard(answered: "asyncio.Future[Any]") -> None:
    """A callback for who may not come back for an answer: the loop would complain of an error unheard."""
    if not answered.cancelled():
        answered.exception()
