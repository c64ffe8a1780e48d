"""Transaction states: pure transitions, each a function from what is to what should be.

    Empty ─── add ──> Ongoing ─── end ──> PrepareCommit ── complete ──> CompleteCommit ─── add ──> Ongoing
                         ├─────── end ──> PrepareAbort  ── complete ──> CompleteAbort  ─── add ──> Ongoing
                         └ fence ──────────────^                                       ─ initialize ─> Empty

Pulsar's transactions `begin` at Ongoing, before any partition is in them.

A transition gives the `Transaction` to write, or the code that refuses it; `none` means that it has
happened already.  Once Prepare is in the log the outcome is fixed: markers are written until every
partition has one, whatever is killed in between.

The epoch is how instances of a producer are told apart.  Epochs end at 32766, so that there is always one
left to fence with; a producer that has used them up gets another producer id.

Two protocols, by the version of the client's requests.  In the first the epoch stays, so a retry of an end
cannot be told from a second end.  In the second (KIP-890) each end moves to the next epoch and the client
goes on with that: markers, which carry the new epoch, cannot hit the next transaction, and

                      abort              commit
                      retry  current     retry  current        retry: the epoch before this one
    Empty             fenced end         fenced refuse
    CompleteAbort     done   end         refuse refuse
    CompleteCommit    refuse end         done   refuse

Until all markers are written every end is to wait, as a client may be in its next transaction by then.

A fence moves on by one epoch as well.  So an instance whose transaction timed out finds, when it aborts, that
this is done, and goes on; once another instance has introduced itself the epoch is later still.
"""

from collections.abc import Iterable
from typing import NamedTuple

from anabranch.groups.effects import Producer
from anabranch.groups.transaction_records import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    State,
    TopicPartition,
    Transaction,
)
from anabranch.wire.kafka.schema import ErrorCode

LAST_EPOCH = (1 << 15) - 1
EPOCH_BUMP = 2  # the transaction version from which every end moves the epoch

PREPARED = frozenset((State.PREPARE_COMMIT, State.PREPARE_ABORT))
_ENDED = {State.PREPARE_COMMIT: State.COMPLETE_COMMIT, State.PREPARE_ABORT: State.COMPLETE_ABORT}
_RESTING = frozenset((State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT))

Outcome = Transaction | ErrorCode


def needs_producer_id(current: Transaction | None) -> bool:
    """Whether the next step may have to give out another producer id."""
    return current is None or _is_exhausted(current.epoch)


def _is_exhausted(epoch: int) -> bool:
    return epoch >= LAST_EPOCH - 1


# --- beginning


class Instance(NamedTuple):
    """An instance of a producer that introduces itself."""

    timeout_ms: int
    known: Producer | None
    """What it had before and wants to go on from (KIP-360)."""
    new_id: int
    """A producer id to use if one is needed, -1 if there was none to be had."""


class Initialized(NamedTuple):
    transaction: Transaction
    last_epoch: int
    """The epoch that the instance had before; a retry that names it gets the same answer."""


def initialize(
    current: Transaction | None, instance: Instance, last_epoch: int, now_ms: int
) -> Initialized | ErrorCode:
    """`instance` takes over.  An Ongoing transaction must be fenced first."""
    if current is None:
        return _with_new_id(None, instance, NO_EPOCH, now_ms)
    known = instance.known
    if known is not None and not _is_id_of(current, known):
        return ErrorCode.producer_fenced
    if current.state not in _RESTING:
        return ErrorCode.concurrent_transactions
    if known is not None and known.epoch != current.epoch:
        if known.epoch != last_epoch:
            return ErrorCode.producer_fenced
        return Initialized(_rested(current, current.epoch, instance.timeout_ms, now_ms), last_epoch)
    had = NO_EPOCH if known is None else current.epoch
    if _is_exhausted(current.epoch):
        return _with_new_id(current, instance, had, now_ms)
    return Initialized(_rested(current, current.epoch + 1, instance.timeout_ms, now_ms), had)


def may_fence(current: Transaction, known: Producer | None) -> bool:
    """Whether an instance that knows `known` may end the transaction that is going on.

    One that goes on from an older epoch is a zombie, and the transaction is that of its successor.
    """
    return known is None or known == (current.producer_id, current.epoch)


