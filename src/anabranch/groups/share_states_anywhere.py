"""States of share partitions, wherever their coordinator is.

    leader of a partition, coordinator of a group ─┬─ the shard is here:  `share_states`
                                                   └─ elsewhere:  Initialize- (83), Read- (84), Write- (85),
                                                      DeleteShareGroupState (86), and the summary (87)

Whoever asks a coordinator that moves, or does not answer, asks again for `_PATIENCE_S`; a write has the same
effect however often it comes.  Who has been replaced is told by epochs, as where the shard is here.

A leader is not told when its state is set from outside by another broker (`tells`): its next write is fenced.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from random import Random
from typing import Any, NamedTuple, TypeVar

from anabranch.base.backoff import Backoff
from anabranch.base.errors import (
    AnabranchError,
    CoordinatorNotAvailable,
    Corrupt,
    FencedLeaderEpoch,
    FencedStateEpoch,
    NoShareState,
    NotOwner,
    TooLarge,
    Unavailable,
    UnknownTopic,
)
from anabranch.base.ids import BrokerId
from anabranch.client.answers import error_name, kind_of
from anabranch.client.requests import (
    DELETE_SHARE_GROUP_STATE,
    INITIALIZE_SHARE_GROUP_STATE,
    READ_SHARE_GROUP_STATE,
    READ_SHARE_GROUP_STATE_SUMMARY,
    WRITE_SHARE_GROUP_STATE,
    Request,
)
from anabranch.groups.other_brokers import OtherBrokers
from anabranch.groups.share_state import (
    ANY_LEADER,
    NOT_INITIALISED,
    UNKNOWN_COUNT,
    Changed,
    DeliveryState,
    ShareKey,
    ShareState,
    StateBatch,
)
from anabranch.groups.share_states import SHARE_STATE_TOPIC, KeptShareStates
from anabranch.meta.image import NO_BROKER
from anabranch.wire.kafka.schema import ErrorCode

_PATIENCE_S = 10.0
_ASK_S = 5.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5

T = TypeVar("T")

_KINDS: dict[int, type[AnabranchError]] = {
    int(ErrorCode.fenced_state_epoch): FencedStateEpoch,
    int(ErrorCode.fenced_leader_epoch): FencedLeaderEpoch,
    int(ErrorCode.invalid_request): NoShareState,
    int(ErrorCode.message_too_large): TooLarge,
}


class Summary(NamedTuple):
    """How far a share group is with a partition."""

    start_offset: int
    leader_epoch: int
    complete_count: int


class ShareStatesAnywhere:
    """The ShareStates of the cluster."""

    def __init__(self, kept: KeptShareStates, brokers: OtherBrokers, random: Random) -> None:
        self._kept = kept
        self._brokers = brokers
        self._random = random
        self._changed: list[Changed] = []

    # --- for leaders of share partitions

    async def read(self, key: ShareKey, leader_epoch: int = ANY_LEADER) -> ShareState:
        def state(part: Any) -> ShareState:
            batches = [
                StateBatch(
                    one.first_offset, one.last_offset, DeliveryState(one.delivery_state), one.delivery_count
                )
                for one in part.state_batches
            ]
            return ShareState(part.state_epoch, part.start_offset, tuple(batches))

        request = _request(READ_SHARE_GROUP_STATE, key, {"leader_epoch": leader_epoch})
        return await self._ask(key, lambda: self._kept.read(key, leader_epoch), request, state)

    async def write(
        self,
        key: ShareKey,
        state_epoch: int,
        start_offset: int,
        batches: Sequence[StateBatch],
        delivery_complete_count: int = UNKNOWN_COUNT,
        leader_epoch: int = ANY_LEADER,
    ) -> None:
        values = {
            "state_epoch": state_epoch,
            "leader_epoch": leader_epoch,
            "start_offset": start_offset,
            "delivery_complete_count": delivery_complete_count,
            "state_batches": [batch._asdict() for batch in batches],
        }

        async def here() -> None:
            await self._kept.write(
                key, state_epoch, start_offset, batches, delivery_complete_count, leader_epoch
            )

        await self._ask(key, here, _request(WRITE_SHARE_GROUP_STATE, key, values), _nothing)

    def on_change(self, changed: Changed) -> None:
        self._kept.on_change(changed)
        self._changed.append(changed)

    def tells(self, key: ShareKey) -> bool:
        return self._leader(key) == self._brokers.me

    # --- for the groups

    async def initialise(self, key: ShareKey, state_epoch: int, start_offset: int) -> None:
        """As KeptShareStates has it."""
        await self._kept.ensure_topic()
        values = {"state_epoch": state_epoch, "start_offset": start_offset}
        request = _request(INITIALIZE_SHARE_GROUP_STATE, key, values)
        await self._ask(key, lambda: self._kept.initialise(key, state_epoch, start_offset), request, _nothing)
        self._tell(key)

    async def delete(self, keys: Iterable[ShareKey]) -> None:
        if self._kept.exists:
            await asyncio.gather(*[self._delete(key) for key in keys])

    async def _delete(self, key: ShareKey) -> None:
        request = _request(DELETE_SHARE_GROUP_STATE, key, {})
        try:
            await self._ask(key, lambda: self._kept.delete((key,)), request, _nothing)
        except UnknownTopic:
            return  # and with it went what was kept
        self._tell(key)

    async def look(self, key: ShareKey) -> Summary | None:
        """How far the group is, None if nothing is kept."""
        if not self._kept.exists:
            return None

        async def here() -> Summary | None:
            kept = await self._kept.look(key)
            if kept is None:
                return None
            return Summary(kept.start_offset, kept.leader_epoch, kept.complete_count)

        def summary(part: Any) -> Summary | None:
            if part.start_offset == NOT_INITIALISED and not part.state_epoch:
                return None
            return Summary(part.start_offset, part.leader_epoch, part.delivery_complete_count)

        request = _request(READ_SHARE_GROUP_STATE_SUMMARY, key, {"leader_epoch": ANY_LEADER})
        return await self._ask(key, here, request, summary)

    def _tell(self, key: ShareKey) -> None:
        for changed in self._changed:
            changed(key)

    # --- the way

    def _leader(self, key: ShareKey) -> BrokerId:
        return self._brokers.leader_of(SHARE_STATE_TOPIC, self._kept.shard_of(key))

    async def _ask(
        self, key: ShareKey, here: Callable[[], Awaitable[T]], request: Request, read: Callable[[Any], T]
    ) -> T:
        """What the coordinator of `key` says, here or elsewhere."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _PATIENCE_S
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S, self._random)
        while True:
            broker = self._leader(key)
            try:
                if broker == self._brokers.me:
                    return await here()
                if broker == NO_BROKER:
                    raise CoordinatorNotAvailable(f"nobody keeps the state of {key} now")
                answer = await self._brokers.ask(broker, request, _ASK_S)
                return read(_part(answer, broker))
            except (Unavailable, NotOwner, Corrupt) as error:
                if broker == self._brokers.me and not isinstance(error, NotOwner):
                    raise
                pause_s = backoff.next_s()
                if loop.time() + pause_s >= deadline:
                    raise CoordinatorNotAvailable(str(error)) from error
            await asyncio.sleep(pause_s)

    def close(self) -> None:
        self._brokers.close()


def _request(api: int, key: ShareKey, values: dict[str, Any]) -> Request:
    part = {"partition": key.partition, **values}
    topic = {"topic_id": key.topic_id, "partitions": [part]}
    return Request(api, {"group_id": key.group, "topics": [topic]})


def _part(answer: Any, broker: BrokerId) -> Any:
    """What is said of the one partition that was asked about; what is wrong is raised."""
    part = answer.results[0].partitions[0]
    if part.error_code:
        kind = _KINDS.get(part.error_code) or kind_of(part.error_code)
        raise kind(part.error_message or f"broker {broker} says {error_name(part.error_code)}")
    return part


def _nothing(part: Any) -> None:
    """It is done, and that is all."""
