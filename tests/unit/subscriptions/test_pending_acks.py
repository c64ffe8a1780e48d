"""What transactions hold of a subscription; the random part is in tests/model."""

import time
from collections.abc import Callable

import pytest

from anabranch.base.errors import Corrupt, Throttled
from anabranch.groups.transaction_ids import TxnId
from anabranch.subscriptions import pending_acks as module
from anabranch.subscriptions.cursor import Cursor
from anabranch.subscriptions.pending_acks import (
    EntryAck,
    PendingAck,
    PendingAcks,
    TransactionConflict,
    decode,
    encode,
)
from tests.support.speed import slowness

ONE, TWO = TxnId(0, 1 << 15), TxnId(3, 2 << 15)
MANY = 1 << 20  # messages, the most that a batch may claim


def entry(offset: int, count: int = 1) -> EntryAck:
    return EntryAck(offset, [(offset, offset + count)])


def test_a_request_with_one_conflict_holds_nothing() -> None:
    pending = PendingAcks(Cursor(0))
    pending.individual(ONE, [entry(5)])
    with pytest.raises(TransactionConflict):
        pending.individual(TWO, [entry(4), entry(5)])
    assert not pending.holds(4, 5)
    with pytest.raises(TransactionConflict):
        pending.individual(TWO, [entry(7), entry(7)])
    assert not pending.holds(7, 8)
    pending.individual(TWO, [entry(4)])
    assert sorted(pending) == [ONE, TWO]


def test_what_is_acknowledged_is_nobodys() -> None:
    cursor = Cursor(3)
    cursor.ack(6, 8)
    pending = PendingAcks(cursor)
    for offset in (2, 6, 7):
        with pytest.raises(TransactionConflict):
            pending.individual(ONE, [entry(offset)])
    pending.individual(ONE, [entry(3)])


def test_which_messages_of_a_batch_are_left() -> None:
    cursor = Cursor(0)
    pending = PendingAcks(cursor)
    assert pending.left(0, 70) is None
    pending.individual(ONE, [EntryAck(0, [(0, 2), (65, 70)])])
    assert pending.left(0, 70) == [-4, 1]
    cursor.ack(64, 65)
    assert pending.left(0, 70) == [-4]
    assert not pending.all_settled(0, 70)
    pending.individual(TWO, [EntryAck(0, [(2, 64)])])
    assert pending.all_settled(0, 70)
    assert pending.left(0, 70) == []


def test_one_transaction_goes_up_to_a_place_at_a_time() -> None:
    pending = PendingAcks(Cursor(10))
    with pytest.raises(TransactionConflict):
        pending.cumulative(ONE, 10)
    pending.cumulative(ONE, 12)
    pending.cumulative(ONE, 15)
    for txn, end in ((ONE, 15), (ONE, 11), (TWO, 20)):
        with pytest.raises(TransactionConflict):
            pending.cumulative(txn, end)
    assert pending.ended(ONE).up_to == 15
    pending.cumulative(TWO, 20)


def test_they_are_kept_by_number_and_come_back() -> None:
    before = PendingAcks(Cursor(0))
    before.individual(ONE, [entry(4, 3)])
    before.cumulative(ONE, 9)
    assert before.next_number(ONE) == 2
    after = PendingAcks(Cursor(0))
    after.restore(ONE, {3: encode(PendingAck([], 9)), 0: encode(PendingAck([(4, [(4, 7)])]))})
    assert after.acknowledged(ONE) == before.acknowledged(ONE)
    assert after.next_number(ONE) == 4
    assert (after.end, after.holds(6, 7), after.holds(7, 8)) == (7, True, False)
    for data in (b"", b"\x93", b"\x92\xa1a\x01"):
        with pytest.raises(Corrupt):
            decode(data)


def test_a_request_that_could_not_be_kept() -> None:
    pending = PendingAcks(Cursor(0))
    pending.individual(ONE, [entry(1)])
    pending.individual(ONE, [entry(2)])
    pending.withdraw(ONE, PendingAck([(2, [(2, 3)])]))
    assert pending.acknowledged(ONE).entries == [entry(1)]
    assert not pending.holds(2, 3)
    pending.cumulative(ONE, 5)
    pending.withdraw(ONE, PendingAck([], 5))
    assert pending.acknowledged(ONE).up_to is None
    pending.withdraw(TWO, PendingAck([], 5))
    pending.cumulative(ONE, 5)
    pending.cumulative(ONE, 9)
    pending.withdraw(ONE, PendingAck([], 9))
    assert pending.ended(ONE).up_to == 5


def test_there_is_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_REQUESTS", 2)
    pending = PendingAcks(Cursor(0))
    pending.individual(ONE, [entry(1)])
    pending.individual(TWO, [entry(2)])
    with pytest.raises(Throttled):
        pending.individual(TWO, [entry(3)])
    with pytest.raises(Throttled):
        pending.cumulative(TWO, 3)
    pending.ended(ONE)
    pending.individual(TWO, [entry(3)])


@pytest.mark.parametrize("run", [MANY, 16])
def test_a_batch_that_claims_a_million_messages_stalls_nobody(run: int) -> None:
    """One transaction holds every other run of them, the rest is acknowledged.  By the message each question
    takes a quarter of a second or more."""
    cursor = Cursor(0)
    pending = PendingAcks(cursor)
    pending.individual(ONE, [EntryAck(0, [(at, at + run) for at in range(0, MANY, 2 * run)])])
    for at in range(run, MANY, 2 * run):
        cursor.ack(at, at + run)
    cursor.ack(MANY - 2, MANY)  # these are both
    assert pending.all_settled(0, MANY)
    assert not pending.all_settled(0, MANY + 1)
    assert pending.left(0, MANY) == []
    assert pending.left(0, MANY + 70) == [*[0] * (MANY // 64), -1, 0b111111]
    for asked in (
        lambda: pending.all_settled(0, MANY),
        lambda: pending.left(0, MANY),
        lambda: cursor.unacked_words(0, MANY),
    ):
        assert quickest_s(asked) < 0.02 * slowness()


def quickest_s(asked: Callable[[], object]) -> float:
    spent_s = []
    for _ in range(3):
        began_s = time.process_time()
        asked()
        spent_s.append(time.process_time() - began_s)
    return min(spent_s)