def _is_id_of(current: Transaction, known: Producer) -> bool:
    return known.producer_id == current.producer_id or (
        known.producer_id == current.previous_producer_id and _is_exhausted(known.epoch)
    )


def is_resting(current: Transaction) -> bool:
    """Whether nothing is open or on its way to its end."""
    return current.state in _RESTING


def _rested(current: Transaction, epoch: int, timeout_ms: int, now_ms: int) -> Transaction:
    return Transaction(
        producer_id=current.producer_id,
        epoch=epoch,
        timeout_ms=timeout_ms,
        updated_ms=now_ms,
        previous_producer_id=current.producer_id,
        client_version=current.client_version,
    )


def _with_new_id(
    current: Transaction | None, instance: Instance, last_epoch: int, now_ms: int
) -> Initialized | ErrorCode:
    if instance.new_id == NO_PRODUCER_ID:
        return ErrorCode.concurrent_transactions  # somebody was faster: ask again
    fresh = Transaction(
        producer_id=instance.new_id,
        epoch=0,
        timeout_ms=instance.timeout_ms,
        updated_ms=now_ms,
        previous_producer_id=instance.new_id if current is None else current.producer_id,
        client_version=0 if current is None else current.client_version,
    )
    return Initialized(fresh, last_epoch)


def begin(current: Transaction | None, timeout_ms: int, new_id: int, now_ms: int) -> Outcome:
    """A transaction of Pulsar's begins, which it does before any partition is in it.

    In the epoch that the last one under the id has left; with `new_id` if there was none.
    """
    if current is None:
        if new_id == NO_PRODUCER_ID:
            return ErrorCode.invalid_producer_id_mapping
        current = Transaction(new_id, 0, timeout_ms)
    elif current.state not in _RESTING:
        return ErrorCode.concurrent_transactions
    elif _is_exhausted(current.epoch):
        return ErrorCode.invalid_producer_epoch
    return current._replace(
        state=State.ONGOING,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        started_ms=now_ms,
        updated_ms=now_ms,
        previous_producer_id=current.producer_id,
        client_version=EPOCH_BUMP,
    )


# --- partitions


def add(
    current: Transaction | None,
    producer: Producer,
    partitions: frozenset[TopicPartition],
    client_version: int,
    now_ms: int,
) -> Outcome:
    """`partitions` take part; the first ones begin the transaction."""
    refused = _refusal(current, producer)
    if refused or current is None:
        return refused
    if current.state is State.ONGOING and partitions <= current.partitions:
        return ErrorCode.none
    began = current.state is not State.ONGOING
    return current._replace(
        state=State.ONGOING,
        partitions=partitions if began else current.partitions | partitions,
        started_ms=now_ms if began else current.started_ms,
        updated_ms=now_ms,
        previous_producer_id=current.producer_id,
        client_version=client_version,
    )


