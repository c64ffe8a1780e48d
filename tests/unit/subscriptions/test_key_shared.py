"""Each key to one consumer: order, draining, keys that wait and others that do not."""

import pytest

from anabranch.groups.transaction_ids import TxnId
from anabranch.subscriptions.acking import Ack
from anabranch.subscriptions.consumer import KeySharing
from anabranch.subscriptions.errors import ConsumerAssignError, NotAllowed, SubscriptionTypeMismatch
from anabranch.subscriptions.keyed_dispatch import KeyedDispatch
from anabranch.subscriptions.kinds import SubscriptionKind
from anabranch.subscriptions.settings import SubscriptionSettings
from tests.support.subscriptions import Bench, Client

TXN = TxnId(0, 1 << 15)
HALVES = ([(0, 32767)], [(32768, 65535)])


@pytest.fixture
def bench() -> Bench:
    return bench_with()


def bench_with(**settings: int) -> Bench:
    return Bench(SubscriptionKind.KEY_SHARED, settings=SubscriptionSettings()._replace(**settings))


def dispatcher(bench: Bench) -> KeyedDispatch:
    assert isinstance(bench.subscription.dispatcher, KeyedDispatch)
    return bench.subscription.dispatcher


def fill(bench: Bench, keys: str) -> None:
    for key in keys:
        bench.log.append(partition_key=key)
    bench.run()


def keys_of(bench: Bench, client: Client) -> set[str]:
    """Those of the alphabet that belong to a client."""
    owners = dispatcher(bench).router.owners
    letters = "abcdefghijklmnopqrstuvwxyz"
    return {key for key in letters if owners.owner(owners.hash_of(key.encode())) is client.consumer}


def test_a_key_has_one_consumer_and_its_order(bench: Bench) -> None:
    clients = [bench.client(f"c{i}", permits=1000) for i in range(4)]
    keys = "".join("abcdefghijklmnopqrstuvwxyz"[(i * 7) % 26] for i in range(500))
    fill(bench, keys)
    seen: dict[str, Client] = {}
    for client in clients:
        assert client.offsets == sorted(client.offsets)
        for offset in client.offsets:
            assert seen.setdefault(keys[offset], client) is client
    assert sum(len(client.offsets) for client in clients) == 500
    assert all(client.offsets for client in clients)


def test_the_ordering_key_counts_before_the_partition_key(bench: Bench) -> None:
    a, b = bench.client("a", permits=100), bench.client("b", permits=100)
    for i in range(20):
        bench.log.append(partition_key=str(i), ordering_key=b"same")
    bench.run()
    assert sorted([len(a.offsets), len(b.offsets)]) == [0, 20]


def test_a_key_moves_when_the_consumer_that_had_it_is_done(bench: Bench) -> None:
    a = bench.client("a", permits=1000)
    letters = "abcdefghijklmnopqrstuvwxyz"
    fill(bench, letters)
    a.take()
    b = bench.client("b", permits=1000)
    moved = sorted(keys_of(bench, b))
    assert moved
    fill(bench, letters)
    assert b.take() == []  # all of its keys are with a still
    assert {letters[offset - 26] for offset in a.take()} == set(letters) - set(moved)
    draining = dispatcher(bench).router.draining()
    assert {each.holder.name for each in draining} == {"a"}
    assert [(each.unacked, each.waiting) for each in draining] == [(1, 1)] * len(moved)
    first = moved[0]
    a.ack(letters.index(first))
    bench.run()
    assert b.take() == [26 + letters.index(first)]  # that key, and not the others
    a.nack(*(letters.index(key) for key in moved[1:]))
    bench.run()
    got = b.take()
    for key in moved[1:]:
        at = letters.index(key)
        assert got.index(at) < got.index(26 + at)
    assert dispatcher(bench).router.draining() == []


def test_what_a_consumer_leaves_comes_before_what_follows(bench: Bench) -> None:
    a, b = bench.client("a", permits=1000), bench.client("b", permits=1000)
    letters = "abcdefghijklmnopqrstuvwxyz"
    fill(bench, letters * 2)
    own = a.take()
    b.take()
    fill(bench, letters)
    a.close()
    bench.run()
    got = b.take()
    of_a = [offset for offset in got if letters[offset % 26] in {letters[o % 26] for o in own}]
    assert len(of_a) == len(own) // 2 * 3
    for key in {offset % 26 for offset in own}:
        assert [offset for offset in of_a if offset % 26 == key] == [key, key + 26, key + 52]


def test_a_consumer_that_takes_nothing_does_not_keep_others() -> None:
    bench = bench_with(look_ahead_per_consumer=50)
    a, b = bench.client("a"), bench.client("b", permits=10_000)
    letters = "abcdefghijklmnopqrstuvwxyz"
    fill(bench, letters * 2)
    mine = [offset for offset in range(52) if letters[offset % 26] in keys_of(bench, b)]
    assert b.offsets == mine
    fill(bench, letters * 20)
    assert (
        100 <= len(dispatcher(bench).router) < 100 + 300
    )  # it does not look further ahead; a read is not cut
    a.flow(10_000)
    bench.run()
    assert sorted(a.offsets + b.offsets) == list(range(26 * 22))
    assert a.offsets == sorted(a.offsets)


