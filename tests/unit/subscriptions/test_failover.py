"""One active consumer of several: who it is, who is told, and what goes to the successor."""

import pytest

from anabranch.subscriptions.failover import Failover
from anabranch.subscriptions.kinds import SubscriptionKind
from anabranch.subscriptions.settings import SubscriptionSettings
from tests.support.subscriptions import Bench, Client


def bench_of(partition_index: int, delay_ms: int = 1000) -> Bench:
    return Bench(
        SubscriptionKind.FAILOVER,
        partition_index=partition_index,
        settings=SubscriptionSettings(failover_delay_ms=delay_ms),
    )


@pytest.mark.parametrize(("partition", "name"), [(0, "a"), (1, "b"), (2, "a"), (5, "b")])
def test_partitions_spread_over_those_of_the_highest_priority(partition: int, name: str) -> None:
    bench = bench_of(partition)
    policy = Failover("persistent://public/default/t", partition)
    consumers = [
        Client(bench.subscription, n, priority=p).consumer for n, p in (("c", 1), ("b", 0), ("a", 0))
    ]
    chosen = policy.choose(consumers)
    assert chosen is not None
    assert chosen.name == name


def test_topics_without_partitions_spread_too() -> None:
    bench = bench_of(-1)
    consumers = [Client(bench.subscription, name).consumer for name in ("a", "b", "c")]
    chosen = [Failover(f"persistent://public/default/t{i}", -1).choose(consumers) for i in range(60)]
    assert all(chosen.count(consumer) >= 5 for consumer in consumers)
    assert Failover("t", -1).choose([]) is None


def test_a_newcomer_costs_no_more_than_its_own_hashes() -> None:
    bench = bench_of(-1)
    policy = Failover("persistent://public/default/t", -1)
    consumers = [Client(bench.subscription, f"c{i}").consumer for i in range(300)]
    chosen = [policy.choose(consumers[:count]) for count in range(1, 301)]
    assert chosen[-1] is Failover("persistent://public/default/t", -1).choose(consumers)
    assert policy.choose([c for c in consumers if c is not chosen[-1]]) is not chosen[-1]


def test_the_first_is_active_at_once_and_those_who_stand_by_are_told() -> None:
    bench = bench_of(0)
    a = bench.client("a", permits=10)
    assert a.active == [True]
    b = Client(bench.subscription, "b")
    bench.subscription.attach(b.consumer, bench.kind)
    assert b.active == [False]  # before the answer to its SUBSCRIBE
    bench.run()
    b.flow(10)
    bench.fill(3)
    assert (a.offsets, b.offsets) == ([0, 1, 2], [])
    assert (a.active, b.active) == ([True], [False])


def test_the_successor_gets_at_once_and_in_order_what_the_active_one_left() -> None:
    bench = bench_of(0)
    a, b = bench.client("a", permits=10), bench.client("b", permits=10)
    bench.fill(4)
    a.ack(1)
    a.close()
    bench.run()
    assert b.offsets == [0, 2, 3]
    assert b.active == [False, True]


def test_one_of_higher_priority_takes_over_when_late_acks_had_their_time() -> None:
    bench = bench_of(0)
    a = bench.client("a", permits=10, priority=1)
    bench.fill(3)
    b = bench.client("b", permits=10, priority=0)
    bench.fill(1)
    assert (a.offsets, b.offsets) == ([0, 1, 2], [])
    a.ack(0, 1)
    bench.time.pass_ms(999)
    assert b.offsets == []
    bench.time.pass_ms(1)
    assert b.offsets == [2, 3]
    assert (a.active, b.active) == ([True, False], [True])
    a.ack(2)  # still counts
    assert bench.cursor.mark_delete == 3


def test_without_delay_the_change_is_at_once() -> None:
    bench = bench_of(0, delay_ms=0)
    a = bench.client("b", permits=10)
    bench.fill(1)
    b = bench.client("a", permits=10)
    assert b.offsets == [0]
    assert (a.active, b.active) == ([True, False], [True])


def test_who_is_not_active_asks_for_redelivery_in_vain() -> None:
    bench = bench_of(0)
    a, b = bench.client("a", permits=10), bench.client("b", permits=10)
    bench.fill(2)
    bench.subscription.redeliver(b.consumer, None)
    bench.run()
    assert (a.offsets, b.offsets) == ([0, 1], [])


def test_all_gone_while_one_was_to_take_over() -> None:
    bench = bench_of(0)
    a, b = bench.client("b", permits=10), bench.client("a", permits=10)
    a.close()
    b.close()
    bench.time.pass_ms(2000)
    bench.fill(1)
    c = bench.client("c", permits=1)
    assert c.offsets == [0]
    bench.subscription.close()
    assert not c.is_connected
