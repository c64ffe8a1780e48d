"""The transactions of one partition of `__transaction_state`: decisions over them, as records and answers.

Every step is one record that holds all there is to know of a transactional id, so replaying is replacing.
What is not written, as in Kafka: the epoch an instance had before it went on from it, for which a retry of
InitProducerId is known; after a restart such a retry is fenced.  What keeps transactions is in none itself.

Who aborts what has timed out, forgets what has expired and writes markers is `transaction_coordinator`.
"""

from typing import NamedTuple

from anabranch.groups import transactions
from anabranch.groups.effects import Answer, Effects, PlainShard, Producer, Token
from anabranch.groups.transaction_records import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    State,
    TopicPartition,
    Transaction,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from anabranch.wire.kafka.schema import ErrorCode


class Added(NamedTuple):
    """Partitions that a producer wants in its transaction."""

    producer: Producer
    partitions: frozenset[TopicPartition]
    client_version: int


class TransactionShard(PlainShard):
    def __init__(self, index: int) -> None:
        self.index = index
        self.transactions: dict[str, Transaction] = {}
        self._last_epochs: dict[str, int] = {}

    # --- state

    def replay(self, key: bytes, value: bytes | None) -> None:
        transactional_id = decode_key(key)
        if transactional_id is None:
            return
        if value is None:
            self.transactions.pop(transactional_id, None)
            self._last_epochs.pop(transactional_id, None)
            return
        transaction = decode_value(value)
        if transaction is not None:
            self.transactions[transactional_id] = transaction

    # --- decisions

    def initialize(
        self, token: Token, transactional_id: str, instance: transactions.Instance, now_ms: int
    ) -> Effects:
        """An instance of a producer introduces itself."""
        effects = Effects()
        current = self.transactions.get(transactional_id)
        if current is not None and current.state is State.ONGOING:
            if not transactions.may_fence(current, instance.known):
                effects.reply(token, refused(ErrorCode.producer_fenced))
            else:
                self._fence(effects, transactional_id, current, instance.new_id, now_ms)
                effects.reply(token, refused(ErrorCode.concurrent_transactions))
            return effects
        last_epoch = self._last_epochs.get(transactional_id, NO_EPOCH)
        outcome = transactions.initialize(current, instance, last_epoch, now_ms)
        if isinstance(outcome, ErrorCode):
            effects.reply(token, refused(outcome))
            return effects
        self._write(effects, transactional_id, outcome.transaction)
        effects.after(lambda: self._remember(transactional_id, outcome.last_epoch))
        producer = Producer(outcome.transaction.producer_id, outcome.transaction.epoch)
        effects.reply(token, _accepted(producer))
        return effects

    def begin(
        self, token: Token, transactional_id: str, timeout_ms: int, new_id: int, now_ms: int
    ) -> Effects:
        """A transaction of Pulsar's begins."""
        effects = Effects()
        current = self.transactions.get(transactional_id)
        outcome = transactions.begin(current, timeout_ms, new_id, now_ms)
        if isinstance(outcome, ErrorCode):
            effects.reply(token, refused(outcome))
        else:
            self._write(effects, transactional_id, outcome)
            effects.reply(token, _accepted(Producer(outcome.producer_id, outcome.epoch)))
        return effects

    def add(self, token: Token, transactional_id: str, added: Added, now_ms: int) -> Effects:
        """Partitions take part in a transaction."""
        effects = Effects()
        current = self.transactions.get(transactional_id)
        outcome = transactions.add(current, added.producer, added.partitions, added.client_version, now_ms)
        if isinstance(outcome, ErrorCode):
            effects.reply(token, {"error_code": outcome})
        else:
            self._write(effects, transactional_id, outcome)
            effects.reply(token, {"error_code": ErrorCode.none})
        return effects

    def end(self, token: Token, transactional_id: str, ending: transactions.Ending, now_ms: int) -> Effects:
        """A client commits or aborts."""
        effects = Effects()
        current = self.transactions.get(transactional_id)
        outcome = transactions.end(current, ending, now_ms)
        if isinstance(outcome, Transaction):
            assert current is not None
            self._write(effects, transactional_id, outcome)
            epoch = current.epoch
            if outcome.epoch != epoch:
                effects.after(lambda: self._remember(transactional_id, epoch))
            current = outcome
        elif outcome:
            effects.reply(token, refused(outcome))
            return effects
        assert current is not None
        effects.reply(token, _accepted(transactions.what_client_goes_on_with(current)))
        return effects

    def fence(self, token: Token, transactional_id: str, new_id: int, now_ms: int) -> Effects:
        """Abort a transaction whose time is over."""
        effects = Effects()
        current = self.transactions.get(transactional_id)
        if current is not None and transactions.has_timed_out(current, now_ms):
            self._fence(effects, transactional_id, current, new_id, now_ms)
        effects.reply(token, {})
        return effects

    def complete(self, token: Token, transactional_id: str, prepared: Transaction, now_ms: int) -> Effects:
        """Every partition has the marker of `prepared`."""
        effects = Effects()
        if self.transactions.get(transactional_id) == prepared:
            self._write(effects, transactional_id, transactions.complete(prepared, now_ms))
        effects.reply(token, {})
        return effects

    def expire(self, token: Token, ids: list[str], expiration_ms: int, now_ms: int) -> Effects:
        """Forget those of `ids` that were not used for `expiration_ms`."""
        effects = Effects()
        for transactional_id in ids:
            current = self.transactions.get(transactional_id)
            if current is not None and transactions.has_expired(current, expiration_ms, now_ms):
                effects.write(encode_key(transactional_id), None)
        effects.reply(token, {})
        return effects

    # --- looking

    def prepared(self) -> list[str]:
        return [id for id, one in self.transactions.items() if one.state in transactions.PREPARED]

    def timed_out(self, now_ms: int) -> list[str]:
        return [id for id, one in self.transactions.items() if transactions.has_timed_out(one, now_ms)]

    def expired(self, expiration_ms: int, now_ms: int) -> list[str]:
        return [
            id
            for id, one in self.transactions.items()
            if transactions.has_expired(one, expiration_ms, now_ms)
        ]

    # --- how it is done

    def _fence(
        self, effects: Effects, transactional_id: str, current: Transaction, new_id: int, now_ms: int
    ) -> None:
        outcome = transactions.fence(current, new_id, now_ms)
        if isinstance(outcome, Transaction):
            self._write(effects, transactional_id, outcome)
            effects.after(lambda: self._remember(transactional_id, NO_EPOCH))

    def _write(self, effects: Effects, transactional_id: str, transaction: Transaction) -> None:
        effects.write(encode_key(transactional_id), encode_value(transaction))
        effects.answered_within(transaction.timeout_ms)  # as Kafka's coordinator waits

    def _remember(self, transactional_id: str, last_epoch: int) -> None:
        if last_epoch == NO_EPOCH:
            self._last_epochs.pop(transactional_id, None)
        else:
            self._last_epochs[transactional_id] = last_epoch


def refused(code: ErrorCode) -> Answer:
    return {"error_code": code, "producer_id": NO_PRODUCER_ID, "producer_epoch": NO_EPOCH}


def _accepted(producer: Producer) -> Answer:
    return {
        "error_code": ErrorCode.none,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
    }
