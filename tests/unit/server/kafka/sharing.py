"""Share consumers as they speak: a member of a group, its session, and what it says about records."""

from typing import Any
from uuid import UUID

from anabranch.groups.share_state import NOT_INITIALISED, ShareKey
from anabranch.wire.kafka.schema import ErrorCode
from tests.unit.server.kafka.whole_broker import WholeBroker

FETCH, ACKNOWLEDGE = 78, 79
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)


async def share(broker: WholeBroker, group: str, topic: str, start: int = NOT_INITIALISED) -> UUID:
    """Let the group begin with the topic, as its coordinator would; the topic's id."""
    image = broker.image.topics_by_kafka_name[topic]
    for index in range(len(image.partitions)):
        await broker.services.share_groups.states.initialise(ShareKey(group, image.id, index), 1, start)
    return image.id


class ShareMember:
    """A consumer of partition 0 of a topic, unless told otherwise."""

    def __init__(self, broker: WholeBroker, topic_id: UUID, name: str, group: str = "g") -> None:
        self.broker = broker
        self.topic_id = topic_id
        self.name = name
        self.group = group
        self.epoch = 0
        self.connection_id = hash(name) % 1_000_000

    async def fetch(
        self,
        *acks: tuple[Any, ...],
        partitions: tuple[int, ...] = (0,),
        version: int = 2,
        epoch: int | None = None,
        **options: Any,
    ) -> Any:
        """The answer as it came.  `acks` are first offset, last offset, types, for partition 0."""
        asked = {"max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 100, "batch_size": 100}
        told = self._partitions(acks, partitions)
        self.broker.connection_id = self.connection_id
        answer = await self.broker.ask(
            FETCH,
            version,
            group_id=self.group,
            member_id=self.name,
            share_session_epoch=self.epoch if epoch is None else epoch,
            topics=[{"topic_id": self.topic_id, "partitions": told}] if told else [],
            **(asked | options),
        )
        if answer.error_code is ErrorCode.none and epoch is None:
            self.epoch += 1
        return answer

    async def take(self, *acks: tuple[Any, ...], **options: Any) -> list[tuple[int, int, int]]:
        """What was acquired of partition 0: first offset, last offset, delivery count."""
        answer = await self.fetch(*acks, **options)
        assert answer.error_code is ErrorCode.none, answer.error_message
        return [
            (one.first_offset, one.last_offset, one.delivery_count)
            for topic in answer.responses
            for part in topic.partitions
            if part.partition_index == 0
            for one in part.acquired_records
        ]

    async def acknowledge(
        self, *acks: tuple[Any, ...], version: int = 2, epoch: int | None = None, **options: Any
    ) -> str:
        """The name of the error that came of it."""
        told = self._partitions(acks, ())
        self.broker.connection_id = self.connection_id
        answer = await self.broker.ask(
            ACKNOWLEDGE,
            version,
            group_id=self.group,
            member_id=self.name,
            share_session_epoch=self.epoch if epoch is None else epoch,
            topics=[{"topic_id": self.topic_id, "partitions": told}] if told else [],
            **options,
        )
        if answer.error_code is not ErrorCode.none:
            return answer.error_code.name
        if epoch is None:
            self.epoch += 1
        codes = {part.error_code for topic in answer.responses for part in topic.partitions}
        return codes.pop().name if codes else "none"

    def _partitions(self, acks: tuple[Any, ...], partitions: tuple[int, ...]) -> list[dict[str, Any]]:
        batches = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": types}
            for first, last, *types in acks
        ]
        named = {0} if batches else set()
        return [
            {"partition_index": index, "acknowledgement_batches": batches if index == 0 else []}
            for index in sorted(named | (set(partitions) if self.epoch == 0 else set()))
        ]
