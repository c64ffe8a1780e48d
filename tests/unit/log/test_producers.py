"""Producer state: duplicates, gaps, fencing, wrap-around, transactions, expiry."""

import pytest

from anabranch.base.errors import InvalidProducerEpoch, OutOfOrderSequence, TransactionCoordinatorFenced
from anabranch.log.producers import CompletedTransaction, Producers
from anabranch.records.batch import BatchHeader, read_header
from tests.support.logs import marker, records

LAST = 2**31 - 1


def batch(
    sequence: int, count: int = 1, *, epoch: int = 0, producer: int = 7, **fields: object
) -> BatchHeader:
    return read_header(
        records(
            *(["x"] * count),
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            **fields,  # type: ignore[arg-type]
        )
    )


def wrote(*sequences: int, count: int = 1, epoch: int = 0) -> Producers:
    producers = Producers()
    for i, sequence in enumerate(sequences):
        producers.update(batch(sequence, count, epoch=epoch), i * count)
    return producers


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert Producers().check(batch(0)) is None
    assert Producers().check(batch(5)) is None


def test_the_next_sequence_and_no_other() -> None:
    producers = wrote(0, 1, 2)
    assert producers.check(batch(3)) is None
    for wrong in (4, 100, LAST):
        with pytest.raises(OutOfOrderSequence):
            producers.check(batch(wrong))


def test_a_batch_that_is_there_already_is_a_duplicate() -> None:
    producers = wrote(0, 2, 4, count=2)
    for i in range(3):
        found = producers.check(batch(2 * i, 2))
        assert found is not None
        assert (found.first_offset, found.last_offset) == (2 * i, 2 * i + 1)
    with pytest.raises(OutOfOrderSequence):
        producers.check(batch(4, 1))


def test_only_the_last_five_are_remembered() -> None:
    producers = wrote(*range(7))
    assert producers.check(batch(2)) is not None
    with pytest.raises(OutOfOrderSequence):
        producers.check(batch(1))


def test_sequences_wrap() -> None:
    producers = wrote(LAST - 1)
    producers.update(batch(LAST), 1)
    assert producers.check(batch(0)) is None
    producers.update(batch(0), 2)
    assert producers.check(batch(LAST)) is not None
    assert producers.check(batch(1)) is None


def test_a_batch_may_lie_across_the_wrap() -> None:
    producers = wrote(LAST - 1, count=4)
    state = producers.get(7)
    assert state is not None
    assert (state.batches[-1].first_sequence, state.last_sequence) == (LAST - 1, 1)
    assert producers.check(batch(LAST - 1, 4)) is not None
    assert producers.check(batch(2)) is None


def test_a_new_epoch_begins_at_zero() -> None:
    producers = wrote(0, 1)
    assert producers.check(batch(0, epoch=1)) is None
    with pytest.raises(OutOfOrderSequence):
        producers.check(batch(2, epoch=1))
    producers.update(batch(0, epoch=1), 2)
    assert producers.check(batch(1, epoch=1)) is None
    with pytest.raises(InvalidProducerEpoch):
        producers.check(batch(2, epoch=0))


def test_after_a_marker_with_a_new_epoch_it_begins_at_zero_too() -> None:
    producers = wrote(0, 1)
    producers.complete(read_header(marker(7, commit=False, epoch=1)), 2, 0, aborted=True)
    with pytest.raises(OutOfOrderSequence):
        producers.check(batch(2, epoch=1))
    assert producers.check(batch(0, epoch=1)) is None


def test_a_transaction_opens_and_ends() -> None:
    producers = Producers()
    assert producers.first_open_transaction is None
    producers.update(batch(0, transactional=True), 10)
    producers.update(batch(1, transactional=True), 11)
    producers.update(batch(0, producer=8, transactional=True), 12)
    assert producers.first_open_transaction == 10
    ended = producers.complete(read_header(marker(7, commit=False)), 13, 0, aborted=True)
    assert ended == CompletedTransaction(7, 10, 13, True)
    assert producers.first_open_transaction == 12
    assert producers.complete(read_header(marker(7, commit=True)), 14, 0, aborted=False) is None
    assert producers.check(batch(2)) is None, "a marker takes no sequence number"


