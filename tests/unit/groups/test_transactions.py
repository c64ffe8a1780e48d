import pytest

from anabranch.groups.effects import Producer
from anabranch.groups.transaction_records import NO_EPOCH, NO_PRODUCER_ID, State, Transaction
from anabranch.groups.transactions import (
    EPOCH_BUMP,
    LAST_EPOCH,
    Ending,
    Initialized,
    Instance,
    add,
    begin,
    complete,
    end,
    fence,
    has_expired,
    has_timed_out,
    initialize,
    may_fence,
    needs_producer_id,
    verify,
    what_client_goes_on_with,
)
from anabranch.wire.kafka.schema import ErrorCode

A, B = ("orders", 0), ("orders", 1)
NOW = 1_000_000
ME = Producer(7, 3)


def one(state: State = State.EMPTY, epoch: int = 3, **fields: object) -> Transaction:
    began = state in (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT)
    base = Transaction(
        7,
        epoch,
        60_000,
        state,
        frozenset({A}) if began else frozenset(),
        updated_ms=5,
        started_ms=5,
        previous_producer_id=7,
    )
    return base._replace(**fields)  # type: ignore[arg-type]


def instance(known: Producer | None = None, new_id: int = NO_PRODUCER_ID) -> Instance:
    return Instance(30_000, known, new_id)


RESTING = [State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT]
PREPARED = [State.PREPARE_COMMIT, State.PREPARE_ABORT]


# --- initialize


def test_a_new_id_begins_at_epoch_0() -> None:
    outcome = initialize(None, instance(new_id=11), NO_EPOCH, NOW)
    assert isinstance(outcome, Initialized)
    assert outcome.transaction == Transaction(11, 0, 30_000, updated_ms=NOW, previous_producer_id=11)
    assert initialize(None, instance(), NO_EPOCH, NOW) == ErrorCode.concurrent_transactions


@pytest.mark.parametrize("state", RESTING)
def test_a_new_instance_gets_the_next_epoch(state: State) -> None:
    outcome = initialize(one(state), instance(), NO_EPOCH, NOW)
    assert isinstance(outcome, Initialized)
    assert (outcome.transaction.epoch, outcome.transaction.state) == (4, State.EMPTY)
    assert (outcome.transaction.timeout_ms, outcome.transaction.started_ms) == (30_000, -1)
    assert outcome.last_epoch == NO_EPOCH


@pytest.mark.parametrize("state", [*PREPARED, State.ONGOING])
def test_what_is_being_decided_is_waited_for(state: State) -> None:
    assert initialize(one(state), instance(), NO_EPOCH, NOW) == ErrorCode.concurrent_transactions


def test_an_instance_goes_on_from_what_it_had() -> None:
    first = initialize(one(), instance(ME), NO_EPOCH, NOW)
    assert isinstance(first, Initialized)
    assert (first.transaction.epoch, first.last_epoch) == (4, 3)
    retry = initialize(first.transaction, instance(ME), first.last_epoch, NOW + 1)
    assert isinstance(retry, Initialized)
    assert (retry.transaction.epoch, retry.last_epoch) == (4, 3)


@pytest.mark.parametrize("known", [Producer(8, 3), Producer(7, 2), Producer(7, 5)])
def test_who_goes_on_from_something_else_is_fenced(known: Producer) -> None:
    assert initialize(one(), instance(known), NO_EPOCH, NOW) == ErrorCode.producer_fenced


def test_used_up_epochs_bring_another_producer_id() -> None:
    spent = one(epoch=LAST_EPOCH - 1)
    assert needs_producer_id(spent)
    outcome = initialize(spent, instance(Producer(7, LAST_EPOCH - 1), new_id=20), NO_EPOCH, NOW)
    assert isinstance(outcome, Initialized)
    assert (outcome.transaction.producer_id, outcome.transaction.epoch) == (20, 0)
    assert (outcome.transaction.previous_producer_id, outcome.last_epoch) == (7, LAST_EPOCH - 1)
    known = Producer(7, LAST_EPOCH - 1)
    retry = initialize(outcome.transaction, instance(known), outcome.last_epoch, NOW)
    assert isinstance(retry, Initialized)
    assert (retry.transaction.producer_id, retry.transaction.epoch) == (20, 0)


def test_a_zombie_does_not_end_its_successors_transaction() -> None:
    ongoing = one(State.ONGOING)
    assert may_fence(ongoing, None)
    assert may_fence(ongoing, ME)
    assert not may_fence(ongoing, Producer(7, 2))
    assert not may_fence(ongoing, Producer(6, 3))


# --- partitions


@pytest.mark.parametrize("state", RESTING)
def test_the_first_partition_begins_a_transaction(state: State) -> None:
    outcome = add(one(state), ME, frozenset({A, B}), 0, NOW)
    assert isinstance(outcome, Transaction)
    assert (outcome.state, outcome.partitions, outcome.started_ms) == (State.ONGOING, frozenset({A, B}), NOW)


