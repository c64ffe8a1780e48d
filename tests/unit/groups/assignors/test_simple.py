"""The assignor of share groups: examples, and what must hold of any assignment."""

from random import Random
from uuid import UUID

import pytest

from anabranch.groups.assignors.simple import assign_simply
from anabranch.groups.assignors.subscribers import Subscriber

T, U = UUID(int=1), UUID(int=2)


def every(*counts):
    return {UUID(int=i): frozenset(range(count)) for i, count in enumerate(counts, 1)}


def members(count, *topics, assigned=None):
    assigned = assigned or {}
    ids = [f"m{i}" for i in range(count)]
    return {name: Subscriber(frozenset(topics or (T,)), assigned.get(name, {})) for name in ids}


def sizes(assigned):
    return sorted(sum(map(len, target.values())) for target in assigned.values())


def readers(assigned):
    found = {}
    for member_id, target in assigned.items():
        for topic, partitions in target.items():
            for partition in partitions:
                found.setdefault((topic, partition), set()).add(member_id)
    return found


@pytest.mark.parametrize(
    ("count", "partitions", "expected"),
    [
        (1, 3, [3]),
        (2, 3, [1, 2]),
        (4, 2, [1, 1, 1, 1]),
        (3, 2, [1, 1, 2]),
        (2, 4, [2, 2]),
        (5, 1, [1] * 5),
        (3, 0, [0, 0, 0]),
    ],
)
def test_everybody_has_work_and_every_partition_somebody(count, partitions, expected):
    assigned = assign_simply(members(count), every(partitions))
    assert sizes(assigned) == expected
    assert len(readers(assigned)) == partitions


def test_who_stays_keeps_what_it_has():
    before = assign_simply(members(4), every(8))
    after = assign_simply(members(5, assigned=before), every(8))
    assert sizes(after) == [1, 1, 2, 2, 2] or sizes(after) == [2, 2, 2, 2, 2]
    kept = sum(
        len(after[member_id].get(T, frozenset()) & target.get(T, frozenset()))
        for member_id, target in before.items()
    )
    assert kept >= 6


def test_topics_are_shared_one_by_one_if_subscriptions_differ():
    assigned = assign_simply(
        {
            "a": Subscriber(frozenset((T,))),
            "b": Subscriber(frozenset((U,))),
            "c": Subscriber(frozenset((T, U))),
        },
        every(2, 2),
    )
    assert {member_id: sorted(map(len, target.values())) for member_id, target in assigned.items()} == {
        "a": [1],
        "b": [1],
        "c": [1, 1],
    }
    assert len(readers(assigned)) == 4


@pytest.mark.parametrize("seed", range(50))
def test_what_must_hold_as_members_come_and_go(seed):
    chance = Random(seed)
    assigned = {}
    same = chance.random() < 0.6
    assignable = every(chance.randint(1, 7), chance.randint(1, 7))
    for _ in range(30):
        names = chance.sample([f"m{i}" for i in range(9)], chance.randint(1, 9))
        asked = {
            name: Subscriber(
                frozenset((T, U)) if same else frozenset(chance.sample([T, U], chance.randint(1, 2))),
                assigned.get(name, {}),
            )
            for name in names
        }
        if chance.random() < 0.2:
            assignable = every(*(len(found) + chance.randint(0, 2) for found in assignable.values()))
        before = assigned
        assigned = assign_simply(asked, assignable)
        assert assigned.keys() == asked.keys()
        found = readers(assigned)
        wanted = set().union(*(member.topics for member in asked.values()))
        assert found.keys() == {(topic, p) for topic in wanted for p in assignable[topic]}
        for name, target in assigned.items():
            assert target.keys() <= asked[name].topics
        if same:
            total = sum(map(len, assignable.values()))
            sharing = -(-len(asked) // total)
            assert all(len(having) <= sharing for having in found.values())
            assert max(sizes(assigned)) <= -(-sharing * total // len(asked))
        again = assign_simply({n: s._replace(owned=assigned[n]) for n, s in asked.items()}, assignable)
        assert again == assigned, before  # nothing moves without a reason
