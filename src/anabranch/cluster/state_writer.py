"""State writer: many changes of partitions' states, written in few multis by the controller.

    orders-0 ─┐                      ┌ orders: one document ─┐
    orders-7 ─┼─> one round: read ──>┤                       ├─> one multi ─> all who asked are told
    users-1  ─┘   decide             └ users: one document  ─┘

What is asked for during a round waits for the next.  A document has all partitions of a topic, and a multi as
many documents as fit; it checks the controller's epoch, and each topic and each document at the version that
the decisions were made on.  If something else was written first, those documents are read and decided again;
one that was deposed is refused with NotController.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from anabranch.base.errors import (
    AnabranchError,
    Conflict,
    Corrupt,
    Exists,
    Invalid,
    NotFound,
    Unavailable,
    UnknownTopic,
    UnknownTopicId,
)
from anabranch.base.ids import TopicId, TopicName
from anabranch.base.metrics import Histogram
from anabranch.cluster.partition_states import new_state
from anabranch.meta import paths
from anabranch.meta.documents import (
    PartitionState,
    PartitionStatesDocument,
    TopicDocument,
    decode,
    encode,
)
from anabranch.meta.image import NO_BROKER
from anabranch.meta.store import MAX_DATA_BYTES, MUST_NOT_EXIST, Check, MetadataStore, Operation, Put

log = logging.getLogger(__name__)

_READS_AT_ONCE = 64
_MULTI_BYTES = MAX_DATA_BYTES * 9 // 10
_PATH_BYTES = 1024  # what three operations take besides their data, and more

ChangeState = Callable[[PartitionState], PartitionState]
"""Gives the next state, or the same object if there is nothing to change; raises what the caller gets."""


@dataclass(slots=True)
class Change:
    name: TopicName
    index: int
    change: ChangeState
    why: str
    """For the log."""
    answer: "asyncio.Future[PartitionState]"
    asked_s: float
    topic_id: TopicId | None = None
    """If a topic of that name that was made since must not be changed."""


class _Page(NamedTuple):
    """A document, and what is to become of it."""

    name: TopicName
    number: int
    changes: Sequence[Change]


class _Decided(NamedTuple):
    page: _Page
    operations: Sequence[Operation]
    path: str
    outcomes: Sequence[tuple[Change, PartitionState, PartitionState]]
    """Of each change: the state before and after."""
    size: int


class StateWriter:
    def __init__(
        self,
        store: MetadataStore,
        refresh: Callable[..., Awaitable[None]],
        check_epoch: Callable[[], Awaitable[int]],
    ) -> None:
        """`refresh` brings paths into the image.

        `check_epoch` gives the epoch in which this broker is the controller; NotController if it is not.
        """
        self._store = store
        self._refresh = refresh
        self._check_epoch = check_epoch
        self.elections = Histogram()
        """Leaders elected, and how long after they were asked for it was written."""
        self.unclean_elections = 0
        """Of these, those of a replica that was not in sync."""
        self._waiting: list[Change] = []
        self._rounds: asyncio.Task[None] | None = None

    def ask(
        self, name: TopicName, index: int, change: ChangeState, why: str, topic_id: TopicId | None = None
    ) -> "asyncio.Future[PartitionState]":
        """The state that comes of it, once it is written and in the image."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[PartitionState] = loop.create_future()
        self._waiting.append(Change(name, index, change, why, answer, loop.time(), topic_id))
        if self._rounds is None or self._rounds.done():
            self._rounds = asyncio.ensure_future(self._run())
        return answer

    async def _run(self) -> None:
        while self._waiting:
            changes, self._waiting = self._waiting, []
            try:
                await self._round(changes)
            except AnabranchError as error:
                _refuse(changes, error)
            except Exception as error:  # a subscriber of the image, say: who asked is not to die of it
                log.exception("changes of partitions' states: it is not known whether they were written")
                _refuse(changes, Unavailable(f"it is not known whether it was written: {error!r}"))
            finally:
                for change in changes:  # cancelled: nobody waits forever
                    if not change.answer.done():
                        change.answer.cancel()

    async def _round(self, changes: Sequence[Change]) -> None:
        pages = list(_pages(changes))
        while pages:
            epoch = await self._check_epoch()
            decided: list[_Decided] = []
            for start in range(0, len(pages), _READS_AT_ONCE):
                some = pages[start : start + _READS_AT_ONCE]
                found = await asyncio.gather(*map(self._decide, some))
                decided += [one for one in found if one is not None]
            pages = []
            for group in _groups(decided):
                try:
                    await self._write(epoch, group)
                except (Conflict, Exists, NotFound):
                    pages += [one.page for one in group]
                except Invalid as error:  # too large, and the other groups are not
                    for one in group:
                        _refuse(one.page.changes, error)

    async def _decide(self, page: _Page) -> _Decided | None:
        """What is to be written of one document, if anything; those whose changes cannot be are told."""
        try:
            return await self._decided(page)
        except Corrupt as error:  # the others' documents may be right
            _refuse(page.changes, error)
            return None

    async def _decided(self, page: _Page) -> _Decided | None:
        topic_path = paths.topic(page.name)
        stored = await self._store.get(topic_path)
        if stored is None:
            _refuse(page.changes, UnknownTopic(f"there is no topic '{page.name.kafka}'"))
            return None
        topic = decode(stored.data, TopicDocument, topic_path)
        path = paths.partition_states(topic.id, page.number)
        value = await self._store.get(path)
        states = {} if value is None else dict(decode(value.data, PartitionStatesDocument, path).states)
        outcomes = []
        for change in page.changes:
            if change.answer.done():
                continue
            try:
                before, after = _apply(change, topic, states)
            except AnabranchError as error:
                change.answer.set_exception(error)
                continue
            if after is not before:
                states[change.index] = after
            outcomes.append((change, before, after))
        if all(after is before for _, before, after in outcomes):
            _answer(outcomes)
            return None
        document = encode(PartitionStatesDocument(states))
        version = MUST_NOT_EXIST if value is None else value.version
        operations: list[Operation] = [Check(topic_path, stored.version), Put(path, document, version)]
        return _Decided(page, operations, path, outcomes, len(document) + _PATH_BYTES)

    async def _write(self, epoch: int, group: Sequence[_Decided]) -> None:
        checked: list[Operation] = [Check(paths.CONTROLLER_EPOCH, epoch)]
        await self._store.multi(checked + [operation for one in group for operation in one.operations])
        await self._refresh(*(one.path for one in group))
        for one in group:
            for change, before, after in one.outcomes:
                _tell(change, before, after)
                self._count(change, before, after)
            _answer(one.outcomes)
            await asyncio.sleep(0)  # a multi has ten thousand partitions, and each is told of

    def _count(self, change: Change, before: PartitionState, after: PartitionState) -> None:
        if after.leader_epoch != before.leader_epoch and after.leader != NO_BROKER:
            self.elections.observe(asyncio.get_running_loop().time() - change.asked_s)
            # One that a reassignment ends with has come into the ISR by the same change.
            is_moved = after.replicas != before.replicas
            self.unclean_elections += not is_moved and after.leader not in before.isr