def test_more_partitions_join() -> None:
    outcome = add(one(State.ONGOING), ME, frozenset({B}), 0, NOW)
    assert isinstance(outcome, Transaction)
    assert (outcome.partitions, outcome.started_ms, outcome.updated_ms) == (frozenset({A, B}), 5, NOW)
    assert add(one(State.ONGOING), ME, frozenset({A}), 0, NOW) == ErrorCode.none


@pytest.mark.parametrize(
    ("current", "code"),
    [
        (None, ErrorCode.invalid_producer_id_mapping),
        (one(producer_id=8), ErrorCode.invalid_producer_id_mapping),
        (one(epoch=4), ErrorCode.producer_fenced),
        (one(epoch=2), ErrorCode.producer_fenced),
        (one(State.PREPARE_COMMIT), ErrorCode.concurrent_transactions),
        (one(State.PREPARE_ABORT), ErrorCode.concurrent_transactions),
    ],
)
def test_who_may_not_add(current: Transaction | None, code: ErrorCode) -> None:
    assert add(current, ME, frozenset({A}), 0, NOW) == code
    assert verify(current, ME, [A, B]) == {A: code, B: code}


def test_verify_tells_what_is_in() -> None:
    assert verify(one(State.ONGOING), ME, [A, B]) == {A: ErrorCode.none, B: ErrorCode.transaction_abortable}
    assert verify(one(State.COMPLETE_COMMIT), ME, [A]) == {A: ErrorCode.transaction_abortable}


# --- end

END, DONE = "end", "done"
REFUSE, LATER, FENCED = (
    ErrorCode.invalid_txn_state,
    ErrorCode.concurrent_transactions,
    ErrorCode.producer_fenced,
)


def judged(current: Transaction, epoch: int, *, commit: bool, version: int) -> object:
    outcome = end(current, Ending(Producer(7, epoch), commit, version, NO_PRODUCER_ID), NOW)
    if isinstance(outcome, Transaction):
        assert outcome.state == (State.PREPARE_COMMIT if commit else State.PREPARE_ABORT)
        assert outcome.epoch == current.epoch + (1 if version >= EPOCH_BUMP else 0)
        assert outcome.partitions == current.partitions
        return END
    return DONE if outcome == ErrorCode.none else outcome


@pytest.mark.parametrize(
    ("state", "abort", "commit"),
    [
        (State.EMPTY, REFUSE, REFUSE),
        (State.ONGOING, END, END),
        (State.PREPARE_COMMIT, LATER, LATER),
        (State.PREPARE_ABORT, LATER, LATER),
        (State.COMPLETE_COMMIT, REFUSE, DONE),
        (State.COMPLETE_ABORT, DONE, REFUSE),
    ],
)
def test_the_first_protocol(state: State, abort: object, commit: object) -> None:
    assert judged(one(state), 3, commit=False, version=0) == abort
    assert judged(one(state), 3, commit=True, version=0) == commit
    for other in (2, 4):
        assert judged(one(state), other, commit=True, version=0) == FENCED


@pytest.mark.parametrize(
    ("state", "abort", "commit"),
    [
        (State.EMPTY, (FENCED, END), (FENCED, REFUSE)),
        (State.ONGOING, (FENCED, END), (FENCED, END)),
        (State.COMPLETE_COMMIT, (REFUSE, END), (DONE, REFUSE)),
        (State.COMPLETE_ABORT, (DONE, END), (REFUSE, REFUSE)),
    ],
)
def test_the_second_protocol(
    state: State, abort: tuple[object, object], commit: tuple[object, object]
) -> None:
    for asks_commit, verdicts in ((False, abort), (True, commit)):
        for epoch, verdict in zip((2, 3), verdicts, strict=True):
            assert judged(one(state), epoch, commit=asks_commit, version=2) == verdict
        for epoch in (1, 4):
            assert judged(one(state), epoch, commit=asks_commit, version=2) == FENCED


@pytest.mark.parametrize("state", PREPARED)
@pytest.mark.parametrize("commit", [False, True])
def test_while_markers_are_on_their_way_the_second_protocol_asks_to_wait(state: State, commit: bool) -> None:
    """A client that aborts right after a commit is not fenced by itself (KAFKA-18464)."""
    for epoch in (1, 2, 3, 4):
        assert judged(one(state), epoch, commit=commit, version=2) == LATER


def test_an_end_of_an_unknown_producer() -> None:
    for version in (0, 2):
        ending = Ending(Producer(8, 3), True, version, NO_PRODUCER_ID)
        assert end(one(State.ONGOING), ending, NOW) == ErrorCode.invalid_producer_id_mapping
        assert end(None, ending, NOW) == ErrorCode.invalid_producer_id_mapping


