"""Transactions as what they are to the coordinator: a name, an id and an epoch.

Whoever has these can end one; it need not be who began it.  That is how the driver commits what tasks wrote.
"""

from typing import NamedTuple

from anabranch.client.answers import check
from anabranch.client.blocking import Client
from anabranch.client.destinations import ANY, TRANSACTIONS, Coordinator
from anabranch.client.requests import END_TXN, INIT_PRODUCER_ID, Request


class Transaction(NamedTuple):
    """Who may end it.  Travels to the driver."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


def init_producer(client: Client, transactional_id: str | None, timeout_ms: int) -> Transaction:
    """An id and epoch; for a transactional id, all earlier ones of that name are stopped."""
    values = {
        "transactional_id": transactional_id,
        "transaction_timeout": timeout_ms,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    to = ANY if transactional_id is None else Coordinator(TRANSACTIONS, transactional_id)
    answer = client.send(to, Request(INIT_PRODUCER_ID, values))
    check(answer.error_code, f"a producer {transactional_id or ''}")
    return Transaction(transactional_id or "", answer.producer_id, answer.producer_epoch)


def end_transaction(client: Client, transaction: Transaction, commit: bool) -> None:
    """Commit or abort; the same again does no harm."""
    name = transaction.transactional_id
    values = {**transaction._asdict(), "committed": commit}
    answer = client.send(Coordinator(TRANSACTIONS, name), Request(END_TXN, values))
    check(answer.error_code, f"the end of transaction {name!r}")
