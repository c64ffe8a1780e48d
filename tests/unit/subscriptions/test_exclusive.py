"""One consumer at a time: order, permits, acknowledgements, redelivery, seeking."""

import pytest

from anabranch.subscriptions.acking import Ack
from anabranch.subscriptions.errors import (
    ConsumerBusy,
    ConsumerGone,
    InvalidAck,
    InvalidPermits,
    SubscriptionTypeMismatch,
)
from anabranch.subscriptions.kinds import SubscriptionKind
from tests.support.subscriptions import Bench, Client


@pytest.fixture
def bench() -> Bench:
    return Bench(SubscriptionKind.EXCLUSIVE)


def test_what_is_there_and_what_comes_is_delivered_in_order(bench: Bench) -> None:
    bench.fill(3)
    client = bench.client(permits=10)
    bench.fill(2)
    assert client.offsets == [0, 1, 2, 3, 4]
    assert client.consumer.permits == 5


def test_a_second_consumer_is_refused(bench: Bench) -> None:
    bench.client()
    with pytest.raises(ConsumerBusy, match="Exclusive consumer is already connected"):
        bench.client()


def test_another_kind_has_to_wait_until_nobody_is_left(bench: Bench) -> None:
    client = bench.client(permits=1)
    other = Client(bench.subscription)
    with pytest.raises(SubscriptionTypeMismatch, match="Subscription is of different type"):
        bench.subscription.attach(other.consumer, SubscriptionKind.SHARED)
    client.close()
    bench.subscription.attach(other.consumer, SubscriptionKind.SHARED)
    other.flow(1)
    bench.fill(1)
    assert other.offsets == [0]


def test_nothing_without_permits(bench: Bench) -> None:
    client = bench.client()
    bench.fill(5)
    assert client.offsets == []
    client.flow(2)
    bench.run()
    assert client.offsets == [0, 1]


def test_a_batch_takes_a_permit_a_message_and_may_overshoot_once(bench: Bench) -> None:
    client = bench.client(permits=4)
    bench.fill(3, messages=3)
    assert client.offsets == [0, 3]
    assert client.consumer.permits == -2
    client.flow(2)
    bench.run()
    assert client.offsets == [0, 3]
    client.flow(1)
    bench.run()
    assert client.offsets == [0, 3, 6]


def test_a_consumer_without_queue_gets_one_at_a_time(bench: Bench) -> None:
    bench.fill(3)
    client = bench.client()
    for expected in range(3):
        client.flow(1)
        bench.run()
        assert client.take() == [expected]


def test_nothing_while_the_socket_is_full(bench: Bench) -> None:
    client = bench.client()
    client.writable = False
    client.flow(5)
    bench.fill(2)
    assert client.offsets == []
    client.writable = True
    bench.subscription.resume(client.consumer)
    bench.run()
    assert client.offsets == [0, 1]


@pytest.mark.parametrize("permits", [0, -1, 1 << 31])
def test_absurd_permits_are_refused(bench: Bench, permits: int) -> None:
    client = bench.client(permits=1)
    with pytest.raises(InvalidPermits):
        client.flow(permits)
    assert client.consumer.permits == 1


def test_acks_move_the_mark(bench: Bench) -> None:
    bench.fill(5)
    client = bench.client(permits=5)
    client.ack(0, 1, 3)
    assert bench.cursor.mark_delete == 2
    assert bench.cursor.acked_ahead() == 1
    client.ack(2)
    assert bench.cursor.mark_delete == 4


def test_an_ack_is_of_the_whole_entry(bench: Bench) -> None:
    bench.fill(2, messages=10)
    client = bench.client(permits=20)
    client.ack(10)
    assert bench.cursor.mark_delete == 0
    client.ack(0)
    assert bench.cursor.mark_delete == 20


def test_an_ack_set_acknowledges_what_it_has_no_bit_for(bench: Bench) -> None:
    bench.log.append(3)
    client = bench.client(permits=3)
    bench.subscription.ack(client.consumer, [Ack(0, [0b101])], cumulative=False)
    assert not bench.cursor.is_acked(0)
    assert bench.cursor.is_acked(1)
    bench.subscription.ack(client.consumer, [Ack(0, [0b100])], cumulative=False)
    assert bench.cursor.mark_delete == 2


def test_cumulative_acks(bench: Bench) -> None:
    bench.fill(3, messages=4)
    client = bench.client(permits=20)
    client.ack(4, cumulative=True)
    assert bench.cursor.mark_delete == 8
    client.ack(0, cumulative=True)
    assert bench.cursor.mark_delete == 8
    bench.subscription.ack(client.consumer, [Ack(8, [0b1100])], cumulative=True)
    assert bench.cursor.mark_delete == 10
    assert not client.consumer.pending.keys() & {0, 4}


def test_a_cumulative_ack_before_a_batch_names_the_last_message_of_the_one_before(bench: Bench) -> None:
    bench.fill(2, messages=4)
    client = bench.client(permits=20)
    client.ack(3, cumulative=True)
    assert bench.cursor.mark_delete == 4
    client.ack(-1, cumulative=True)
    assert bench.cursor.mark_delete == 4


def test_a_cumulative_ack_of_a_batch_that_the_mark_stands_in(bench: Bench) -> None:
    bench.fill(2, messages=4)
    bench.subscription.seek(2)
    client = bench.client(permits=20)
    client.ack(0, cumulative=True)
    assert bench.cursor.mark_delete == 4


