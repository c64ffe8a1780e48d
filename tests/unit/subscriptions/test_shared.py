"""Each message to any consumer: turns, priorities, redelivery, bounds on what is unacknowledged."""

import pytest

from anabranch.groups.transaction_ids import TxnId
from anabranch.subscriptions.acking import Ack
from anabranch.subscriptions.errors import ConsumerBusy, NotAllowed
from anabranch.subscriptions.kinds import SubscriptionKind
from anabranch.subscriptions.settings import SubscriptionSettings
from anabranch.subscriptions.shared import RoundRobin
from tests.support.subscriptions import Bench, Client

TXN = TxnId(0, 1 << 15)


@pytest.fixture
def bench() -> Bench:
    return one_at_a_time()


def one_at_a_time(**settings: int) -> Bench:
    return Bench(
        SubscriptionKind.SHARED, settings=SubscriptionSettings(round_robin_messages=1)._replace(**settings)
    )


def counts(client: Client) -> list[tuple[int, int]]:
    return [(delivery.entry.offset, delivery.redelivery_count) for delivery in client.received]


def test_messages_go_round(bench: Bench) -> None:
    clients = [bench.client(permits=10) for _ in range(3)]
    bench.fill(6)
    assert [client.offsets for client in clients] == [[0, 3], [1, 4], [2, 5]]


def test_neighbours_travel_together() -> None:
    bench = one_at_a_time(round_robin_messages=3)
    bench.fill(9)
    a, b = Client(bench.subscription), Client(bench.subscription)
    for client in (a, b):
        bench.subscription.attach(client.consumer, bench.kind)
        client.flow(10)
    bench.run()
    assert (a.offsets, b.offsets) == ([0, 1, 2, 6, 7, 8], [3, 4, 5])


def test_the_order_of_priorities_and_permits() -> None:
    bench = one_at_a_time()
    turns = RoundRobin()
    names = {}
    for name, priority, permits in (("e", 1, 1), ("a", 0, 2), ("b", 0, 1), ("d", 1, 2), ("c", 0, 1)):
        client = Client(bench.subscription, name, priority=priority)
        client.consumer.permits = permits
        names[client.consumer] = name
        turns.add(client.consumer)
    order = []
    while (consumer := turns.next()) is not None:
        consumer.permits -= 1
        order.append(consumer.name)
    assert "".join(order) == "abcaedd"


def test_who_is_out_of_permits_is_left_out(bench: Bench) -> None:
    a, b = bench.client(permits=1), bench.client(permits=10)
    bench.fill(4)
    assert (a.offsets, b.offsets) == ([0], [1, 2, 3])


def test_a_batch_goes_to_one_consumer(bench: Bench) -> None:
    a, b = bench.client(permits=10), bench.client(permits=10)
    bench.fill(2, messages=4)
    assert (a.offsets, b.offsets) == ([0], [4])
    assert (a.consumer.unacked, a.consumer.permits) == (4, 6)


def test_cumulative_acks_are_refused(bench: Bench) -> None:
    client = bench.client(permits=10)
    bench.fill(3)
    with pytest.raises(NotAllowed):
        client.ack(2, cumulative=True)
    assert bench.cursor.mark_delete == 0


def test_what_is_refused_comes_again_first_and_counted(bench: Bench) -> None:
    client = bench.client(permits=3)
    bench.fill(5)
    client.take()
    client.nack(2, 0, 4, 99)  # 4 was not delivered yet, 99 does not exist
    client.flow(5)
    bench.run()
    assert counts(client) == [(0, 1), (2, 1), (3, 0), (4, 0)]
    client.received.clear()
    client.nack(2)
    bench.run()
    assert counts(client) == [(2, 2)]
    client.ack(2)
    assert client.consumer.unacked == 4


