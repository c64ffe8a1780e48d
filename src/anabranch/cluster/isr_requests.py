"""ISR requests: what leaders ask the controller for, by a call on its own broker, else by AlterPartition.

    leader ─> ControllerIsr ─┬─ this broker is the controller ──────────────> change_isrs
                             └─ another one is ─> AlterPartition ─> handler ─> change_isrs

The changes of a request are independent: each has its own answer.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from anabranch.base.errors import (
    AnabranchError,
    Conflict,
    FencedLeaderEpoch,
    IneligibleReplica,
    Invalid,
    NotController,
    UnknownTopicId,
)
from anabranch.base.ids import BrokerId, LeaderEpoch, TopicId
from anabranch.client.aio import AsyncClient
from anabranch.client.answers import check, error_name, kind_of
from anabranch.client.destinations import Address
from anabranch.client.requests import ALTER_PARTITION, Request
from anabranch.cluster.cluster import Cluster
from anabranch.meta.image import NO_BROKER
from anabranch.partition.isr_changes import Answer, IsrChange, Written
from anabranch.wire.kafka.schema import ErrorCode

_AT_A_TIME = 64  # changes of as many topics go to the store together
_TIMEOUT_S = 10.0
_KINDS: dict[int, type[AnabranchError]] = {
    int(ErrorCode.not_controller): NotController,
    int(ErrorCode.fenced_leader_epoch): FencedLeaderEpoch,
    int(ErrorCode.ineligible_replica): IneligibleReplica,
    int(ErrorCode.invalid_update_version): Conflict,
    int(ErrorCode.unknown_topic_id): UnknownTopicId,
}


async def change_isrs(cluster: Cluster, changes: Sequence[IsrChange]) -> list[Answer]:
    """As the controller.  NotController if this broker is not."""
    if cluster.controller.epoch is None:
        raise NotController("this broker is not the controller")
    room = asyncio.Semaphore(_AT_A_TIME)

    async def one(change: IsrChange) -> Answer:
        async with room:
            try:
                return await _change(cluster, change)
            except AnabranchError as error:
                return error

    return list(await asyncio.gather(*map(one, changes)))


async def _change(cluster: Cluster, change: IsrChange) -> Written:
    topic = cluster.image.topics_by_id.get(TopicId(change.topic_id))
    if topic is None:
        raise UnknownTopicId(f"there is no topic with the id {change.topic_id}")
    state = await cluster.controller.change_isr(
        topic.name,
        change.partition,
        list(change.isr),
        change.leader_epoch,
        change.partition_epoch,
        topic_id=topic.id,
        broker_epochs=change.isr,
    )
    return Written(state.leader, state.leader_epoch, state.partition_epoch, state.isr)


class ControllerIsr:
    """The controller, to be asked for ISRs: an `isr_changes.Ask`."""

    def __init__(
        self,
        cluster: Cluster,
        broker: BrokerId,
        client: AsyncClient,
        address_of: Callable[[BrokerId], Address | None],
    ) -> None:
        self._cluster = cluster
        self._broker = broker
        self._client = client
        self._address_of = address_of

    async def __call__(self, changes: Sequence[IsrChange]) -> list[Answer]:
        controller = self._cluster.image.controller_id
        if controller == self._broker:
            return await change_isrs(self._cluster, changes)
        address = None if controller == NO_BROKER else self._address_of(controller)
        if address is None:
            raise NotController("there is no controller")
        answer = await self._client.ask(address, self._request(changes), _TIMEOUT_S)
        if answer.error_code == ErrorCode.not_controller:
            raise NotController(f"broker {controller} is not the controller")
        check(answer.error_code, f"broker {controller}, the controller")
        return _answers(changes, answer)

    def _request(self, changes: Sequence[IsrChange]) -> Request:
        topics: dict[UUID, list[dict[str, Any]]] = {}
        for change in changes:
            part = {
                "partition_index": change.partition,
                "leader_epoch": change.leader_epoch,
                "new_isr_with_epochs": [
                    {"broker_id": one, "broker_epoch": epoch} for one, epoch in change.isr.items()
                ],
                "new_isr": list(change.isr),
                "leader_recovery_state": 0,
                "partition_epoch": change.partition_epoch,
            }
            topics.setdefault(change.topic_id, []).append(part)
        me = self._cluster.image.brokers.get(self._broker)
        values = {
            "broker_id": self._broker,
            "broker_epoch": -1 if me is None else me.epoch,
            "topics": [{"topic_id": id, "partitions": parts} for id, parts in topics.items()],
        }
        return Request(ALTER_PARTITION, values)


def _answers(changes: Sequence[IsrChange], answer: Any) -> list[Answer]:
    """In the order of the changes."""
    found = {
        (topic.topic_id, part.partition_index): part for topic in answer.topics for part in topic.partitions
    }
    return [_answer(change, found.get((change.topic_id, change.partition))) for change in changes]


def _answer(change: IsrChange, part: Any) -> Answer:
    what = f"{change.topic.kafka}-{change.partition}"
    if part is None:
        return Invalid(f"{what}: the controller's answer does not have it")
    if part.error_code:
        kind = _KINDS.get(part.error_code) or kind_of(part.error_code)
        return kind(f"{what}: {error_name(part.error_code)}")
    isr = tuple(map(BrokerId, part.isr))
    return Written(BrokerId(part.leader_id), LeaderEpoch(part.leader_epoch), part.partition_epoch, isr)
