"""Which brokers hold which partition."""

from collections import Counter

import pytest

from anabranch.base.errors import InvalidReplicaAssignment, InvalidReplicationFactor
from anabranch.base.ids import BrokerId
from anabranch.cluster.placement import check_assignment, place, start_of
from anabranch.meta.image import BrokerImage


def brokers(racks: dict[int, str | None]) -> list[BrokerImage]:
    return [BrokerImage(BrokerId(id), "h", 1, rack) for id, rack in racks.items()]


THREE = brokers({3: None, 1: None, 2: None})


def test_one_broker_holds_all() -> None:
    assert place(brokers({7: None}), range(3), 1, 5) == [(7,), (7,), (7,)]


def test_the_formula() -> None:
    assert place(THREE, range(4), 2, 0) == [(1, 2), (2, 3), (3, 1), (1, 2)]
    assert place(THREE, range(2), 3, 2) == [(3, 1, 2), (1, 2, 3)]
    for start in range(7):
        for index, replicas in enumerate(place(THREE, range(10), 2, start)):
            assert replicas == tuple(1 + (start + index + j) % 3 for j in range(2))


def test_more_partitions_go_on_where_the_first_stopped() -> None:
    for start in range(3):
        all_at_once = place(THREE, range(10), 2, start)
        first = place(THREE, range(4), 2, start)
        assert first + place(THREE, range(4, 10), 2, start_of(THREE, first[0])) == all_at_once


def test_a_start_on_a_broker_that_is_gone() -> None:
    assert start_of(THREE, (BrokerId(9),)) == 0


@pytest.mark.parametrize("factor", [-1, 0, 4])
def test_impossible_factors(factor: int) -> None:
    with pytest.raises(InvalidReplicationFactor):
        place(THREE, range(1), factor, 0)
    with pytest.raises(InvalidReplicationFactor):
        place([], range(1), factor, 0)


def test_the_example_of_uneven_racks() -> None:
    assert place(brokers({1: "a", 2: "a", 3: "b"}), range(3), 2, 0) == [(1, 3), (3, 2), (2, 3)]


@pytest.mark.parametrize("factor", [1, 2, 3, 4, 5])
@pytest.mark.parametrize(
    "racks", [["a", "b", "c"], ["a", "a", "b"], ["a"] * 5, ["a", "a", "a", "b", "c", "c"]]
)
def test_replicas_are_spread_over_racks(factor: int, racks: list[str]) -> None:
    there = brokers(dict(enumerate(racks * 2)))
    rack_of = {broker.id: str(broker.rack) for broker in there}
    size_of = Counter(rack_of.values())
    for replicas in place(there, range(40), factor, 1):
        assert len(set(replicas)) == factor
        held = Counter(rack_of[id] for id in replicas)
        for rack, size in size_of.items():
            # A rack has fewer than another only when it has no broker left to give.
            assert held[rack] >= min(size, max(held.values()) - 1)


def test_leaders_are_spread_whatever_the_racks() -> None:
    there = brokers({1: "a", 2: "a", 3: "b"})
    leaders = Counter(replicas[0] for replicas in place(there, range(30), 2, 0))
    assert set(leaders.values()) == {10}


def test_one_broker_without_a_rack_and_racks_do_not_count() -> None:
    assert place(brokers({1: "a", 2: None, 3: "a"}), range(3), 2, 0) == [(1, 2), (2, 3), (3, 1)]


def test_a_manual_assignment() -> None:
    there = [BrokerId(1), BrokerId(2)]
    assert check_assignment([[1, 2], [2, 1]], there, None) == [(1, 2), (2, 1)]
    assert check_assignment([], there, None) == []


@pytest.mark.parametrize(
    ("assignment", "factor"),
    [([[]], None), ([[1, 1]], None), ([[9]], None), ([[-1]], None), ([[1], [1, 2]], None), ([[1]], 2)],
)
def test_impossible_manual_assignments(assignment: list[list[int]], factor: int | None) -> None:
    with pytest.raises(InvalidReplicaAssignment):
        check_assignment(assignment, [BrokerId(1), BrokerId(2)], factor)


def on_hosts(hosts: dict[int, str | None], rack: str | None = None) -> list[BrokerImage]:
    return [BrokerImage(BrokerId(id), "h", 1, rack, host_id=host) for id, host in hosts.items()]


@pytest.mark.parametrize("rack", [None, "a"])
def test_the_example_of_hosts(rack: str | None) -> None:
    there = on_hosts({1: "x", 2: "x", 3: "y", 4: "y"}, rack)
    assert place(there, range(4), 2, 0) == [(1, 3), (3, 2), (2, 4), (4, 1)]


@pytest.mark.parametrize("factor", [2, 3, 4])
@pytest.mark.parametrize("hosts", [["x", "x", "y"], ["x"] * 3 + ["y"] * 2 + ["z"], ["x", "x", None, None]])
def test_no_host_has_two_while_another_has_none(factor: int, hosts: list[str | None]) -> None:
    there = on_hosts(dict(enumerate(hosts * 2)))
    host_of = {broker.id: broker.host_id or str(broker.id) for broker in there}
    size_of = Counter(host_of.values())
    for replicas in place(there, range(40), factor, 1):
        held = Counter(host_of[id] for id in replicas)
        for host, size in size_of.items():
            assert held[host] >= min(size, max(held.values()) - 1)


def test_racks_come_before_hosts() -> None:
    there = [
        *on_hosts({1: "x", 2: "x"}, "a"),
        *on_hosts({3: "x", 4: "y"}, "b"),
    ]
    for replicas in place(there, range(8), 2, 0):
        assert len({replicas[0] in (1, 2), replicas[1] in (1, 2)}) == 2


def test_a_broker_that_stops_is_passed_over_while_others_are_enough() -> None:
    there = [*brokers({1: None, 2: None}), BrokerImage(BrokerId(3), "h", 1, gives_way=True)]
    assert {id for replicas in place(there, range(6), 2, 0) for id in replicas} == {1, 2}
    assert {id for replicas in place(there, range(6), 3, 0) for id in replicas} == {1, 2, 3}


def test_brokers_that_are_away_get_what_the_others_are_too_few_for() -> None:
    there, away = brokers({1: None, 2: None}), brokers({3: None, 4: None})
    assert place(there, range(3), 2, 0, away) == [(1, 2), (2, 1), (1, 2)]
    assert place(there, range(3), 3, 0, away) == [(1, 2, 3), (2, 1, 4), (1, 2, 3)]
    assert place(there, range(2), 4, 0, away) == [(1, 2, 3, 4), (2, 1, 4, 3)]
    for brokers_there, factor in ((there, 5), ([], 1)):
        with pytest.raises(InvalidReplicationFactor):
            place(brokers_there, range(1), factor, 0, away)


def test_an_assignment_to_brokers_that_are_away() -> None:
    there, away = [BrokerId(1)], [BrokerId(2), BrokerId(3)]
    assert check_assignment([[2, 1]], there, None, away) == [(2, 1)]
    with pytest.raises(InvalidReplicaAssignment, match="away"):
        check_assignment([[2, 3]], there, None, away)
