"""Transactions: their coordinators, what each has done, and an end to those that hang.

/admin/v3/transactions/...        what `pulsar-admin transactions` asks for
"""

from anabranch.admin.call import Call, whole_number
from anabranch.admin.errors import Refused
from anabranch.admin.parts import one_part
from anabranch.admin.routes import get, post
from anabranch.groups.subscription_states import SUBSCRIPTION_TOPIC
from anabranch.groups.transaction_coordinator import STATE_TOPIC
from anabranch.groups.transaction_ids import TxnId
from anabranch.groups.transaction_records import TopicPartition, Transaction
from anabranch.meta.image import part_name
from anabranch.partition.partition import Partition
from anabranch.subscriptions.subscription import Subscription
from anabranch.topics.errors import TransactionNotFound
from anabranch.topics.topic import Topic
from anabranch.topics.transaction_stats import (
    READY,
    BufferStats,
    CoordinatorInfo,
    CoordinatorStats,
    InBuffer,
    InPendingAck,
    LogStats,
    PendingAckStats,
    PositionInPendingAck,
    TransactionMetadata,
    buffer_stats,
    in_buffer,
    in_pending_ack,
    log_stats,
    metadata,
    pending_ack_stats,
    position_in_pending_ack,
)
from anabranch.topics.transactions import COORDINATORS, Transactions

_AT = "/admin/v3/transactions"
_TOPIC = "/{tenant}/{namespace}/{topic}"
_SUBSCRIPTION = _TOPIC + "/{subscription}"
_TXN = "/{most}/{least}"


def _transactions(call: Call) -> Transactions:
    pulsar = call.services.pulsar
    if not pulsar.config.current.pulsar.transactions:
        raise Refused(503, "This Broker is not configured with transactionCoordinatorEnabled=true.")
    return pulsar.transactions


def _txn(call: Call) -> TxnId:
    return TxnId(call.path_number("most"), call.path_number("least"))


async def _topic(call: Call) -> Topic:
    _transactions(call)
    return await one_part(call, "Looking at transactions")


async def _subscription(call: Call) -> tuple[Topic, Subscription]:
    topic = await _topic(call)
    return topic, topic.subscriptions.get(call.path["subscription"]).subscription


def _low_water_marks(call: Call) -> dict[int, int] | None:
    if not call.flag("lowWaterMarks"):
        return None
    return {number: _stats(_transactions(call), number).low_water_mark for number in range(COORDINATORS)}


# --- coordinators


@get(_AT + "/coordinators", answer=list[CoordinatorInfo])
async def coordinators(call: Call) -> list[CoordinatorInfo]:
    """The transaction coordinators, and who has them."""
    _transactions(call)
    url = call.services.pulsar.service_url
    return [CoordinatorInfo(number, url) for number in range(COORDINATORS)]


@get(_AT + "/coordinatorStats", answer=dict[str, CoordinatorStats], query=("coordinatorId",))
async def coordinator_stats(call: Call) -> CoordinatorStats | dict[str, CoordinatorStats]:
    """How the coordinators are doing, or one of them."""
    transactions = _transactions(call)
    if "coordinatorId" in call.query:
        return _stats(transactions, call.number("coordinatorId", 0))
    return {str(number): _stats(transactions, number) for number in range(COORDINATORS)}


def _stats(transactions: Transactions, number: int) -> CoordinatorStats:
    found = transactions.coordinator(number)
    low = found.last_number if found.least_open is None else found.least_open - 1
    return CoordinatorStats(
        READY,
        found.last_number,
        low,
        found.open_transactions,
        transactions.started_ms,
        transactions.loaded_ms,
    )


@get(_AT + "/coordinatorInternalStats/{coordinator}", answer=dict[str, LogStats], query=("metadata",))
async def coordinator_internal_stats(call: Call) -> dict[str, LogStats]:
    """How the coordinators are kept: all of them in one topic."""
    _transactions(call).check_coordinator(call.path_number("coordinator"))
    kept = call.services.partitions.find(STATE_TOPIC)
    partitions = [] if kept is None else [each for each in kept.partitions if each is not None]
    return {"transactionLogStats": log_stats(STATE_TOPIC, partitions)}


@post(_AT + "/transactionCoordinator/replicas", body=int)
async def scale(call: Call) -> None:
    """Refused: coordinators are names here, more of them serve nothing."""
    _transactions(call)
    if call.body <= COORDINATORS:
        raise Refused(
            406,
            "Number of transaction coordinators should be more than the current number of "
            "transaction coordinator",
        )
    raise Refused(405, f"this broker has {COORDINATORS} transaction coordinators, which is all that it needs")


# --- one transaction


@get(_AT + "/transactionMetadata" + _TXN, answer=TransactionMetadata)
async def transaction_metadata(call: Call) -> TransactionMetadata:
    """A transaction: when it began, what takes part in it."""
    transactions, txn = _transactions(call), _txn(call)
    transactions.check_coordinator(txn.coordinator)
    found = transactions.find(txn)
    if found is None or not transactions.is_undecided(txn):
        raise TransactionNotFound(f"The transaction with this txnID: {txn} not found")
    return await _metadata(call, txn, found)


