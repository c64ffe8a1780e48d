"""Acknowledgements of transactions against a naive model: who holds an offset, and what is delivered of it.

Consumers of all four kinds acknowledge, in transactions and without, in part and as a whole; transactions
commit and abort; consumers come and go; what is pending is kept and restored at any time.  In the end all
transactions are aborted and everybody goes: what is delivered then is exactly what is not acknowledged.
"""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.groups.transaction_ids import TxnId
from anabranch.subscriptions.acking import Ack
from anabranch.subscriptions.kinds import SubscriptionKind
from anabranch.subscriptions.pending_acks import PendingAck, TransactionConflict, decode, encode
from tests.support.subscriptions import Bench, Client
from tests.unit.records.strategies import seeded

ENTRIES, MESSAGES = 12, 3
ALL = ENTRIES * MESSAGES
TXNS = [TxnId(0, number << 15) for number in range(1, 4)]


class Model:
    def __init__(self) -> None:
        self.acked: set[int] = set()
        self.held: dict[int, TxnId] = {}

    def settled(self, entry: int) -> bool:
        return all(offset in self.acked or offset in self.held for offset in range(entry, entry + MESSAGES))

    def end(self, txn: TxnId, *, commit: bool) -> None:
        ended = {offset for offset, holder in self.held.items() if holder == txn}
        for offset in ended:
            del self.held[offset]
        if commit:
            self.acked |= ended


class Run:
    def __init__(self, kind: SubscriptionKind, seed: int) -> None:
        self.chance = random.Random(seed)
        self.bench = Bench(kind)
        self.model = Model()
        self.kept: dict[TxnId, dict[int, PendingAck]] = {}
        self.clients: list[Client] = [self.bench.client(permits=1000)]
        self.bench.fill(ENTRIES, MESSAGES)

    # --- steps

    def ack(self, entry: int, bits: int, txn: TxnId | None) -> None:
        """The messages whose bits are 0; a whole entry if none is 1."""
        self.bench.run()
        client = self.chance.choice(self.clients)
        wanted = {entry + i for i in range(MESSAGES) if not bits >> i & 1}
        ack = Ack(entry, [bits] if bits else None)
        if txn is None:
            self.bench.subscription.ack(client.consumer, [ack], cumulative=False)
            self.model.acked |= wanted
        elif wanted & (self.model.acked | self.model.held.keys()):
            with pytest.raises(TransactionConflict):
                self.bench.subscription.ack_within(txn, client.consumer, [ack], cumulative=False)
        else:
            number, kept = self.bench.subscription.ack_within(txn, client.consumer, [ack], cumulative=False)
            assert number not in self.kept.setdefault(txn, {})
            self.kept[txn][number] = decode(encode(kept))
            self.model.held.update(dict.fromkeys(wanted, txn))

    def end(self, txn: TxnId, *, commit: bool) -> None:
        self.bench.subscription.end_transaction(txn, commit=commit)
        self.kept.pop(txn, None)
        self.model.end(txn, commit=commit)

    def restore(self) -> None:
        """As a restart does, but for the consumers: all pending acknowledgements come back from the store."""
        pending = self.bench.subscription.reading.pending
        for txn in pending:
            pending.ended(txn)
        for txn, kept in self.kept.items():
            written = {number: encode(ack) for number, ack in kept.items()}
            self.bench.subscription.restore_transaction(txn, written)

    def come_and_go(self) -> None:
        if self.bench.kind is not SubscriptionKind.EXCLUSIVE and len(self.clients) < 3:
            self.clients.append(self.bench.client(permits=1000))
        elif len(self.clients) > 1:
            self.clients.pop(self.chance.randrange(len(self.clients))).close()

    # --- what must hold

    def check(self) -> None:
        self.bench.run()
        pending = self.bench.subscription.reading.pending
        for offset in range(ALL):
            assert (
                pending.holds(offset, offset + 1) == (offset in self.model.held) or offset in self.model.acked
            )
        for client in self.clients:
            for offset in client.consumer.pending:
                assert not self.model.settled(offset)
            assert client.consumer.unacked >= 0
        if self.bench.kind.is_individual:
            out = sum(client.consumer.unacked for client in self.clients)
            assert out == self.bench.subscription.unacked.total

    def finish(self) -> None:
        for txn in TXNS:
            self.end(txn, commit=False)
        for client in self.clients:
            client.close()
        last = self.bench.client(permits=1000)
        left = {entry for entry in range(0, ALL, MESSAGES) if not self.model.settled(entry)}
        assert set(last.take()) == left
        assert self.bench.cursor.backlog(ALL) == ALL - len(self.model.acked)


steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("ack"),
            st.integers(0, ENTRIES - 1),
            st.integers(0, (1 << MESSAGES) - 2),
            st.sampled_from([None, *TXNS]),
        ),
        st.tuples(st.just("end"), st.sampled_from(TXNS), st.booleans()),
        st.tuples(st.just("go")),
        st.tuples(st.just("restore")),
        st.tuples(st.just("redeliver")),
    ),
    max_size=30,
)


@pytest.mark.parametrize("kind", list(SubscriptionKind))
@seeded(60)
@given(steps=steps, seed=st.integers(0, 1000))
def test_against_a_model(kind: SubscriptionKind, steps: list[tuple[object, ...]], seed: int) -> None:
    run = Run(kind, seed)
    for step in steps:
        match step:
            case ("ack", int(number), int(bits), txn):
                run.ack(number * MESSAGES, bits, txn)  # type: ignore[arg-type]
            case ("end", TxnId() as txn, bool(commit)):
                run.end(txn, commit=commit)
            case ("go",):
                run.come_and_go()
            case ("restore",):
                run.restore()
            case ("redeliver",):
                client = run.chance.choice(run.clients)
                run.bench.subscription.redeliver(client.consumer, None)
        run.check()
    run.finish()