def test_redelivery_of_all_is_of_what_that_consumer_holds(bench: Bench) -> None:
    a, b = bench.client(permits=10), bench.client(permits=10)
    bench.fill(4)
    a.take(), b.take()
    bench.subscription.redeliver(a.consumer, None)
    bench.run()
    assert sorted(a.take() + b.take()) == [0, 2]


def test_what_a_consumer_leaves_goes_to_others_uncounted(bench: Bench) -> None:
    a, b = bench.client(permits=10), bench.client(permits=10)
    bench.fill(4)
    a.ack(0)
    a.close()
    bench.run()
    assert counts(b) == [(1, 0), (3, 0), (2, 0)]
    assert b.consumer.unacked == bench.subscription.unacked.total == 3


def test_when_the_last_has_left_the_next_begins_at_what_is_unacknowledged(bench: Bench) -> None:
    a = bench.client(permits=10)
    bench.fill(4)
    a.nack(3)
    bench.run()
    a.ack(0, 2)
    a.close()
    b = bench.client(permits=10)
    assert counts(b) == [(1, 0), (3, 0)]


def test_an_ack_by_another_than_the_holder_counts_for_the_holder(bench: Bench) -> None:
    a, b = bench.client(permits=10), bench.client(permits=10)
    bench.fill(2)
    b.ack(0)
    assert bench.cursor.mark_delete == 1
    assert (a.consumer.unacked, b.consumer.unacked) == (0, 1)
    assert a.consumer.pending == {}


def test_acks_in_parts(bench: Bench) -> None:
    client = bench.client(permits=10)
    bench.fill(1, messages=4)
    bench.subscription.ack(client.consumer, [Ack(0, [0b1010])], cumulative=False)
    assert client.consumer.unacked == 2
    client.nack(0)
    bench.run()
    assert [(d.redelivery_count, d.ack_set) for d in client.received] == [(0, None), (1, [0b1010])]
    assert client.consumer.unacked == 2
    bench.subscription.ack(client.consumer, [Ack(0, [0])], cumulative=False)
    assert client.consumer.unacked == 0
    assert client.consumer.pending == {}
    assert bench.cursor.mark_delete == 4


def test_the_same_id_twice_in_an_ack(bench: Bench) -> None:
    client = bench.client(permits=10)
    bench.fill(3)
    client.ack(0, 0, 1, 0)
    assert client.consumer.unacked == bench.subscription.unacked.total == 1


def test_a_consumer_that_never_acks_is_blocked_until_it_has_acked_half() -> None:
    bench = one_at_a_time(max_unacked_per_consumer=4)
    client = bench.client(permits=100)
    bench.fill(10)
    assert client.take() == [0, 1, 2, 3]
    assert client.consumer.is_blocked
    client.ack(0)
    bench.run()
    assert client.take() == []
    client.ack(1)
    bench.run()
    assert client.take() == [4, 5]


def test_a_refusal_frees_a_blocked_consumer() -> None:
    bench = one_at_a_time(max_unacked_per_consumer=2)
    a = bench.client(permits=100)
    bench.fill(3)
    a.take()
    a.nack(0, 1)
    bench.run()
    assert a.take() == [0, 1]


def test_all_consumers_together_are_blocked_too() -> None:
    bench = one_at_a_time(max_unacked_per_subscription=4)
    a, b = bench.client(permits=100), bench.client(permits=100)
    bench.fill(10)
    assert (a.take(), b.take()) == ([0, 2], [1, 3])
    a.ack(0, 2)
    bench.run()
    assert a.take() + b.take() == []
    b.ack(1)
    bench.run()
    assert sorted(a.take() + b.take()) == [4, 5, 6]
    a.close()
    b.close()
    c = bench.client(permits=100)
    assert c.take() == [3, 4, 5, 6]


def test_a_limit_on_consumers() -> None:
    bench = one_at_a_time(max_consumers=1)
    bench.client()
    with pytest.raises(ConsumerBusy, match="Subscription reached max consumers limit"):
        bench.client()


