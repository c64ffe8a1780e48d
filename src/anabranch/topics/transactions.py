"""Pulsar's transactions, on the coordinator that Kafka's have.

    NEW_TXN       begin(coordinator, timeout) -> TxnId       Ongoing in `__transaction_state`, nothing in it
    ADD_..._TXN   add(txn, places), add_subscriptions(...)   partitions, and those that keep subscriptions
    SEND, ACK     check(txn, place), check_subscription(...) whether it is open and was told of it
    END_TXN       end(txn, commit=...)                       markers, as for Kafka's; subscriptions are told

Which coordinator a client picks only spreads its requests: here they are names.  A producer id that is free
again is taken before a new one is (`groups/transaction_ids.py`).

A transaction is aborted when its time is over, whether its client is there or not.  One that has ended is not
found any more; but who repeats an end, not knowing whether it was heard, is told that it is done, for as long
as nothing else was begun under the same producer id.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from anabranch.base.clock import Clock
from anabranch.base.errors import AnabranchError, CoordinatorLoading, NotCoordinator, Throttled, Unavailable
from anabranch.groups.effects import Producer
from anabranch.groups.records import OffsetKey
from anabranch.groups.subscription_states import SUBSCRIPTION_TOPIC, SubscriptionStates
from anabranch.groups.transaction_coordinator import NoTransactions, TransactionCoordinator
from anabranch.groups.transaction_ids import TxnId, coordinator_of, transactional_id
from anabranch.groups.transaction_records import State, TopicPartition, Transaction
from anabranch.groups.transactions import EPOCH_BUMP, PREPARED, is_resting
from anabranch.topics.errors import (
    InvalidTransactionStatus,
    NotAllowed,
    TransactionCoordinatorNotFound,
    TransactionNotFound,
)
from anabranch.wire.kafka.schema import ErrorCode

log = logging.getLogger(__name__)

COORDINATORS = 16
"""As many as Pulsar sets up by default."""

_LONGEST_MS = (1 << 31) - 1  # what a record of `__transaction_state` can hold: 24 days
_AGAIN_S = 1.0
_OUTCOMES = {
    State.PREPARE_COMMIT: True,
    State.COMPLETE_COMMIT: True,
    State.PREPARE_ABORT: False,
    State.COMPLETE_ABORT: False,
}


class Coordinator(NamedTuple):
    """What is told of one of them."""

    last_number: int
    open_transactions: int
    least_open: int | None


class Transactions:
    def __init__(
        self,
        coordinator: TransactionCoordinator,
        new_producer_id: Callable[[], Awaitable[int]],
        clock: Clock,
        max_open: Callable[[], int],
        states: SubscriptionStates,
    ) -> None:
        """`max_open` is how many a coordinator may have open, 0 for any number."""
        self._coordinator = coordinator
        self._new_producer_id = new_producer_id
        self._clock = clock
        self._max_open = max_open
        self._states = states
        self._timers: dict[TxnId, asyncio.TimerHandle] = {}  # of those that are open
        self._open: Counter[int] = Counter()  # by coordinator
        self._last: Counter[int] = Counter()  # the largest number given out, by coordinator
        self._free: dict[int, dict[str, None]] = {number: {} for number in range(COORDINATORS)}
        self._aborting: set[asyncio.Task[None]] = set()
        self.loaded_ms = 0
        self.started_ms = clock.now_ms()

    async def load(self) -> None:
        """Find what was open when the broker stopped; its time runs on."""
        self._coordinator.on_loaded = self._take_up
        await self._coordinator.loaded()
        self._take_up(self._coordinator.known())
        self.loaded_ms = self._clock.now_ms()

    def _take_up(self, transactions: Mapping[str, Transaction]) -> None:
        for id, found in transactions.items():
            number = coordinator_of(id)
            if number is None or number >= COORDINATORS:
                continue
            txn = TxnId.of(number, Producer(found.producer_id, found.epoch))
            if txn.transactional_id != id:
                continue  # a Kafka client's, that has called itself so
            self._last[number] = max(self._last[number], txn.number)
            if found.state is State.ONGOING and txn not in self._timers:
                self._opened(txn, found.started_ms + found.timeout_ms - self._clock.now_ms())
            elif is_resting(found):
                self._free[number][id] = None

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        for task in self._aborting:
            task.cancel()

    # --- beginning

    def check_coordinator(self, number: int) -> None:
        if not 0 <= number < COORDINATORS:
            raise TransactionCoordinatorNotFound(f"Transaction coordinator with id {number} not found!")

    async def begin(self, coordinator: int, timeout_ms: int) -> TxnId:
        """A transaction that ends by itself if nobody ends it within `timeout_ms`."""
        self.check_coordinator(coordinator)
        most = self._max_open()
        if 0 < most <= self._open[coordinator]:
            raise Throttled(
                f"coordinator {coordinator} has {most} transactions open, which is the most it may have"
            )
        timeout_ms = min(timeout_ms, _LONGEST_MS)
        txn = TxnId.of(coordinator, await self._begin(coordinator, timeout_ms))
        self._last[coordinator] = max(self._last[coordinator], txn.number)
        self._opened(txn, timeout_ms)
        return txn

    async def _begin(self, coordinator: int, timeout_ms: int) -> Producer:
        free = self._free[coordinator]
        while free:
            producer = _producer(await self._coordinator.begin(free.popitem()[0], timeout_ms))
            if producer is not None:  # it may have expired, or be used up
                return producer
        new_id = await self._new_producer_id()
        id = transactional_id(coordinator, new_id)
        producer = _producer(await self._coordinator.begin(id, timeout_ms, new_id))
        if producer is None:
            raise Unavailable(f"somebody else uses the transactional id {id}; try again")
        return producer

    def _opened(self, txn: TxnId, timeout_ms: int) -> None:
        self._open[txn.coordinator] += 1
        self._wake_in(txn, max(0, timeout_ms + 1) / 1000)

    def _wake_in(self, txn: TxnId, seconds: float) -> None:
        self._timers[txn] = asyncio.get_running_loop().call_later(seconds, self._timed_out, txn)

    # --- what is in it

    async def add(self, txn: TxnId, places: Iterable[TopicPartition]) -> None:
        """`places` take part.  TransactionNotFound, InvalidTransactionStatus."""
        self._check_open(txn)
        code = await self._coordinator.add(txn.transactional_id, txn.producer, places, EPOCH_BUMP)
        if code == ErrorCode.concurrent_transactions:
            raise InvalidTransactionStatus(f"transaction {txn} is being ended")
        if code:
            raise TransactionNotFound(f"transaction {txn} has ended")

    async def add_subscriptions(self, txn: TxnId, names: Iterable[str]) -> None:
        await self.add(txn, [self.place_of(name) for name in names])

    def place_of(self, subscription: str) -> TopicPartition:
        """The partition that keeps what is acknowledged of a subscription."""
        return SUBSCRIPTION_TOPIC, self._states.shard_of(subscription)

    def check(self, txn: TxnId, place: TopicPartition) -> None:
        """NotAllowed unless the transaction was told of `place`; it must be open."""
        if place not in self._check_open(txn).partitions:
            raise NotAllowed(f"transaction {txn} was not told of {place[0]}, partition {place[1]}")

    def check_subscription(self, txn: TxnId, name: str) -> None:
        if self.place_of(name) not in self._check_open(txn).partitions:
            raise NotAllowed(f"transaction {txn} was not told of subscription {name}")

    def _check_open(self, txn: TxnId) -> Transaction:
        found = self.find(txn)
        if found is None or not _is_on_its_way(found):
            raise TransactionNotFound(f"there is no transaction {txn}, or it has ended")
        if found.state in PREPARED:
            raise InvalidTransactionStatus(f"transaction {txn} is being ended")
        return found

    # --- ending

    async def end(self, txn: TxnId, *, commit: bool) -> None:
        """Returns when it has its end everywhere, or that could not be written yet and is tried on."""
        found = self.find(txn)
        if found is None or (not _is_on_its_way(found) and _OUTCOMES.get(found.state) != commit):
            raise TransactionNotFound(f"there is no transaction {txn}, or it has ended")
        if found.state in PREPARED and _OUTCOMES[found.state] != commit:
            other = "aborted" if commit else "committed"
            raise InvalidTransactionStatus(f"transaction {txn} is being {other}")
        if not _is_on_its_way(found):
            return
        answer = await self._coordinator.end(
            txn.transactional_id, txn.producer, commit=commit, client_version=EPOCH_BUMP
        )
        code = answer["error_code"]
        if code == ErrorCode.invalid_txn_state:
            raise InvalidTransactionStatus(f"transaction {txn} has ended otherwise meanwhile")
        if code not in (ErrorCode.none, ErrorCode.concurrent_transactions):
            raise TransactionNotFound(f"transaction {txn} has ended meanwhile")
        self._ended(txn)

    def _timed_out(self, txn: TxnId) -> None:
        task = asyncio.ensure_future(self._abort(txn))
        self._aborting.add(task)
        task.add_done_callback(self._aborting.discard)

    async def _abort(self, txn: TxnId) -> None:
        try:
            await self._coordinator.time_out(txn.transactional_id)
            found = self.find(txn)
        except NotCoordinator:  # whoever coordinates it now aborts it
            self._forget(txn)
            return
        except (AnabranchError, OSError) as error:
            log.warning(
                "transaction %s: timed out, but cannot be aborted yet, tried again soon: %s", txn, error
            )
            self._wake_in(txn, _AGAIN_S)
            return
        if found is not None and found.state is State.ONGOING:
            self._wake_in(txn, _AGAIN_S)  # its time is over by one clock and not by the other
        else:
            log.info("transaction %s: timed out, aborted", txn)
            self._ended(txn)

    def _forget(self, txn: TxnId) -> None:
        timer = self._timers.pop(txn, None)
        if timer is not None:
            timer.cancel()
            self._open[txn.coordinator] -= 1

    def _ended(self, txn: TxnId) -> None:
        self._forget(txn)
        id = txn.transactional_id
        try:
            found = self._coordinator.find(id)
        except (NotCoordinator, CoordinatorLoading):  # another one has it by now, and its id with it
            return
        if found is not None and is_resting(found):  # it may not be, for who comes while it ends
            self._free[txn.coordinator][id] = None

    # --- looking

    def find(self, txn: TxnId) -> Transaction | None:
        """What is kept of it, None if that is of another transaction by now.  CoordinatorLoading."""
        if not txn.is_possible:
            return None
        try:
            found = self._coordinator.find(txn.transactional_id)
        except NoTransactions:
            return None
        producer_id, epoch = txn.producer
        if found is None or found.producer_id != producer_id:
            return None
        # Each end moves to the next epoch.
        return found if found.epoch == epoch + (found.state is not State.ONGOING) else None

    def is_undecided(self, txn: TxnId) -> bool:
        """Whether it has not ended everywhere yet."""
        found = self.find(txn)
        return found is not None and _is_on_its_way(found)

    async def subscriptions_of(self, txn: TxnId, shard: int) -> list[OffsetKey]:
        """Those kept in a shard that it has acknowledged messages of."""
        acking = await self._states.acknowledged_by(shard, txn.producer.producer_id)
        return [name for name, by in acking if by == txn]

    def __iter__(self) -> Iterator[TxnId]:
        """Those that are open."""
        return iter(list(self._timers))

    def coordinator(self, number: int) -> Coordinator:
        self.check_coordinator(number)
        open_now = [txn.number for txn in self._timers if txn.coordinator == number]
        return Coordinator(self._last[number], len(open_now), min(open_now, default=None))


def _is_on_its_way(found: Transaction) -> bool:
    return found.state is State.ONGOING or found.state in PREPARED


def _producer(answer: dict[str, int]) -> Producer | None:
    if answer["error_code"]:
        return None
    return Producer(answer["producer_id"], answer["producer_epoch"])
