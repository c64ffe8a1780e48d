"""Who has which keys: rings that change little, ranges that do not overlap."""

import pytest

from anabranch.subscriptions.consumer import Consumer, HashRange, KeySharing
from anabranch.subscriptions.errors import ConsumerAssignError
from anabranch.subscriptions.hash_ranges import HashRing, StickyRanges
from anabranch.subscriptions.kinds import SubscriptionKind
from tests.support.subscriptions import Bench, Client


def consumer(name: str = "", *ranges: tuple[int, int]) -> Consumer:
    sharing = KeySharing([HashRange(*each) for each in ranges]) if ranges else KeySharing()
    return Client(Bench(SubscriptionKind.KEY_SHARED).subscription, name, key_sharing=sharing).consumer


def owners(ring: HashRing) -> list[Consumer | None]:
    return [ring.owner(hash) for hash in range(1, 65536)]


def test_a_ring_gives_everybody_a_share() -> None:
    ring = HashRing(100)
    assert ring.owner(1) is None
    consumers = [consumer(f"c{i}") for i in range(4)]
    for each in consumers:
        ring.add(each)
    shares = [owners(ring).count(each) / 65535 for each in consumers]
    assert min(shares) > 0.15
    assert max(shares) < 0.35


def test_who_joins_takes_and_who_leaves_gives_back_only_its_own() -> None:
    ring = HashRing(100)
    a, b, c = (consumer(name) for name in "abc")
    ring.add(a)
    ring.add(b)
    before = owners(ring)
    ring.add(c)
    during = owners(ring)
    assert all(new in (old, c) for old, new in zip(before, during, strict=True))
    ring.remove(c)
    assert owners(ring) == before


def test_consumers_of_one_name_have_different_points() -> None:
    ring = HashRing(100)
    twins = [consumer("twin") for _ in range(3)]
    for each in twins:
        ring.add(each)
    assert all(owners(ring).count(each) > 65535 / 10 for each in twins)
    ring.remove(twins[1])
    again = consumer("twin")
    ring.add(again)
    assert owners(ring).count(again) > 65535 / 10


def test_the_ranges_of_a_ring_cover_every_hash_once() -> None:
    ring = HashRing(10)
    for name in "abc":
        ring.add(consumer(name))
    of_hash = {}
    for owner, ranges in ring.ranges().items():
        for start, last in ranges:
            for hash in range(start, last + 1):
                assert hash not in of_hash
                of_hash[hash] = owner
    assert [of_hash[hash] for hash in range(1, 65536)] == owners(ring)


def test_sticky_ranges_belong_to_who_asked() -> None:
    sticky = StickyRanges()
    a, b = consumer("a", (0, 99), (200, 299)), consumer("b", (100, 199))
    sticky.add(a)
    sticky.add(b)
    assert [sticky.owner(hash) for hash in (0, 99, 100, 199, 200, 299, 300)] == [a, a, b, b, a, a, None]
    assert sticky.ranges() == {a: [(0, 99), (200, 299)], b: [(100, 199)]}
    sticky.remove(a)
    assert sticky.owner(50) is None
    assert sticky.owner(150) is b


@pytest.mark.parametrize(
    ("ranges", "reason"),
    [
        ([(50, 60)], "Range conflict with consumer a"),
        ([(0, 49), (100, 200)], "Range conflict"),
        ([(0, 49), (49, 49)], "own ranges conflict"),
        ([(9, 3)], "no range"),
        ([(0, 65536)], "no range"),
        ([(-1, 3)], "no range"),
    ],
)
def test_ranges_that_cannot_be(ranges: list[tuple[int, int]], reason: str) -> None:
    sticky = StickyRanges()
    sticky.add(consumer("a", (50, 150)))
    with pytest.raises(ConsumerAssignError, match=reason):
        sticky.add(consumer("b", *ranges))
    assert sticky.ranges().keys() == {sticky.owner(50)}


def test_hashes_of_keys() -> None:
    keys = [str(i).encode() for i in range(10_000)]
    assert min(HashRing(1).hash_of(key) for key in keys) >= 1
    assert min(StickyRanges().hash_of(key) for key in keys) >= 1