def test_an_old_coordinator_or_an_old_epoch_ends_nothing() -> None:
    producers = Producers()
    producers.update(batch(0, epoch=3, transactional=True), 0)
    producers.complete(read_header(marker(7, commit=True, epoch=3, coordinator=5)), 1, 5, aborted=False)
    producers.check_end(7, 3, 5)
    producers.check_end(99, 0, 0)
    with pytest.raises(TransactionCoordinatorFenced):
        producers.check_end(7, 3, 4)
    with pytest.raises(InvalidProducerEpoch):
        producers.check_end(7, 2, 5)


def test_what_is_in_the_log_is_never_refused() -> None:
    """Recovery replays what it finds, whatever the order."""
    producers = wrote(5, 0, 9)
    producers.complete(read_header(marker(7, commit=True)), 3, 9, aborted=False)
    producers.complete(read_header(marker(7, commit=True)), 4, 2, aborted=False)
    state = producers.get(7)
    assert state is not None
    assert (state.coordinator_epoch, state.last_sequence) == (9, 9)


def test_the_silent_are_forgotten_unless_in_a_transaction() -> None:
    producers = Producers()
    producers.update(batch(0, producer=1, timestamp=100), 0)
    producers.update(batch(0, producer=2, timestamp=200), 1)
    producers.update(batch(0, producer=3, timestamp=100, transactional=True), 2)
    producers.expire(150)
    assert sorted(p.producer_id for p in producers) == [2, 3]


def test_as_of_an_earlier_end() -> None:
    producers = wrote(0, 1)
    producers.update(batch(2, transactional=True), 2)
    producers.update(batch(0, producer=8, transactional=True), 3)
    producers.complete(read_header(marker(7, commit=False, epoch=1)), 4, 9, aborted=True)
    producers.update(batch(0, epoch=1, transactional=True), 5)

    def at(end: int) -> list[tuple[int, int, int, int, int | None]]:
        earlier = producers.as_of(end)
        assert earlier is not None
        return [
            (p.producer_id, p.epoch, p.last_sequence, p.coordinator_epoch, p.txn_first_offset)
            for p in earlier
        ]

    assert at(6) == [(7, 1, 0, 9, 5), (8, 0, 0, -1, 3)]
    assert at(5) == [(7, 1, -1, 9, None), (8, 0, 0, -1, 3)]
    assert at(4) == [(7, 0, 2, -1, 2), (8, 0, 0, -1, 3)]
    assert at(3) == [(7, 0, 2, -1, 2)]
    assert at(2) == [(7, 0, 1, -1, None)]
    assert at(0) == []
    assert [producers.as_of(end).first_undecided for end in (3, 4, 5, 6)] == [2, 2, 2, 2]  # type: ignore[union-attr]
    producers.safe_below(4)
    assert producers.as_of(4) is not None
    producers.safe_below(5)
    assert producers.as_of(4) is None
    assert at(5)[0] == (7, 1, -1, 9, None)


def test_where_earlier_batches_are_forgotten_it_is_not_known_what_was_before() -> None:
    producers = wrote(*range(8))
    assert producers.as_of(2) is None
    earlier = producers.as_of(3)
    assert earlier is not None
    earlier.update(batch(3), 3)
    assert earlier.as_of(2) is None
    again = earlier.as_of(3)
    assert again is not None
    assert again.check(batch(3)) is None


def test_only_so_much_can_be_undone() -> None:
    producers = Producers()
    for i in range(5000):
        producers.update(batch(0, producer=i), i)
    assert producers.as_of(500) is None
    earlier = producers.as_of(4000)
    assert earlier is not None
    assert len(earlier) == 4000