def test_chunks_of_a_message_go_to_one_consumer(bench: Bench) -> None:
    a, b = bench.client(permits=2), bench.client(permits=10)
    for chunk in range(4):
        bench.log.append(uuid="u", chunk_id=chunk, num_chunks_from_msg=4)
        bench.log.append()
    bench.run()
    assert a.offsets == [0, 2]
    assert b.offsets == [1, 3, 5, 7]
    a.flow(5)
    bench.run()
    assert a.offsets == [0, 2, 4, 6]


def test_chunks_move_together_when_their_consumer_leaves(bench: Bench) -> None:
    a = bench.client(permits=10)
    for chunk in range(2):
        bench.log.append(uuid="u", chunk_id=chunk, num_chunks_from_msg=4)
    bench.run()
    b, c = bench.client(permits=10), bench.client(permits=10)
    a.close()
    bench.run()
    for chunk in range(2, 4):
        bench.log.append(uuid="u", chunk_id=chunk, num_chunks_from_msg=4)
    bench.run()
    assert sorted([b.offsets, c.offsets]) == [[], [0, 1, 2, 3]]


def test_what_is_gone_from_the_log_is_not_waited_for(bench: Bench) -> None:
    client = bench.client(permits=10)
    bench.fill(6)
    client.take()
    client.nack(0, 1, 3, 5)
    bench.log.trim(2)
    bench.run()
    assert client.take() == [3, 5]
    assert bench.cursor.mark_delete == 2


def test_a_seek_forgets_what_was_out(bench: Bench) -> None:
    client, other = bench.client(permits=10), bench.client()
    bench.fill(8)
    client.nack(3)
    bench.subscription.seek(6)
    assert not client.is_connected
    assert not other.is_connected
    again = bench.client(permits=10)
    assert again.take() == [6, 7]
    assert again.consumer.unacked == bench.subscription.unacked.total == 2


def test_advancing_takes_from_those_who_hold(bench: Bench) -> None:
    client = bench.client(permits=10)
    bench.fill(3, messages=3)
    bench.subscription.advance_to(4)
    assert client.consumer.unacked == bench.subscription.unacked.total == 5
    client.ack(3, 6)
    assert client.consumer.unacked == 0
    assert bench.cursor.mark_delete == 9


def test_replay_reads_only_what_it_needs(bench: Bench) -> None:
    client = bench.client(permits=1000)
    bench.fill(200)
    client.take()
    before = bench.log.reads
    client.nack(*range(200))
    bench.run()
    assert client.take() == list(range(200))
    assert bench.log.reads - before < 15


def test_what_an_aborted_transaction_gives_back_is_not_delivered_twice(bench: Bench) -> None:
    bench.fill(4)
    a = bench.client(permits=10)
    bench.subscription.ack_within(TXN, a.consumer, [Ack(1), Ack(3)], cumulative=False)
    a.close()
    b, c = bench.client(), bench.client()
    bench.subscription.end_transaction(TXN, commit=False)
    b.flow(10)
    c.flow(10)
    bench.run()
    assert sorted(b.offsets + c.offsets) == [0, 1, 2, 3]
    b.ack(*b.offsets)
    c.ack(*c.offsets)
    assert (b.consumer.unacked, c.consumer.unacked) == (0, 0)


def test_chunks_that_wait_for_a_blocked_consumer_come_when_it_is_not_any_more() -> None:
    bench = one_at_a_time(max_unacked_per_consumer=2)
    a, b = bench.client(permits=10), bench.client(permits=10)
    for _ in range(2):
        bench.log.append()
    for chunk in range(3):
        bench.log.append(uuid="u", chunk_id=chunk, num_chunks_from_msg=3)
    bench.run()
    assert (a.offsets, b.offsets) == ([0, 2], [1])
    bench.subscription.advance_to(2)
    bench.run()
    bench.subscription.advance_to(3)
    bench.run()
    assert (a.offsets, b.offsets) == ([0, 2, 3, 4], [1])
