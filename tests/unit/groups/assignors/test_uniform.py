"""The uniform assignor: examples, and what must hold of any assignment."""

from random import Random
from uuid import UUID

import pytest

from anabranch.groups.assignors.subscribers import Subscriber
from anabranch.groups.assignors.uniform import assign_uniformly
from anabranch.groups.parts import TopicFacts

T, U = UUID(int=1), UUID(int=2)


def topics(*counts, racks=()):
    return {
        UUID(int=i): TopicFacts(
            f"t{i}", UUID(int=i), tuple(frozenset(racks[p : p + 1]) for p in range(count))
        )
        for i, count in enumerate(counts, 1)
    }


def count(target):
    return sum(len(partitions) for partitions in target.values())


def flat(target):
    return {(topic, partition) for topic, partitions in target.items() for partition in partitions}


def check(members, facts, assigned):
    """Every partition that somebody reads has one owner, who reads it."""
    assert assigned.keys() == members.keys()
    owned = [partition for target in assigned.values() for partition in flat(target)]
    read = set().union(*(member.topics for member in members.values()))
    assert sorted(owned) == [(t, p) for t in sorted(read) for p in range(facts[t].num_partitions)]
    for member_id, target in assigned.items():
        assert target.keys() <= members[member_id].topics
        assert all(target.values())


def test_a_newcomer_takes_what_is_too_much_and_no_more():
    facts = topics(4)
    assigned = assign_uniformly(
        {"a": Subscriber(frozenset({T}), {T: frozenset(range(4))}), "b": Subscriber(frozenset({T}))}, facts
    )
    assert assigned == {"a": {T: frozenset({0, 1})}, "b": {T: frozenset({2, 3})}}


def test_who_stays_keeps_what_it_has():
    facts = topics(6)
    assigned = assign_uniformly(
        {
            "a": Subscriber(frozenset({T}), {T: frozenset({0, 1})}),
            "c": Subscriber(frozenset({T}), {T: frozenset({4, 5})}),
        },
        facts,
    )
    assert assigned["a"][T] >= {0, 1}
    assert assigned["c"][T] >= {4, 5}
    assert len(assigned["a"][T]) == len(assigned["c"][T]) == 3


def test_nobody_and_nothing():
    assert assign_uniformly({}, topics(3)) == {}
    assert assign_uniformly({"a": Subscriber(frozenset())}, {}) == {"a": {}}


def test_partitions_go_to_members_beside_them():
    facts = topics(6, racks=["x", "y", "x", "y", "x", "y"])
    members = {
        "a": Subscriber(frozenset({T}), rack_id="y"),
        "b": Subscriber(frozenset({T}), rack_id="x"),
    }
    assert assign_uniformly(members, facts) == {
        "a": {T: frozenset({1, 3, 5})},
        "b": {T: frozenset({0, 2, 4})},
    }


def test_who_must_give_up_gives_up_what_is_far_away():
    facts = topics(4, racks=["x", "y", "x", "y"])
    members = {
        "a": Subscriber(frozenset({T}), {T: frozenset(range(4))}, rack_id="y"),
        "b": Subscriber(frozenset({T}), rack_id="x"),
    }
    assert assign_uniformly(members, facts)["a"] == {T: frozenset({1, 3})}


def test_shares_are_even_though_it_takes_a_chain():
    # a reads only t1; b both; c only t2.  What a has too much goes to b, and b's t2 to c.
    facts = topics(4, 2)
    members = {
        "a": Subscriber(frozenset({T}), {T: frozenset(range(4))}),
        "b": Subscriber(frozenset({T, U}), {U: frozenset({0, 1})}),
        "c": Subscriber(frozenset({U})),
    }
    assigned = assign_uniformly(members, facts)
    check(members, facts, assigned)
    assert [count(assigned[member_id]) for member_id in "abc"] == [2, 2, 2]


@pytest.mark.parametrize("seed", range(150))
def test_members_alike(seed):
    chance = Random(seed)
    facts = topics(*(chance.randint(1, 9) for _ in range(chance.randint(1, 4))))
    reads = frozenset(facts)
    members = {f"m{i}": Subscriber(reads) for i in range(chance.randint(1, 6))}
    for _ in range(6):
        assigned = assign_uniformly(members, facts)
        check(members, facts, assigned)
        counts = [count(target) for target in assigned.values()]
        assert max(counts) - min(counts) <= 1
        assert assign_uniformly(owning(members, assigned), facts) == assigned  # nothing moves for nothing
        assert assigned == assign_uniformly(dict(sorted(members.items(), reverse=True)), facts)
        before = assigned
        members = owning(members, assigned)
        if chance.random() < 0.5 or len(members) == 1:
            members[f"n{chance.randrange(1000)}"] = Subscriber(reads)
        else:
            del members[chance.choice(sorted(members))]
        after = assign_uniformly(members, facts)
        moved = sum(len(flat(after[m]) - flat(before.get(m, {}))) for m in after)
        assert moved == fewest_moves(members, before, sum(f.num_partitions for f in facts.values()))


def owning(members, assigned):
    return {member_id: member._replace(owned=assigned[member_id]) for member_id, member in members.items()}


def fewest_moves(members, before, total):
    """By counting: everybody keeps up to its share, and the larger shares are where they save most."""
    share, larger = divmod(total, len(members))
    had = sorted((count(before.get(member_id, {})) for member_id in members), reverse=True)
    return total - sum(min(size, share + (i < larger)) for i, size in enumerate(had))


@pytest.mark.parametrize("seed", range(150))
def test_members_unlike(seed):
    chance = Random(seed)
    facts = topics(*(chance.randint(1, 6) for _ in range(chance.randint(1, 4))))
    members = {
        f"m{i}": Subscriber(frozenset(t for t in facts if chance.random() < 0.6))
        for i in range(chance.randint(1, 5))
    }
    for _ in range(3):
        assigned = assign_uniformly(members, facts)
        check(members, facts, assigned)
        counts = sorted((count(target) for target in assigned.values()), reverse=True)
        assert counts == most_even(members, facts)
        members = owning(members, assigned)
        members[chance.choice(sorted(members))] = Subscriber(
            frozenset(t for t in facts if chance.random() < 0.6)
        )


def most_even(members, facts):
    """Naively: hand out one partition after the other, each by the way that keeps the largest share least."""
    readers = {t: [m for m, member in members.items() if t in member.topics] for t in facts}
    owner = {}
    loads = dict.fromkeys(members, 0)
    for t, facts_of in facts.items():
        for p in range(facts_of.num_partitions if readers[t] else 0):
            owner[t, p] = readers[t][0]
            loads[readers[t][0]] += 1
    improved = True
    while improved:  # shift along any chain that makes two members more even
        improved = False
        for start in members:
            reach = {start: None}
            queue = [start]
            while queue:
                member = queue.pop(0)
                for (t, p), who in owner.items():
                    if who == member:
                        for other in readers[t]:
                            if other not in reach:
                                reach[other] = (member, (t, p))
                                queue.append(other)
            low = min(reach, key=lambda m: loads[m])
            if loads[start] - loads[low] >= 2:
                at = low
                while reach[at] is not None:
                    source, partition = reach[at]
                    owner[partition] = at
                    at = source
                loads[start] -= 1
                loads[low] += 1
                improved = True
    return sorted(loads.values(), reverse=True)
