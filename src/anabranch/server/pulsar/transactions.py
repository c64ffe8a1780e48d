"""Transactions: begun, told what takes part in them, ended (`topics/transactions.py`).

    TC_CLIENT_CONNECT_REQUEST   a client makes sure that a coordinator is here
    NEW_TXN                     a transaction, and how long it may last
    ADD_PARTITION_TO_TXN        topics that messages of it will be sent to, before they are
    ADD_SUBSCRIPTION_TO_TXN     subscriptions that it will acknowledge messages of
    END_TXN                     commit or abort; answered when that has happened everywhere
    END_TXN_ON_PARTITION        a coordinator elsewhere would say so to the brokers of its topics and
    END_TXN_ON_SUBSCRIPTION     subscriptions.  Here they share its state: it is done if it is decided

Where transactions are switched off each is refused, as Pulsar's brokers do unless somebody switches them on.
While a coordinator is not there yet clients are told to look for it again, which they do by themselves.
"""

from collections.abc import Coroutine
from typing import Any

from anabranch.base.errors import NotOwner, Throttled, Unavailable
from anabranch.groups.transaction_ids import TxnId
from anabranch.groups.transaction_records import TopicPartition
from anabranch.server.pulsar.connection import PulsarConnection
from anabranch.server.pulsar.errors import NoTransactions, code_of
from anabranch.server.pulsar.registry import Later, Refusal, command, error_answer
from anabranch.server.pulsar.services import PulsarServices
from anabranch.server.pulsar.topic_access import topic_name
from anabranch.server.pulsar.transactional import check_enabled
from anabranch.topics.errors import InvalidTransactionStatus, TransactionCoordinatorNotFound
from anabranch.wire.pulsar import commands_pb2 as pb

Type = pb.BaseCommand.Type
_NOT_ENABLED = code_of(NoTransactions())


def _answer(type: Type, response: pb.TransactionResponse) -> pb.BaseCommand:
    field = pb.BaseCommand.DESCRIPTOR.fields_by_number[type].name
    return pb.BaseCommand(type=type, **{field: response})  # type: ignore[arg-type]


def _refused_by(type: Type) -> Refusal:
    """Refusals have the form of the answer."""

    def refused(request: Any, code: pb.ServerError, message: str) -> pb.BaseCommand:
        if code == _NOT_ENABLED:  # but this one, in Pulsar too
            return error_answer(request, code, message)
        told = pb.TransactionResponse(request_id=request.request_id, error=code, message=message)
        if not isinstance(request, pb.NewTransaction):
            told.txnid_most_bits, told.txnid_least_bits = request.txnid_most_bits, request.txnid_least_bits
        return _answer(type, told)

    return refused


async def _now_or_later(work: Coroutine[Any, Any, None]) -> None:
    """A coordinator that is not there yet is one that clients look for again."""
    try:
        await work
    except Throttled:
        raise
    except (Unavailable, NotOwner) as error:
        raise TransactionCoordinatorNotFound(str(error)) from error


def _succeed(connection: PulsarConnection, type: Type, request_id: int, txn: TxnId) -> None:
    told = pb.TransactionResponse(
        request_id=request_id, txnid_most_bits=txn.coordinator, txnid_least_bits=txn.number
    )
    connection.send(_answer(type, told))


def _txn_of(request: Any) -> TxnId:
    return TxnId(request.txnid_most_bits, request.txnid_least_bits)


# --- the coordinator


def connect_refused(request: Any, code: pb.ServerError, message: str) -> pb.BaseCommand:
    if code == _NOT_ENABLED:
        return error_answer(request, code, message)
    told = pb.CoordinatorConnectResponse(request_id=request.request_id, error=code, message=message)
    return pb.BaseCommand(type=pb.BaseCommand.TC_CLIENT_CONNECT_RESPONSE, coordinator_connect_response=told)


@command(pb.BaseCommand.TC_CLIENT_CONNECT_REQUEST, refusal=connect_refused)
def connect(request: pb.CoordinatorConnect, connection: PulsarConnection) -> None:
    check_enabled(connection.services)
    connection.services.transactions.check_coordinator(request.coordinator_id)
    told = pb.CoordinatorConnectResponse(request_id=request.request_id)
    connection.send(
        pb.BaseCommand(type=pb.BaseCommand.TC_CLIENT_CONNECT_RESPONSE, coordinator_connect_response=told)
    )


