"""An internal topic and the shards in it, as every coordinator over one has them.

    await topic.ensure()                    made when it is first needed
    topic.num_partitions                    CoordinatorNotAvailable while there is none
    topic.in_use()                          the partitions led here that somebody has written to or asked for
    topic.find(index)                       the shard of one, None if nothing was ever written to it
    await topic.load_all(what)              reads those in use, so that nobody waits for them later
    topic.elected(index)                    as much for one that this broker leads from now on
    topic.forget_topics(what, forget)       has each of them decide so, one after the other, in the background

Partitions that nobody uses stay closed.  A shard that cannot be read is reported in the log, and the others
are read all the same.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Generic, TypeVar

from anabranch.base.errors import (
    AnabranchError,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    Exists,
    NotCoordinator,
    NotOwner,
)
from anabranch.groups.effects import Effects, Shard
from anabranch.groups.parts import Topics
from anabranch.groups.runtime import Runtime
from anabranch.partition.led_partitions import LedPartitions

log = logging.getLogger(__name__)

S = TypeVar("S", bound=Shard)


class InternalTopic(Generic[S]):
    def __init__(
        self,
        name: str,
        topics: Topics,
        runtime: Runtime[S],
        partitions: LedPartitions,
        create: Callable[[], Awaitable[object]],
    ) -> None:
        self.name = name
        self._topics = topics
        self._runtime = runtime
        self._partitions = partitions
        self._create = create
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def exists(self) -> bool:
        return self._topics.by_name(self.name) is not None

    @property
    def num_partitions(self) -> int:
        topic = self._topics.by_name(self.name)
        if topic is None:
            raise CoordinatorNotAvailable(f"the topic {self.name} has not been made yet")
        return topic.num_partitions

    async def ensure(self) -> None:
        """Have the topic made if it is not there."""
        if not self.exists:
            await make_topic(self.name, self._create)

    def in_use(self) -> list[int]:
        """The partitions led here that somebody has written to or asked for: the others stay closed."""
        return [index for index in self._partitions.led if not self._partitions.is_unwritten(index)]

    def _indexes(self) -> range:
        topic = self._topics.by_name(self.name)
        return range(0 if topic is None else topic.num_partitions)

    def find(self, index: int) -> S | None:
        """A shard to look at, None if nothing was ever written to it.

        NotCoordinator if another broker has it, CoordinatorLoading if it has not been read.
        """
        shard = self._runtime.find(index)
        if shard is not None:
            return shard
        if self.is_unwritten(index):
            return None
        raise CoordinatorLoading(f"shard {index} of {self.name} is still being read")

    def is_unwritten(self, index: int) -> bool:
        """Whether nothing was ever written to a shard.  NotCoordinator if another broker has it."""
        try:
            return self._partitions.is_unwritten(index)
        except NotOwner as error:
            raise NotCoordinator(str(error)) from error

    def all(self) -> list[S]:
        """Every shard that something was written to; raises as `find` if one is not here."""
        shards = [self.find(index) for index in self._indexes()]
        return [shard for shard in shards if shard is not None]

    async def load_all(self, what: str) -> None:
        """Read the shards that have something to read, so that nobody has to wait for them later."""
        for index in self.in_use():
            await self._load(index, what)

    async def _load(self, index: int, what: str) -> None:
        try:
            await self._runtime.load(index)
        except AnabranchError as error:
            log.warning("%s-%d: its %s cannot be served: %s", self.name, index, what, error)

    def elected(self, index: int, what: str) -> None:
        """This broker leads a partition from now on: read it in the background."""
        if not self._partitions.is_unwritten(index):
            self._begin(self._load(index, what))

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def forget_topics(self, what: str, *forget: Callable[[S, int], Effects]) -> None:
        """Topics are deleted: have every shard decide to `forget` what it keeps of them, `what` that is."""
        if self.in_use():
            self._begin(self._forget_topics(what, forget))

    async def _forget_topics(self, what: str, forget: tuple[Callable[[S, int], Effects], ...]) -> None:
        for index in self.in_use():
            try:
                await self._runtime.load(index)
                for decide in forget:
                    self._runtime.tell(index, decide)
            except AnabranchError as error:
                log.warning("%s-%d: %s of deleted topics stay: %s", self.name, index, what, error)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._runtime.close()


async def make_topic(name: str, create: Callable[[], Awaitable[object]]) -> None:
    try:
        await create()
    except Exists:
        pass  # somebody else was first
    except AnabranchError as error:
        raise CoordinatorNotAvailable(f"{name} could not be made: {error}") from error
