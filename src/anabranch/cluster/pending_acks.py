"""Pending acknowledgements on the coordinators: kept until transactions end, then told to subscriptions.

    PendingAcks ─> StoredPendingAcks ─> SubscriptionStates   __subscription_state
    Markers     ─> AckEnds ─────────┬─> SubscriptionStates   which subscriptions
                                    └─> Topics               opened for it, if nobody uses them

A record of an unknown transaction is left over from one whose own records were lost, by a power failure for
instance.  It would hold back its messages forever, so it is dropped and they are delivered again.
"""

import logging
from collections.abc import Callable

from anabranch.base.errors import CoordinatorLoading, NotCoordinator, UnknownTopic
from anabranch.base.ids import TopicName
from anabranch.cluster.positions import StoredPositions
from anabranch.groups.records import OffsetKey
from anabranch.groups.subscription_states import SubscriptionStates
from anabranch.groups.transaction_ids import TxnId
from anabranch.meta.image import ClusterImage, part_name
from anabranch.subscriptions.durable import CursorName
from anabranch.topics.errors import NotAllowed, SubscriptionNotFound
from anabranch.topics.registry import Topics
from anabranch.topics.topic import Topic
from anabranch.topics.transactions import Transactions

log = logging.getLogger(__name__)


class StoredPendingAcks:
    """A `PendingAckStore`."""

    def __init__(
        self,
        states: SubscriptionStates,
        stored: StoredPositions,
        transactions: Transactions,
        *,
        is_alone: bool,
    ) -> None:
        """`is_alone`: there are no other brokers, so the ends of transactions come to where topics are."""
        self._states = states
        self._stored = stored
        self._transactions = transactions
        self._is_alone = is_alone

    async def of(self, name: CursorName) -> dict[TxnId, dict[int, bytes]]:
        found = await self._stored.pending_acks(name)
        for txn in list(found):
            if not self._may_be_undecided(txn):
                log.warning(
                    "%s-%d, subscription %s: transaction %s is not known, its acknowledgements are dropped",
                    name.topic,
                    name.partition,
                    name.subscription,
                    txn,
                )
                await self.drop(name, txn)
                del found[txn]
        return found

    def _may_be_undecided(self, txn: TxnId) -> bool:
        try:
            return self._transactions.is_undecided(txn)
        except (CoordinatorLoading, NotCoordinator):  # only who has it knows what has become of it
            return True

    async def write(self, name: CursorName, txn: TxnId, number: int, ack: bytes) -> None:
        if not self._is_alone:
            raise NotAllowed("transactions acknowledge no messages on a cluster of several brokers yet")
        await self._states.write_pending_ack(OffsetKey(*name), txn, number, ack)

    async def drop(self, name: CursorName, txn: TxnId) -> None:
        await self._stored.drop_pending_acks(name, txn)


class AckEnds:
    """`SubscriptionEnds` for the markers of transactions."""

    def __init__(self, states: SubscriptionStates, topics: Topics, image: Callable[[], ClusterImage]) -> None:
        self._states = states
        self._topics = topics
        self._image = image

    async def end(self, index: int, producer_id: int, *, commit: bool) -> None:
        for name, txn in await self._states.acknowledged_by(index, producer_id):
            try:
                topic = await self._topics.open(self._name_of(name))
                assert isinstance(topic, Topic)
                await topic.end_transaction(txn, name.group_id, commit=commit)
            except (UnknownTopic, SubscriptionNotFound):
                await self._states.drop_pending_acks(name, txn)

    def _name_of(self, name: OffsetKey) -> TopicName:
        found = part_name(self._image(), name.topic, name.partition)
        if found is None:
            raise UnknownTopic(f"there is no topic {name.topic!r}, partition {name.partition}")
        return found