def test_ids_of_nothing_change_nothing(bench: Bench) -> None:
    bench.fill(2, messages=4)
    client = bench.client(permits=20)
    client.ack(2, 5)  # inside of entries
    assert (bench.cursor.mark_delete, bench.cursor.acked_ahead()) == (0, 0)
    with pytest.raises(InvalidAck, match="the log ends at 8"):
        client.ack(100, 0)
    assert bench.cursor.mark_delete == 4  # the rest of the list counts
    with pytest.raises(InvalidAck):
        client.ack(1 << 63, cumulative=True)
    assert bench.cursor.mark_delete == 4


def test_the_next_consumer_gets_what_was_not_acknowledged(bench: Bench) -> None:
    bench.fill(5)
    first = bench.client(permits=10)
    first.ack(0, 2)
    first.close()
    second = bench.client(permits=10)
    assert second.offsets == [1, 3, 4]
    assert {d.redelivery_count for d in second.received} == {0}
    second.ack(3, 4, 1)  # also what it was sent before it came back
    assert bench.cursor.mark_delete == 5


def test_after_coming_back_what_was_sent_before_can_be_acked(bench: Bench) -> None:
    bench.fill(2, messages=3)
    first = bench.client(permits=10)
    first.close()
    second = bench.client()
    second.ack(3)
    second.ack(0, cumulative=True)
    assert bench.cursor.mark_delete == 6
    second.close()
    with pytest.raises(ConsumerGone):
        second.ack(0)


def test_redelivery_is_of_everything_in_order(bench: Bench) -> None:
    bench.fill(4)
    client = bench.client(permits=10)
    client.ack(1)
    client.take()
    bench.subscription.redeliver(client.consumer, [3])
    bench.run()
    assert client.take() == [0, 2, 3]
    bench.subscription.redeliver(client.consumer, None, epoch=7)
    bench.run()
    assert client.take() == [0, 2, 3]
    assert client.consumer.epoch == 7


def test_a_batch_acked_in_part_comes_again_with_what_is_left(bench: Bench) -> None:
    bench.log.append(3)
    client = bench.client(permits=10)
    bench.subscription.ack(client.consumer, [Ack(0, [0b101])], cumulative=False)
    bench.subscription.redeliver(client.consumer, None)
    bench.run()
    assert [d.ack_set for d in client.received] == [None, [0b101]]
    assert client.consumer.permits == 4  # clients give back what they skip


def test_gaps_are_passed_over(bench: Bench) -> None:
    bench.fill(1)
    bench.log.gap(2)
    bench.fill(1)
    bench.log.gap(1)
    client = bench.client(permits=10)
    bench.run()
    assert client.offsets == [0, 3]
    client.ack(0)
    assert bench.cursor.mark_delete == 3
    client.ack(3)
    assert bench.cursor.mark_delete == 5


def test_what_retention_took_is_passed_over(bench: Bench) -> None:
    bench.fill(6)
    bench.log.trim(4)
    client = bench.client(permits=10)
    assert client.offsets == [4, 5]
    assert bench.cursor.mark_delete == 4


def test_whoever_has_no_permits_does_not_wait_for_the_log(bench: Bench) -> None:
    client = bench.client(permits=1)
    assert bench.log.waiters == 1
    bench.fill(1)
    assert bench.log.waiters <= 1
    bench.fill(1)
    assert bench.log.waiters == 0
    client.flow(1)
    bench.run()
    client.flow(1)
    bench.run()
    assert bench.log.waiters == 1
    bench.subscription.close()
    assert bench.log.waiters == 0
    assert not client.is_connected


def test_a_seek_sends_everybody_away(bench: Bench) -> None:
    bench.fill(5)
    client = bench.client(permits=10)
    client.ack(0, 1, 2, 3, 4)
    bench.subscription.seek(2)
    assert not client.is_connected
    assert bench.cursor.mark_delete == 2
    again = bench.client(permits=10)
    assert again.offsets == [2, 3, 4]


def test_a_seek_inside_a_batch(bench: Bench) -> None:
    bench.fill(2, messages=4)
    bench.subscription.seek(2)
    client = bench.client(permits=10)
    assert [(d.entry.offset, d.ack_set) for d in client.received] == [(0, [0b1100]), (4, None)]


def test_a_seek_beyond_the_ends_is_to_the_ends(bench: Bench) -> None:
    bench.fill(5)
    bench.log.trim(2)
    bench.subscription.seek(-1)
    assert bench.cursor.mark_delete == 2
    bench.subscription.seek(1 << 60)
    assert bench.cursor.mark_delete == 5


def test_advancing_acknowledges_what_is_out(bench: Bench) -> None:
    bench.fill(5)
    client = bench.client(permits=2)
    bench.subscription.advance_to(4)
    assert bench.cursor.mark_delete == 4
    assert client.consumer.pending == {}
    client.flow(5)
    bench.run()
    assert client.offsets == [0, 1, 4]


def test_the_keeper_of_the_cursor_is_told(bench: Bench) -> None:
    told: list[int] = []
    bench.subscription.moved = lambda: told.append(bench.cursor.mark_delete)
    bench.fill(1)
    bench.log.gap(1)
    client = bench.client(permits=5)
    client.ack(0)
    assert told[-1] == 2
