from uuid import UUID

from anabranch.groups.assignors.range import assign_ranges
from anabranch.groups.assignors.subscribers import Subscriber
from anabranch.groups.parts import TopicFacts

T, U = UUID(int=1), UUID(int=2)
FIVE = TopicFacts("t", T, (frozenset(),) * 5)
TWO = TopicFacts("u", U, (frozenset(),) * 2)


def test_runs_of_partitions_the_first_members_one_more():
    members = {member_id: Subscriber(frozenset({T})) for member_id in "cab"}
    assert assign_ranges(members, {T: FIVE}) == {
        "a": {T: frozenset({0, 1})},
        "b": {T: frozenset({2, 3})},
        "c": {T: frozenset({4})},
    }


def test_topics_alike_are_cut_alike():
    both = frozenset({T, U})
    other = TopicFacts("u", U, (frozenset(),) * 5)
    members = {member_id: Subscriber(both) for member_id in "ab"}
    for target in assign_ranges(members, {T: FIVE, U: other}).values():
        assert target[T] == target[U]


def test_static_members_come_first_by_instance():
    members = {
        "a": Subscriber(frozenset({T})),
        "x": Subscriber(frozenset({T}), instance_id="2"),
        "y": Subscriber(frozenset({T}), instance_id="1"),
    }
    assigned = assign_ranges(members, {T: FIVE})
    assert [min(assigned[member_id][T]) for member_id in "yxa"] == [0, 2, 4]


def test_who_is_not_subscribed_or_too_late_gets_nothing():
    members = {
        "a": Subscriber(frozenset({T, U})),
        "b": Subscriber(frozenset({U})),
        "c": Subscriber(frozenset({U})),
        "d": Subscriber(frozenset()),
    }
    assigned = assign_ranges(members, {T: FIVE, U: TWO})
    assert assigned["a"] == {T: frozenset(range(5)), U: frozenset({0})}
    assert assigned["b"] == {U: frozenset({1})}
    assert assigned["c"] == assigned["d"] == {}