def test_permits_of_the_one_consumer_bound_what_it_gets(bench: Bench) -> None:
    a = bench.client("a", permits=3)
    fill(bench, "aaaaa")
    assert a.take() == [0, 1, 2]
    a.flow(1)
    bench.run()
    assert a.take() == [3]


def test_a_refused_message_comes_before_later_ones_of_its_key(bench: Bench) -> None:
    a = bench.client("a", permits=2)
    fill(bench, "aaaa")
    a.take()
    a.nack(1, 0)
    a.flow(10)
    bench.run()
    assert [(d.entry.offset, d.redelivery_count) for d in a.received] == [(0, 1), (1, 1), (2, 0), (3, 0)]


def test_sticky_ranges(bench: Bench) -> None:
    a, b = bench.sticky(*HALVES[0], permits=1000), bench.sticky(*HALVES[1], permits=1000)
    fill(bench, "abcdefghijklmnopqrstuvwxyz")
    assert sorted(a.offsets + b.offsets) == list(range(26))
    with pytest.raises(ConsumerAssignError, match="Range conflict"):
        bench.sticky((100, 200))
    assert bench.subscription.consumers == [a.consumer, b.consumer]


def test_keys_that_nobody_has_wait_for_somebody(bench: Bench) -> None:
    a = bench.sticky(*HALVES[0], permits=1000)
    fill(bench, "abcdefghijklmnopqrstuvwxyz" * 2)
    assert 0 < len(a.offsets) < 52
    b = bench.sticky(*HALVES[1], permits=1000)
    assert sorted(a.offsets + b.offsets) == list(range(52))
    assert b.offsets == sorted(b.offsets)


def test_all_have_to_want_the_same_sharing(bench: Bench) -> None:
    a = bench.sticky(*HALVES[0])
    with pytest.raises(SubscriptionTypeMismatch):
        bench.client()
    a.close()
    bench.client(key_sharing=KeySharing(allows_out_of_order=True))
    with pytest.raises(SubscriptionTypeMismatch):
        bench.client()


def test_out_of_order_nothing_waits_for_the_one_before(bench: Bench) -> None:
    sharing = KeySharing(allows_out_of_order=True)
    a = bench.client("a", permits=1000, key_sharing=sharing)
    fill(bench, "abcdefghijklmnopqrstuvwxyz")
    b = bench.client("b", permits=1000, key_sharing=sharing)
    fill(bench, "abcdefghijklmnopqrstuvwxyz")
    assert b.offsets
    assert len(a.offsets) + len(b.offsets) == 52


def test_cumulative_acks_are_refused(bench: Bench) -> None:
    a = bench.client("a", permits=10)
    fill(bench, "a")
    with pytest.raises(NotAllowed):
        a.ack(0, cumulative=True)


def test_a_blocked_consumer_keeps_only_its_own_keys() -> None:
    bench = bench_with(max_unacked_per_consumer=2)
    a, b = bench.client("a", permits=1000), bench.client("b", permits=1000)
    fill(bench, "abcdefghijklmnopqrstuvwxyz")
    assert (len(a.offsets), len(b.offsets)) == (2, 2)
    a.ack(*a.take())
    bench.run()
    assert (len(a.offsets), len(b.offsets)) == (2, 2)
    while a.received or b.received:
        for client in (a, b):
            client.ack(*client.take())
        bench.run()
    assert bench.cursor.mark_delete == 26


def test_everybody_gone_and_back(bench: Bench) -> None:
    a = bench.client("a", permits=10)
    fill(bench, "abcab")
    a.ack(1)
    a.close()
    b = bench.client("b", permits=10)
    assert b.offsets == [0, 2, 3, 4]
    b.ack(*b.take())
    assert bench.cursor.mark_delete == 5


def test_a_seek_lets_go_of_everything(bench: Bench) -> None:
    a, b = bench.client("a", permits=100), bench.client("b", permits=100)
    fill(bench, "abcdef")
    bench.subscription.seek(0)
    assert not a.is_connected
    assert not b.is_connected
    c = bench.client("c", permits=100)
    assert c.offsets == list(range(6))
    assert bench.subscription.unacked.total == 6


def test_advancing_frees_keys(bench: Bench) -> None:
    a = bench.client("a", permits=100)
    fill(bench, "abcdefghijklmnopqrstuvwxyz")
    b = bench.client("b", permits=100)
    fill(bench, "abcdefghijklmnopqrstuvwxyz")
    assert b.offsets == []
    bench.subscription.advance_to(26)
    bench.run()
    assert len(a.offsets) + len(b.offsets) == 52
    assert b.offsets


def test_what_an_aborted_transaction_gives_back_is_not_delivered_twice(bench: Bench) -> None:
    bench.fill(4)
    a = bench.client(permits=10)
    bench.subscription.ack_within(TXN, a.consumer, [Ack(1), Ack(3)], cumulative=False)
    a.close()
    b = bench.client()
    bench.subscription.end_transaction(TXN, commit=False)
    b.flow(10)
    bench.run()
    assert b.offsets == [0, 1, 2, 3]
