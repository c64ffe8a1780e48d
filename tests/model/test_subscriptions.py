"""Subscriptions under everything clients do, against a naive model that remembers every message.

Clients come, go, die with what they hold, take permits, acknowledge entries and parts of them, refuse them,
seek, and stop reading their sockets.  The model checks each delivery when it is made:

  * it is of something not acknowledged, says what of it is left, and nobody else holds it;
  * the client had a permit, and was below its bound of unacknowledged messages;
  * one consumer at a time: in the order of the log, without leaving anything out;
  * key_shared: nobody else holds the key, and nothing earlier of that key waits;

and when nothing is left to do, that nothing is left that could be delivered.  In the end everybody
acknowledges everything: then all of it is acknowledged, so nothing was lost.
"""

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from anabranch.records.entries import Entry
from anabranch.subscriptions.acking import Ack
from anabranch.subscriptions.channel import Delivery
from anabranch.subscriptions.consumer import Consumer
from anabranch.subscriptions.keyed_dispatch import KeyedDispatch
from anabranch.subscriptions.kinds import SubscriptionKind
from anabranch.subscriptions.settings import SubscriptionSettings
from anabranch.subscriptions.single_active import SingleActive
from tests.support.subscriptions import Bench, Client
from tests.unit.records.strategies import seeded

MAX_UNACKED = 6
MAX_UNACKED_TOGETHER = 10
LIMITS = SubscriptionSettings(
    max_unacked_per_consumer=MAX_UNACKED,
    max_unacked_per_subscription=MAX_UNACKED_TOGETHER,
    failover_delay_ms=0,
    round_robin_messages=2,
    look_ahead_per_consumer=1000,
)
MAX_MESSAGES = 3  # of an entry
KEYS = "abcdefgh"


class Watched(Client):
    """A client that tells the model what it gets, when it gets it."""

    model: "Machine"

    def __init__(self, model: "Machine", name: str) -> None:
        super().__init__(model.bench.subscription, name, priority=len(name) % 2)
        self.model = model
        self.permits = 0
        self.held: dict[int, Entry] = {}
        self.last = -1

    def deliver(self, consumer: Consumer, deliveries: Sequence[Delivery]) -> None:
        super().deliver(consumer, deliveries)
        for delivery in deliveries:
            self.model.delivered(self, delivery)


