"""An internal topic and the shards in it, as every coordinator over one has them.

    await topic.ensure()                    made when it is first needed
    topic.num_partitions                    CoordinatorNotAvailable while there is none
    topic.in_use()                          the partitions that somebody has written to or asked for
    await topic.load_all(what)              reads those, so that nobody waits for them later
    topic.forget_topics(what, forget)       has each of them decide so, one after the other, in the background

Partitions that nobody uses stay closed.  A shard that cannot be read is said in the log, and keeps nobody
from the others.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from anabranch.base.errors import AnabranchError, CoordinatorNotAvailable, Exists
from anabranch.groups.effects import Effects, Shard
from anabranch.groups.parts import Topics
from anabranch.groups.runtime import Runtime

log = logging.getLogger(__name__)

S = TypeVar("S", bound=Shard)


class InternalTopic(Generic[S]):
    def __init__(
        self,
        name: str,
        topics: Topics,
        runtime: Runtime[S],
        is_stored: Callable[[int], bool],
        create: Callable[[], Awaitable[object]],
    ) -> None:
        """`is_stored` says whether a partition was ever opened."""
        self.name = name
        self._topics = topics
        self._runtime = runtime
        self._is_stored = is_stored
        self._create = create
        self._forgetting: set[asyncio.Task[None]] = set()

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
        """The partitions that somebody has written to or asked for: those that nobody has stay closed."""
        topic = self._topics.by_name(self.name)
        partitions = range(0 if topic is None else topic.num_partitions)
        return [index for index in partitions if self._runtime.is_served(index) or self._is_stored(index)]

    async def load_all(self, what: str) -> None:
        """Read the shards that have something to read, so that nobody has to wait for them later."""
        for index in self.in_use():
            try:
                await self._runtime.load(index)
            except AnabranchError as error:
                log.warning("the %s of partition %d cannot be served: %s", what, index, error)

    def forget_topics(self, what: str, *forget: Callable[[S, int], Effects]) -> None:
        """Topics are deleted: have every shard decide to `forget` what it keeps of them, `what` that is."""
        if self.in_use():
            task = asyncio.ensure_future(self._forget_topics(what, forget))
            self._forgetting.add(task)
            task.add_done_callback(self._forgetting.discard)

    async def _forget_topics(self, what: str, forget: tuple[Callable[[S, int], Effects], ...]) -> None:
        for index in self.in_use():
            try:
                await self._runtime.load(index)
                for decide in forget:
                    self._runtime.tell(index, decide)
            except AnabranchError as error:
                log.warning("%s of deleted topics stay in partition %d: %s", what, index, error)

    def close(self) -> None:
        for task in self._forgetting:
            task.cancel()
        self._runtime.close()


async def make_topic(name: str, create: Callable[[], Awaitable[object]]) -> None:
    try:
        await create()
    except Exists:
        pass  # somebody else was first
    except AnabranchError as error:
        raise CoordinatorNotAvailable(f"{name} could not be made: {error}") from error