def test_the_last_epoch_ends_in_another_producer_id() -> None:
    spent = one(State.ONGOING, epoch=LAST_EPOCH - 1)
    ending = Ending(Producer(7, LAST_EPOCH - 1), True, 2, 20)
    assert end(spent, ending._replace(new_id=NO_PRODUCER_ID), NOW) == ErrorCode.concurrent_transactions
    prepared = end(spent, ending, NOW)
    assert isinstance(prepared, Transaction)
    assert (prepared.producer_id, prepared.epoch, prepared.next_producer_id) == (7, LAST_EPOCH, 20)
    assert what_client_goes_on_with(prepared) == (20, 0)
    done = complete(prepared, NOW + 1)
    assert (done.producer_id, done.epoch, done.state) == (20, 0, State.COMPLETE_COMMIT)
    assert (done.previous_producer_id, done.next_producer_id) == (7, NO_PRODUCER_ID)
    assert end(done, ending, NOW) == ErrorCode.none  # the same once more
    assert end(done, ending._replace(commit=False), NOW) == ErrorCode.invalid_txn_state


def test_a_fence_moves_to_the_next_epoch() -> None:
    fenced = fence(one(State.ONGOING), NO_PRODUCER_ID, NOW)
    assert isinstance(fenced, Transaction)
    assert (fenced.state, fenced.epoch, fenced.partitions) == (State.PREPARE_ABORT, 4, frozenset({A}))
    done = complete(fenced, NOW)
    assert (done.state, done.epoch, done.partitions) == (State.COMPLETE_ABORT, 4, frozenset())
    assert add(done, ME, frozenset({A}), 2, NOW) == ErrorCode.producer_fenced
    assert judged(done, 3, commit=True, version=2) == REFUSE
    assert judged(done, 3, commit=False, version=2) == DONE
    assert judged(done, 3, commit=True, version=0) == FENCED


def test_a_fence_of_the_last_epoch() -> None:
    spent = one(State.ONGOING, epoch=LAST_EPOCH - 1)
    assert fence(spent, NO_PRODUCER_ID, NOW) == ErrorCode.concurrent_transactions
    fenced = fence(spent, 20, NOW)
    assert isinstance(fenced, Transaction)
    assert fenced.epoch == LAST_EPOCH
    assert what_client_goes_on_with(complete(fenced, NOW)) == (20, 0)


# --- time


def test_only_what_is_going_on_times_out() -> None:
    assert not has_timed_out(one(State.ONGOING), 60_005)
    assert has_timed_out(one(State.ONGOING), 60_006)
    for state in (*RESTING, *PREPARED):
        assert not has_timed_out(one(state), 1 << 40)


def test_only_what_rests_expires() -> None:
    for state in RESTING:
        assert has_expired(one(state), 1000, 1005)
        assert not has_expired(one(state), 1000, 1004)
    for state in (*PREPARED, State.ONGOING):
        assert not has_expired(one(state), 1000, 1 << 40)


# --- Pulsar's


def test_one_of_pulsars_begins_before_anything_is_in_it() -> None:
    begun = begin(None, 9_000, 12, NOW)
    assert isinstance(begun, Transaction)
    assert (begun.producer_id, begun.epoch, begun.state) == (12, 0, State.ONGOING)
    assert (begun.timeout_ms, begun.started_ms, begun.partitions) == (9_000, NOW, frozenset())
    assert not has_timed_out(begun, NOW + 9_000)
    assert has_timed_out(begun, NOW + 9_001)


@pytest.mark.parametrize("state", RESTING)
def test_the_next_one_has_the_epoch_that_the_last_one_left(state: State) -> None:
    begun = begin(one(state, epoch=4), 9_000, NO_PRODUCER_ID, NOW)
    assert isinstance(begun, Transaction)
    assert (begun.producer_id, begun.epoch, begun.timeout_ms) == (7, 4, 9_000)


def test_where_none_can_begin() -> None:
    assert begin(None, 1, NO_PRODUCER_ID, NOW) == ErrorCode.invalid_producer_id_mapping
    for state in (State.ONGOING, *PREPARED):
        assert begin(one(state), 1, NO_PRODUCER_ID, NOW) == ErrorCode.concurrent_transactions
    used_up = one(State.COMPLETE_COMMIT, epoch=LAST_EPOCH - 1)
    assert begin(used_up, 1, 99, NOW) == ErrorCode.invalid_producer_epoch


def test_the_last_epochs_of_a_producer_id() -> None:
    """An id is left before another would have to be found in the middle of a transaction."""
    last = begin(one(State.COMPLETE_ABORT, epoch=LAST_EPOCH - 2), 1, NO_PRODUCER_ID, NOW)
    assert isinstance(last, Transaction)
    ended = end(last, Ending(Producer(7, last.epoch), True, EPOCH_BUMP, NO_PRODUCER_ID), NOW)
    assert isinstance(ended, Transaction)
    assert begin(complete(ended, NOW), 1, NO_PRODUCER_ID, NOW) == ErrorCode.invalid_producer_epoch
