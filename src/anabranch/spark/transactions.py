"""Transactions as what they are to the coordinator: a name, an id and an epoch.

Whoever has these can end one; it need not be who began it.  That is how the driver commits what tasks wrote.
"""

from typing import Any, NamedTuple

from anabranch.spark.answers import check
from anabranch.spark.cluster import TRANSACTIONS, Cluster
from anabranch.spark.connection import END_TXN, INIT_PRODUCER_ID


class Transaction(NamedTuple):
    """Who may end it.  Travels to the driver."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


def init_producer(cluster: Cluster, transactional_id: str | None, timeout_ms: int) -> Transaction:
    """An id and epoch; for a transactional id, all earlier ones of that name are stopped."""
    values = {
        "transactional_id": transactional_id,
        "transaction_timeout": timeout_ms,
        "producer_id": -1,
        "producer_epoch": -1,
    }

    def read(answer: Any) -> Transaction:
        check(answer.error_code, f"a producer {transactional_id or ''}")
        return Transaction(transactional_id or "", answer.producer_id, answer.producer_epoch)

    if transactional_id is None:
        return cluster.persist(lambda: read(cluster.ask_any(INIT_PRODUCER_ID, values)))
    return cluster.to_coordinator(TRANSACTIONS, transactional_id, INIT_PRODUCER_ID, values, read)


def end_transaction(cluster: Cluster, transaction: Transaction, commit: bool) -> None:
    """Commit or abort; the same again does no harm."""

    def read(answer: Any) -> None:
        check(answer.error_code, f"the end of transaction {transaction.transactional_id!r}")

    values = {**transaction._asdict(), "committed": commit}
    cluster.to_coordinator(TRANSACTIONS, transaction.transactional_id, END_TXN, values, read)
