"""The producers of one topic: who may write, together or alone.

    mode                     others are connected      one has it alone, or waits to
    SHARED                   joins them                ProducerBusy
    EXCLUSIVE                ProducerFenced            ProducerFenced
    WAIT_FOR_EXCLUSIVE       waits its turn            waits its turn
    EXCLUSIVE_WITH_FENCING   closes them               closes it, and those that wait are fenced

Whoever gets the topic alone gets a new topic epoch, or keeps the one it had before it lost its connection
if nobody had a newer one since; an older epoch is fenced for good, which is why it is stored before the
producer hears of it.  Decisions are taken at once and never wait; only the epoch's way to the store does,
and the place is held meanwhile.

A second producer of a name is refused, unless it is the same one come back (`Producer.succeeds`) or the
first one's connection turns out to be dead.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator

from anabranch.base.errors import AnabranchError
from anabranch.topics.errors import ProducerBusy, ProducerFenced, ProducerNameInUse
from anabranch.topics.producer import AccessMode, Producer

StoreEpoch = Callable[[int], Awaitable[None]]


class Producers:
    __slots__ = ("_by_name", "_epoch_turn", "_holder", "_queue", "_store_epoch", "_topic", "epoch")

    def __init__(self, topic: str, epoch: int | None, store_epoch: StoreEpoch) -> None:
        self._topic = topic
        self._store_epoch = store_epoch
        self.epoch = epoch  # None until somebody had the topic alone
        self._by_name: dict[str, Producer] = {}
        self._holder: Producer | None = None  # who has the topic alone
        self._queue: deque[Producer] = deque()  # who waits for that
        self._epoch_turn = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[Producer]:
        return iter(list(self._by_name.values()))

    def named(self, name: str) -> Producer | None:
        return self._by_name.get(name)

    def waiting(self) -> list[Producer]:
        return list(self._queue)

    async def join(self, producer: Producer) -> int | None:
        """Let a producer in, when it is its turn; the topic's epoch, None if there is none yet."""
        await self._clear_name(producer)
        if producer.access_mode == AccessMode.SHARED:
            self._check_shared()
            self._by_name[producer.name] = producer
            return self.epoch
        if producer.access_mode == AccessMode.EXCLUSIVE:
            self._check_alone()
        elif producer.access_mode == AccessMode.EXCLUSIVE_WITH_FENCING:
            self._check_epoch(producer)
            self._fence_all()
        elif self._holder is not None or self._by_name:
            await self._stand_in_line(producer)
            return await self._take_epoch(producer)
        self._check_epoch(producer)
        self._holder = producer
        return await self._take_epoch(producer)

    def leave(self, producer: Producer) -> bool:
        """A producer is gone.  False if it was not here."""
        producer.is_closed = True
        if producer.waiting is not None and not producer.waiting.done():
            producer.waiting.cancel()
        if producer in self._queue:
            self._queue.remove(producer)
        was_here = self._by_name.get(producer.name) is producer
        if was_here:
            del self._by_name[producer.name]
        if self._holder is producer:
            self._holder = None
        self._promote()
        return was_here

    def close_all(self, why: AnabranchError) -> None:
        """The topic closes: everybody is told to look it up again, who waits in line by being told `why`."""
        self._send_home(why)
        for producer in self:
            _close(producer)
        self._by_name.clear()
        self._holder = None

    # --- names

    async def _clear_name(self, producer: Producer) -> None:
        """Nobody else has the producer's name when this returns; ProducerNameInUse if somebody does."""
        asked: Producer | None = None
        while (other := self._by_name.get(producer.name)) is not None:
            if producer.succeeds(other):
                self._drop(other)
                return
            if other is asked or other.channel is producer.channel or await other.channel.is_alive():
                raise ProducerNameInUse(
                    f"Producer with name '{producer.name}' is already connected to topic '{self._topic}'"
                )
            asked = other
            if self._by_name.get(producer.name) is other:
                self._drop(other)

    def _drop(self, other: Producer) -> None:
        """Without a word to its client, which is gone or has come back."""
        other.is_closed = True
        del self._by_name[other.name]
        if self._holder is other:
            self._holder = None
        self._promote()

    # --- access

    def _check_shared(self) -> None:
        if self._holder is not None or self._queue:
            raise ProducerBusy(f"Topic has an existing exclusive producer: {self._holder_name()}")

    def _check_alone(self) -> None:
        if self._holder is not None or self._queue:
            raise ProducerFenced(f"Topic has an existing exclusive producer: {self._holder_name()}")
        if self._by_name:
            raise ProducerFenced("Topic has existing shared producers")

    def _check_epoch(self, producer: Producer) -> None:
        had = producer.topic_epoch
        if had is not None and self.epoch is not None and had < self.epoch:
            raise ProducerFenced(
                f"Topic epoch has already moved. Current epoch: {self.epoch}, Producer epoch: {had}"
            )

    def _holder_name(self) -> str:
        return self._holder.name if self._holder is not None else "(one waits to be the only one)"

    def _fence_all(self) -> None:
        self._send_home(ProducerFenced("Fenced out"))
        for producer in self:
            _close(producer)
        self._by_name.clear()
        self._holder = None

    def _send_home(self, why: AnabranchError) -> None:
        """Nobody waits any more."""
        queue, self._queue = self._queue, deque()
        for producer in queue:
            if producer.waiting is not None and not producer.waiting.done():
                producer.waiting.set_exception(why)

    async def _stand_in_line(self, producer: Producer) -> None:
        """Wait until all others are gone; the place is this producer's then."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        producer.waiting = turn
        self._queue.append(producer)
        producer.channel.producer_waits(producer)
        try:
            await turn
        except asyncio.CancelledError:
            self.leave(producer)
            raise
        finally:
            producer.waiting = None

    def _promote(self) -> None:
        """Let the first in line in, if nobody is there any more."""
        while self._queue and self._holder is None and not self._by_name:
            producer = self._queue.popleft()
            if producer.waiting is None or producer.waiting.done():
                continue
            try:
                self._check_epoch(producer)
            except ProducerFenced as error:
                producer.waiting.set_exception(error)
                continue
            self._holder = producer
            producer.waiting.set_result(None)

    async def _take_epoch(self, producer: Producer) -> int:
        """Move the topic's epoch on for its new holder, and make that last."""
        try:
            async with self._epoch_turn:
                had = producer.topic_epoch
                epoch = had if had is not None else (0 if self.epoch is None else self.epoch + 1)
                if epoch != self.epoch:
                    await self._store_epoch(epoch)
                if self._holder is not producer or producer.is_closed:
                    raise ProducerFenced("another producer took the topic meanwhile")
                self.epoch = max(epoch, -1 if self.epoch is None else self.epoch)
        except BaseException:
            if self._holder is producer:
                self._holder = None
                self._promote()
            raise
        if producer.name in self._by_name:
            self._holder = None
            raise ProducerNameInUse(f"Producer with name '{producer.name}' is already connected")
        self._by_name[producer.name] = producer
        producer.topic_epoch = epoch
        return epoch


def _close(producer: Producer) -> None:
    producer.is_closed = True
    producer.channel.close_producer(producer)
