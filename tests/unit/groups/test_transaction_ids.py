"""Pulsar's TxnIDs and Kafka's transactional ids."""

from anabranch.groups.effects import Producer
from anabranch.groups.transaction_ids import TxnId, coordinator_of, transactional_id


def test_an_id_says_where_its_transaction_is_kept() -> None:
    txn = TxnId.of(3, Producer(17, 1))
    assert txn == TxnId(3, 557057)
    assert txn.producer == Producer(17, 1)
    assert txn.transactional_id == "__pulsar-transaction-3-17" == transactional_id(3, 17)
    assert str(txn) == "(3,557057)"
    assert coordinator_of(txn.transactional_id) == 3


def test_ids_that_nobody_was_given() -> None:
    assert TxnId(0, (1 << 63) - 1).is_possible
    assert not TxnId(0, 1 << 63).is_possible
    for name in ("payments", "__pulsar-transaction-", "__pulsar-transaction-3", "__pulsar-transaction-x-1"):
        assert coordinator_of(name) is None