class Machine(RuleBasedStateMachine):
    kind: SubscriptionKind

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench(self.kind, settings=LIMITS)
        self.clients: list[Watched] = []
        self.acked: set[int] = set()
        self.keys: dict[int, str] = {}
        self.came = 0

    # --- the model

    def delivered(self, client: Watched, delivery: Delivery) -> None:
        entry = delivery.entry
        left = [offset not in self.acked for offset in range(entry.offset, entry.end)]
        assert any(left), "delivered though acknowledged"
        expected = None if all(left) else sum(1 << index for index, is_left in enumerate(left) if is_left)
        assert delivery.ack_set == (None if expected is None else [expected])
        assert client.permits > 0, "delivered without permits"
        client.permits -= entry.count
        if self.kind.is_individual:
            assert all(entry.offset not in other.held for other in self.clients), "two have it"
            assert self.unacked(client) < MAX_UNACKED
            together = sum(map(self.unacked, self.clients)) + sum(left)
            assert together < MAX_UNACKED_TOGETHER + MAX_MESSAGES, "more than one entry beyond the bound"
        else:
            assert client.consumer is self.active()
            between = range(max(client.last, 0), entry.offset)
            assert all(offset in self.acked for offset in between), "something was left out"
            client.last = entry.end
        if self.kind == SubscriptionKind.KEY_SHARED:
            key = self.keys[entry.offset]
            holders = [c for c in self.clients if any(self.keys[offset] == key for offset in c.held)]
            assert holders in ([], [client]), "the key is with another"
            assert self.first_waiting(key) == entry.offset, "something earlier of the key waits"
        client.held[entry.offset] = entry

    def unacked(self, client: Watched) -> int:
        return sum(
            offset not in self.acked
            for entry in client.held.values()
            for offset in range(entry.offset, entry.end)
        )

    def active(self) -> Consumer | None:
        dispatcher = self.bench.subscription.dispatcher
        assert isinstance(dispatcher, SingleActive)
        return dispatcher.active

    def is_waiting(self, entry: Entry) -> bool:
        """Neither acknowledged nor held by anybody."""
        return any(offset not in self.acked for offset in range(entry.offset, entry.end)) and all(
            entry.offset not in client.held for client in self.clients
        )

    def first_waiting(self, key: str) -> int | None:
        return next(
            (e.offset for e in self.bench.log.entries if self.keys[e.offset] == key and self.is_waiting(e)),
            None,
        )

    def is_able(self, client: Watched) -> bool:
        together = sum(map(self.unacked, self.clients))
        is_bounded = client.consumer.is_blocked or self.bench.subscription.unacked.is_blocked
        assert (
            not is_bounded
            or self.unacked(client) >= MAX_UNACKED // 2
            or together >= MAX_UNACKED_TOGETHER // 2
        )
        return client.permits > 0 and client.writable and not is_bounded

    # --- what happens

    @rule(messages=st.sampled_from((1, 1, 1, 2, MAX_MESSAGES)), key=st.sampled_from(KEYS))
    def publish(self, messages: int, key: str) -> None:
        offset = self.bench.log.append(messages, partition_key=key)
        self.keys[offset] = key

    @rule()
    def gap(self) -> None:
        self.acked.add(self.bench.log.end)
        self.bench.log.gap()

    @precondition(lambda self: len(self.clients) < (1 if self.kind == SubscriptionKind.EXCLUSIVE else 4))
    @rule(permits=st.integers(0, 8))
    def come(self, permits: int) -> None:
        self.came += 1
        client = Watched(self, "c" * (self.came % 5 + 1))
        self.clients.append(client)
        self.bench.subscription.attach(client.consumer, self.kind)
        if permits:
            client.permits += permits
            client.flow(permits)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def go(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.clients))
        self.clients.remove(client)
        client.close()

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), permits=st.integers(1, 8))
    def flow(self, data: st.DataObject, permits: int) -> None:
        client = data.draw(st.sampled_from(self.clients))
        client.permits += permits
        client.flow(permits)

    @precondition(lambda self: any(client.held for client in self.clients))
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        """Some entries, by whoever, not always by who holds them."""
        held = {offset: entry for client in self.clients for offset, entry in client.held.items()}
        offsets = data.draw(st.lists(st.sampled_from(sorted(held)), min_size=1, max_size=4))
        client = data.draw(st.sampled_from(self.clients))
        client.ack(*offsets)
        for offset in offsets:
            self.acked.update(range(offset, held[offset].end))
        self.forget_acked()

    @precondition(lambda self: any(client.held for client in self.clients))
    @rule(data=st.data())
    def ack_part(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from([client for client in self.clients if client.held]))
        entry = client.held[data.draw(st.sampled_from(sorted(client.held)))]
        left = data.draw(st.integers(0, (1 << entry.count) - 1))
        self.bench.subscription.ack(client.consumer, [Ack(entry.offset, [left])], cumulative=False)
        self.acked.update(entry.offset + i for i in range(entry.count) if not left >> i & 1)
        self.forget_acked()

    @precondition(lambda self: not self.kind.is_individual and any(client.held for client in self.clients))
    @rule(data=st.data())
    def ack_up_to(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from([client for client in self.clients if client.held]))
        entry = client.held[data.draw(st.sampled_from(sorted(client.held)))]
        client.ack(entry.offset, cumulative=True)
        self.acked.update(range(entry.end))
        self.forget_acked()

    def forget_acked(self) -> None:
        for client in self.clients:
            for offset, entry in list(client.held.items()):
                if all(each in self.acked for each in range(offset, entry.end)):
                    del client.held[offset]

    @precondition(lambda self: any(client.held for client in self.clients))
    @rule(data=st.data())
    def refuse(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from([client for client in self.clients if client.held]))
        if self.kind.is_individual:
            offsets = data.draw(st.lists(st.sampled_from(sorted(client.held)), min_size=1, unique=True))
            client.nack(*offsets)
            for offset in offsets:
                del client.held[offset]
        else:
            self.bench.subscription.redeliver(client.consumer, None)
            if client.consumer is self.active():
                client.held.clear()
                client.last = -1

    @precondition(lambda self: self.bench.log.end)
    @rule(data=st.data())
    def seek(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.bench.log.end))
        self.bench.subscription.seek(offset)
        assert not any(client.is_connected for client in self.clients)
        self.clients.clear()
        gaps = set(range(self.bench.log.end))
        for entry in self.bench.log.entries:
            gaps -= set(range(entry.offset, entry.end))
        self.acked = gaps | set(range(offset))

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def fill_socket(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.clients)).writable = False

    @precondition(lambda self: any(not client.writable for client in self.clients))
    @rule(data=st.data())
    def drain_socket(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from([client for client in self.clients if not client.writable]))
        client.writable = True
        self.bench.subscription.resume(client.consumer)

    @rule()
    def rest(self) -> None:
        """Let everything happen that can: nothing is left that could be delivered."""
        self.bench.run()
        if self.kind.is_individual:
            able = [client for client in self.clients if self.is_able(client)]
            for entry in self.bench.log.entries:
                assert not (able and self.is_waiting(entry) and self.may_go(entry, able)), "it stalls"
        else:
            for client in self.clients:
                if client.consumer is self.active() and client.permits > 0 and client.writable:
                    read = max(client.last, 0)
                    assert all(offset in self.acked for offset in range(read, self.bench.log.end)), (
                        "it stalls"
                    )

    def may_go(self, entry: Entry, able: list[Watched]) -> bool:
        """Whether one of those can take an entry that waits."""
        if self.kind == SubscriptionKind.SHARED:
            return True
        key = self.keys[entry.offset]
        if self.first_waiting(key) != entry.offset:
            return False
        dispatcher = self.bench.subscription.dispatcher
        assert isinstance(dispatcher, KeyedDispatch)
        owners = dispatcher.router.owners
        owner = owners.owner(owners.hash_of(key.encode()))
        holders = {c.consumer for c in self.clients if any(self.keys[offset] == key for offset in c.held)}
        return owner in {client.consumer for client in able} and holders <= {owner}

    @invariant()
    def counts_agree(self) -> None:
        if self.kind.is_individual:
            for client in self.clients:
                assert client.consumer.unacked == self.unacked(client)
                assert set(client.consumer.pending) == set(client.held)
            assert self.bench.subscription.unacked.total == sum(map(self.unacked, self.clients))
        for client in self.clients:
            assert client.consumer.permits == client.permits
        mark = self.bench.cursor.mark_delete
        assert all(offset in self.acked for offset in range(mark)), "passed what is not acknowledged"

    def teardown(self) -> None:
        if not self.clients:
            self.come(0)
        for _ in range(10 * len(self.bench.log.entries) + 10):
            for client in self.clients:
                client.writable = True
                client.permits += 10
                client.flow(10)
            self.bench.run()
            for client in self.clients:
                offsets = sorted(client.held)
                for offset in offsets:
                    self.acked.update(range(offset, client.held[offset].end))
                client.ack(*offsets)
            self.forget_acked()
            if self.bench.cursor.mark_delete >= self.bench.log.end:
                break
        assert self.bench.cursor.mark_delete == self.bench.log.end, "messages were lost"


@pytest.mark.parametrize("kind", SubscriptionKind)
def test_against_a_model(kind: SubscriptionKind) -> None:
    machine = type(f"{kind.name.title()}Machine", (Machine,), {"kind": kind})
    run_state_machine_as_test(
        machine,
        settings=settings(seeded(30), stateful_step_count=50, suppress_health_check=[HealthCheck.too_slow]),
    )