@command(pb.BaseCommand.NEW_TXN, refusal=_refused_by(pb.BaseCommand.NEW_TXN_RESPONSE))
def new(request: pb.NewTransaction, connection: PulsarConnection) -> Later:
    check_enabled(connection.services)
    return _now_or_later(_begin(request, connection))


async def _begin(request: pb.NewTransaction, connection: PulsarConnection) -> None:
    txn = await connection.services.transactions.begin(request.coordinator_id, request.ttl_ms)
    _succeed(connection, pb.BaseCommand.NEW_TXN_RESPONSE, request.request_id, txn)


@command(
    pb.BaseCommand.ADD_PARTITION_TO_TXN, refusal=_refused_by(pb.BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE)
)
def add_partitions(request: pb.AddPartitionToTransaction, connection: PulsarConnection) -> Later:
    check_enabled(connection.services)
    return _now_or_later(_add_partitions(request, connection))


async def _add_partitions(request: pb.AddPartitionToTransaction, connection: PulsarConnection) -> None:
    txn = _txn_of(request)
    services = connection.services
    found = [_place_of(services, name) for name in request.partitions]
    await services.transactions.add(txn, [place for place in found if place is not None])
    _succeed(connection, pb.BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE, request.request_id, txn)


def _place_of(services: PulsarServices, name: str) -> TopicPartition | None:
    """None if there is no such topic: nothing can be sent to it either."""
    located = services.catalog.locate(topic_name(name))
    return None if located is None else (located.topic.name.kafka, located.partition)


@command(
    pb.BaseCommand.ADD_SUBSCRIPTION_TO_TXN,
    refusal=_refused_by(pb.BaseCommand.ADD_SUBSCRIPTION_TO_TXN_RESPONSE),
)
def add_subscriptions(request: pb.AddSubscriptionToTransaction, connection: PulsarConnection) -> Later:
    check_enabled(connection.services)
    return _now_or_later(_add_subscriptions(request, connection))


async def _add_subscriptions(request: pb.AddSubscriptionToTransaction, connection: PulsarConnection) -> None:
    txn = _txn_of(request)
    names = [each.subscription for each in request.subscription]
    await connection.services.transactions.add_subscriptions(txn, names)
    _succeed(connection, pb.BaseCommand.ADD_SUBSCRIPTION_TO_TXN_RESPONSE, request.request_id, txn)


# --- the end


@command(pb.BaseCommand.END_TXN, refusal=_refused_by(pb.BaseCommand.END_TXN_RESPONSE))
def end(request: pb.EndTransaction, connection: PulsarConnection) -> Later:
    check_enabled(connection.services)
    return _now_or_later(_end(request, connection))


async def _end(request: pb.EndTransaction, connection: PulsarConnection) -> None:
    txn = _txn_of(request)
    await connection.services.transactions.end(txn, commit=request.action == pb.COMMIT)
    _succeed(connection, pb.BaseCommand.END_TXN_RESPONSE, request.request_id, txn)


@command(
    pb.BaseCommand.END_TXN_ON_PARTITION, refusal=_refused_by(pb.BaseCommand.END_TXN_ON_PARTITION_RESPONSE)
)
def end_on_partition(request: pb.EndTransactionOnPartition, connection: PulsarConnection) -> None:
    _check_decided(request, connection)
    _succeed(connection, pb.BaseCommand.END_TXN_ON_PARTITION_RESPONSE, request.request_id, _txn_of(request))


@command(
    pb.BaseCommand.END_TXN_ON_SUBSCRIPTION,
    refusal=_refused_by(pb.BaseCommand.END_TXN_ON_SUBSCRIPTION_RESPONSE),
)
def end_on_subscription(request: pb.EndTransactionOnSubscription, connection: PulsarConnection) -> None:
    _check_decided(request, connection)
    _succeed(
        connection, pb.BaseCommand.END_TXN_ON_SUBSCRIPTION_RESPONSE, request.request_id, _txn_of(request)
    )


def _check_decided(request: Any, connection: PulsarConnection) -> None:
    check_enabled(connection.services)
    txn = _txn_of(request)
    if connection.services.transactions.is_undecided(txn):
        raise InvalidTransactionStatus(f"transaction {txn} is not ended: that is for its coordinator to do")