def _pages(changes: Iterable[Change]) -> Iterator[_Page]:
    found: dict[tuple[TopicName, int], list[Change]] = {}
    for change in changes:
        found.setdefault((change.name, paths.page_of(max(0, change.index))), []).append(change)
    for (name, number), of_page in found.items():
        yield _Page(name, number, of_page)


def _groups(decided: Sequence[_Decided]) -> Iterator[list[_Decided]]:
    """As many documents together as a multi takes."""
    group: list[_Decided] = []
    size = 0
    for one in decided:
        if group and size + one.size > _MULTI_BYTES:
            yield group
            group, size = [], 0
        group.append(one)
        size += one.size
    if group:
        yield group


def _apply(
    change: Change, topic: TopicDocument, states: dict[int, PartitionState]
) -> tuple[PartitionState, PartitionState]:
    if change.topic_id is not None and topic.id != change.topic_id:
        raise UnknownTopicId(f"topic '{change.name.kafka}' was deleted and made again")
    if not 0 <= change.index < len(topic.replicas):
        raise UnknownTopic(f"topic '{change.name.kafka}' has no partition {change.index}")
    before = states.get(change.index) or new_state(topic.replicas[change.index])
    return before, change.change(before)


def _answer(outcomes: Iterable[tuple[Change, PartitionState, PartitionState]]) -> None:
    for change, _, after in outcomes:
        if not change.answer.done():
            change.answer.set_result(after)


def _refuse(changes: Iterable[Change], error: AnabranchError) -> None:
    for change in changes:
        if not change.answer.done():
            change.answer.set_exception(error)


def _tell(change: Change, before: PartitionState, after: PartitionState) -> None:
    """One line per change of the leader, the replicas or the in-sync set."""
    where = f"{change.name.kafka}-{change.index}"
    if after.leader_epoch != before.leader_epoch:
        if after.leader == NO_BROKER:
            log.info("%s: has no leader from epoch %d on: %s", where, after.leader_epoch, change.why)
        else:
            log.info(
                "%s: broker %d leads from epoch %d on: %s",
                where,
                after.leader,
                after.leader_epoch,
                change.why,
            )
    if after.replicas != before.replicas:
        log.info("%s: replicas %s, before %s: %s", where, [*after.replicas], [*before.replicas], change.why)
    if after.isr != before.isr:
        log.info("%s: in sync %s, before %s: %s", where, [*after.isr], [*before.isr], change.why)