@get(_AT + "/slowTransactions/{timeout}", answer=dict[str, TransactionMetadata], query=("coordinatorId",))
async def slow_transactions(call: Call) -> dict[str, TransactionMetadata]:
    """Transactions that have been open for longer than so many milliseconds."""
    transactions, timeout_ms = _transactions(call), call.path_number("timeout")
    wanted = call.number("coordinatorId", -1)
    now_ms = call.services.pulsar.clock.now_ms()
    slow = {}
    for txn in transactions:
        found = transactions.find(txn)
        if found is not None and wanted in (-1, txn.coordinator) and now_ms - found.started_ms > timeout_ms:
            slow[str(txn)] = await _metadata(call, txn, found)
    return slow


async def _metadata(call: Call, txn: TxnId, found: Transaction) -> TransactionMetadata:
    produced: dict[str, InBuffer] = {}
    acked: dict[str, dict[str, InPendingAck]] = {}
    for place in sorted(found.partitions):
        if place[0] == SUBSCRIPTION_TOPIC:
            await _add_acked(call, txn, place[1], acked)
        else:
            name = part_name(call.image, *place)
            if name is not None:
                produced[name.pulsar] = in_buffer(_partition(call, place), txn)
    return metadata(txn, found, produced, acked)


async def _add_acked(call: Call, txn: TxnId, shard: int, acked: dict[str, dict[str, InPendingAck]]) -> None:
    """The subscriptions of a shard that the transaction has acknowledged messages of."""
    for subscription, topic_name, index in await _transactions(call).subscriptions_of(txn, shard):
        name = part_name(call.image, topic_name, index)
        if name is None:
            continue
        topic = await call.services.pulsar.topics.open(name)
        held = topic.subscriptions.find(subscription) if isinstance(topic, Topic) else None
        if isinstance(topic, Topic) and held is not None:
            acked.setdefault(name.pulsar, {})[subscription] = in_pending_ack(topic, held, txn)


def _partition(call: Call, place: TopicPartition) -> Partition:
    return call.services.partitions.partition(*place)


@post(_AT + "/abortTransaction" + _TXN)
async def abort(call: Call) -> None:
    """Abort a transaction."""
    await _transactions(call).end(_txn(call), commit=False)


# --- topics and subscriptions


@get(_AT + "/transactionInBufferStats" + _TOPIC + _TXN, answer=InBuffer)
async def transaction_in_buffer(call: Call) -> InBuffer:
    """A transaction in a topic."""
    return in_buffer((await _topic(call)).partition, _txn(call))


@get(_AT + "/transactionBufferStats" + _TOPIC, answer=BufferStats, query=("lowWaterMarks", "segmentStats"))
async def transaction_buffer(call: Call) -> BufferStats:
    """Transactions in a topic."""
    return buffer_stats(await _topic(call), _low_water_marks(call))


@get(_AT + "/transactionBufferInternalStats" + _TOPIC, query=("metadata",))
async def transaction_buffer_internal(call: Call) -> None:
    """There are no snapshots: the log lists what was aborted."""
    await _topic(call)
    raise Refused(404, "Transaction buffer Snapshot for the topic does not exist")


@get(_AT + "/transactionInPendingAckStats" + _SUBSCRIPTION + _TXN, answer=InPendingAck)
async def transaction_in_pending_ack(call: Call) -> InPendingAck:
    """A transaction in a subscription."""
    return in_pending_ack(*await _subscription(call), _txn(call))


@get(_AT + "/pendingAckStats" + _SUBSCRIPTION, answer=PendingAckStats, query=("lowWaterMarks",))
async def pending_acks(call: Call) -> PendingAckStats:
    """Transactions in a subscription."""
    return pending_ack_stats(*await _subscription(call), _low_water_marks(call))


@get(_AT + "/pendingAckInternalStats" + _SUBSCRIPTION, answer=dict[str, LogStats], query=("metadata",))
async def pending_acks_internal(call: Call) -> dict[str, LogStats]:
    """How what transactions have acknowledged is kept."""
    _, subscription = await _subscription(call)
    place = _transactions(call).place_of(subscription.name)
    return {"pendingAckLogStats": log_stats(f"{place[0]}-{place[1]}", [_partition(call, place)])}


@get(
    _AT + "/positionStatsInPendingAck" + _SUBSCRIPTION + "/{ledger}/{entry}",
    answer=PositionInPendingAck,
    query=("batchIndex",),
)
async def position(call: Call) -> PositionInPendingAck:
    """Whether a message is acknowledged by a transaction."""
    topic, subscription = await _subscription(call)
    call.path_number("ledger")
    text = call.query.get("batchIndex")
    index = None if text is None else whole_number(text, "batchIndex")
    return position_in_pending_ack(topic, subscription, call.path_number("entry"), index)