def verify(
    current: Transaction | None, producer: Producer, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Whether each of `partitions` takes part in the transaction that is going on."""
    refused = _refusal(current, producer)
    if refused or current is None:
        return dict.fromkeys(partitions, refused)
    return {
        partition: ErrorCode.none if partition in current.partitions else ErrorCode.transaction_abortable
        for partition in partitions
    }


def _refusal(current: Transaction | None, producer: Producer) -> ErrorCode:
    if current is None or current.producer_id != producer.producer_id:
        return ErrorCode.invalid_producer_id_mapping
    if current.epoch != producer.epoch:
        return ErrorCode.producer_fenced
    if current.state in PREPARED:
        return ErrorCode.concurrent_transactions
    return ErrorCode.none


# --- ending

_END = "end"
_DONE = ErrorCode.none
_REFUSE = ErrorCode.invalid_txn_state
_LATER = ErrorCode.concurrent_transactions
_FENCED = ErrorCode.producer_fenced

_Verdict = str | ErrorCode

# state -> (abort, commit)
_FIRST_PROTOCOL: dict[State, tuple[_Verdict, _Verdict]] = {
    State.EMPTY: (_REFUSE, _REFUSE),
    State.ONGOING: (_END, _END),
    State.PREPARE_COMMIT: (_LATER, _LATER),
    State.PREPARE_ABORT: (_LATER, _LATER),
    State.COMPLETE_COMMIT: (_REFUSE, _DONE),
    State.COMPLETE_ABORT: (_DONE, _REFUSE),
}
# state -> ((retry of abort, abort), (retry of commit, commit))
_SECOND_PROTOCOL: dict[State, tuple[tuple[_Verdict, _Verdict], tuple[_Verdict, _Verdict]]] = {
    State.EMPTY: ((_FENCED, _END), (_FENCED, _REFUSE)),
    State.ONGOING: ((_FENCED, _END), (_FENCED, _END)),
    State.COMPLETE_COMMIT: ((_REFUSE, _END), (_DONE, _REFUSE)),
    State.COMPLETE_ABORT: ((_DONE, _END), (_REFUSE, _REFUSE)),
}


class Ending(NamedTuple):
    """An end that a client asks for."""

    producer: Producer
    commit: bool
    client_version: int
    new_id: int
    """A producer id to use if one is needed, -1 if there was none to be had."""


def end(current: Transaction | None, ending: Ending, now_ms: int) -> Outcome:
    if current is None:
        return ErrorCode.invalid_producer_id_mapping
    verdict = _verdict(current, ending)
    if isinstance(verdict, ErrorCode):
        return verdict
    prepared = current._replace(
        state=State.PREPARE_COMMIT if ending.commit else State.PREPARE_ABORT,
        partitions=current.partitions if current.state is State.ONGOING else frozenset(),
        started_ms=current.started_ms if current.state is State.ONGOING else now_ms,
        updated_ms=now_ms,
        previous_producer_id=current.producer_id,
        client_version=ending.client_version,
    )
    return prepared if ending.client_version < EPOCH_BUMP else _moved_on(current, prepared, ending.new_id)


def _verdict(current: Transaction, ending: Ending) -> _Verdict:
    producer = ending.producer
    if ending.client_version < EPOCH_BUMP:
        if producer.producer_id != current.producer_id:
            return ErrorCode.invalid_producer_id_mapping
        if producer.epoch != current.epoch:
            return _FENCED
        return _FIRST_PROTOCOL[current.state][ending.commit]
    from_old_id = current.epoch == 0 and producer == (current.previous_producer_id, LAST_EPOCH - 1)
    if producer.producer_id != current.producer_id and not from_old_id:
        return ErrorCode.invalid_producer_id_mapping
    if current.state in PREPARED:
        return _LATER  # before the epoch is looked at: a client may end its next transaction by now
    retried, first = _SECOND_PROTOCOL[current.state][ending.commit]
    if from_old_id or producer.epoch == current.epoch - 1:
        return retried
    return first if producer.epoch == current.epoch else _FENCED


def fence(current: Transaction, new_id: int, now_ms: int) -> Outcome:
    """End what is going on, whose instance is to write no more."""
    assert current.state is State.ONGOING, current.state
    return _moved_on(current, current._replace(state=State.PREPARE_ABORT, updated_ms=now_ms), new_id)


def _moved_on(current: Transaction, prepared: Transaction, new_id: int) -> Outcome:
    """`prepared` in the epoch after that of `current`, and another producer id to follow the last one."""
    if _is_exhausted(current.epoch):
        if new_id == NO_PRODUCER_ID:
            return ErrorCode.concurrent_transactions
        prepared = prepared._replace(next_producer_id=new_id)
    return prepared._replace(
        epoch=min(current.epoch + 1, LAST_EPOCH),
        previous_producer_id=current.producer_id,
        client_version=EPOCH_BUMP,
    )


def complete(current: Transaction, now_ms: int) -> Transaction:
    """Every partition has its marker."""
    goes_on = what_client_goes_on_with(current)
    return current._replace(
        producer_id=goes_on.producer_id,
        epoch=goes_on.epoch,
        state=_ENDED[current.state],
        partitions=frozenset(),
        updated_ms=now_ms,
        previous_producer_id=current.producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )


# --- time


def has_timed_out(current: Transaction, now_ms: int) -> bool:
    return current.state is State.ONGOING and current.started_ms + current.timeout_ms < now_ms


def has_expired(current: Transaction, expiration_ms: int, now_ms: int) -> bool:
    return current.state in _RESTING and current.updated_ms <= now_ms - expiration_ms


def what_client_goes_on_with(current: Transaction) -> Producer:
    """The producer id and epoch for the transaction after this one."""
    if current.next_producer_id != NO_PRODUCER_ID:
        return Producer(current.next_producer_id, 0)
    return Producer(current.producer_id, current.epoch)
