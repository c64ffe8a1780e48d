"""Replica placement: which brokers hold which partition.  Pure, from the brokers and a place to start.

Partition i's replica j goes to broker (start + i + j) mod n of the brokers in order of id, so leaders
and replicas spread evenly:

    brokers 1 2 3, factor 2, start 0      p0 1 2    p1 2 3    p2 3 1    p3 1 2  ...

When every broker names its rack, the order takes one broker of each rack in turn, and each replica
goes to the next broker in that order whose rack holds the fewest replicas of the partition so far:

    racks a: 1 2, b: 3      order 1 3 2       p0 1 3    p1 3 2    p2 2 3   (never 2 1: both in a)

Brokers of one host fail together, so within a rack, or where racks are not known, the same is done with
hosts: no two replicas of a partition are on one host while another host has a broker to give.

    hosts x: 1 2, y: 3 4      order 1 3 2 4     p0 1 3    p1 3 2    p2 2 4    p3 4 1

The first replica is the preferred leader.  A broker that stops, or is away, gets replicas only where they
would be too few.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from itertools import zip_longest
from typing import TypeVar

from anabranch.base.errors import InvalidReplicaAssignment, InvalidReplicationFactor
from anabranch.base.ids import BrokerId
from anabranch.meta.image import BrokerImage

Replicas = tuple[BrokerId, ...]
K = TypeVar("K", bound=Hashable)


def place(
    brokers: Iterable[BrokerImage],
    partitions: range,
    replication_factor: int,
    start: int,
    away: Sequence[BrokerImage] = (),
) -> list[Replicas]:
    """Replicas for each of `partitions`.  InvalidReplicationFactor if there are too few brokers."""
    order = _in_turn(_staying(brokers, replication_factor))
    count = len(order)
    lacking = max(0, replication_factor - count)
    if replication_factor <= 0 or not order or lacking > len(away):
        raise InvalidReplicationFactor(
            f"replication factor {replication_factor} is not possible with {count + len(away)} registered "
            f"broker(s), of which {count} are there"
        )
    # A partition's replicas depend on nothing but where they start, so there are few answers.
    by_start = [_replicas(order[at:] + order[:at], replication_factor - lacking) for at in range(count)]
    placed = [by_start[(start + index) % count] for index in partitions]
    if not lacking:
        return placed
    others = [broker.id for broker in _in_turn(away)] * 2
    turns = [(start + index) % len(away) for index in partitions]
    return [
        replicas + tuple(others[turn : turn + lacking]) for replicas, turn in zip(placed, turns, strict=True)
    ]


def _staying(brokers: Iterable[BrokerImage], replication_factor: int) -> list[BrokerImage]:
    there = list(brokers)
    staying = [broker for broker in there if not broker.gives_way]
    return staying if len(staying) >= replication_factor else there


def start_of(brokers: Iterable[BrokerImage], first: Replicas) -> int:
    """The start that put partition 0 on `first`, or would have; for placing more partitions after it."""
    for at, broker in enumerate(_in_turn(brokers)):
        if broker.id == first[0]:
            return at
    return 0


def check_assignment(
    assignment: Sequence[Sequence[int]],
    there: Collection[BrokerId],
    replication_factor: int | None,
    away: Collection[BrokerId] = (),
) -> list[Replicas]:
    """Replicas that somebody chose, partition by partition.  InvalidReplicaAssignment if they cannot be.

    All partitions have as many replicas as the first, or `replication_factor` if that is known.  One of them
    is on a broker that is there.
    """
    checked: list[Replicas] = []
    for chosen in assignment:
        replicas = tuple(BrokerId(id) for id in chosen)
        if not replicas:
            raise InvalidReplicaAssignment("the assignment has a partition without replicas")
        if len(set(replicas)) < len(replicas):
            raise InvalidReplicaAssignment(f"the assignment {list(replicas)} names a broker more than once")
        unknown = sorted(set(replicas).difference(there, away))
        if unknown:
            raise InvalidReplicaAssignment(
                f"the assignment names broker {unknown[0]}, which is not registered"
            )
        replication_factor = replication_factor or len(replicas)
        if len(replicas) != replication_factor:
            raise InvalidReplicaAssignment(
                f"the assignment has a partition with {len(replicas)} replica(s), the others have "
                f"{replication_factor}"
            )
        if set(replicas).isdisjoint(there):
            raise InvalidReplicaAssignment(f"all brokers of the assignment {list(replicas)} are away")
        checked.append(replicas)
    return checked


def _in_turn(brokers: Iterable[BrokerImage]) -> list[BrokerImage]:
    """The brokers by id, racks taking turns if all are known, and in each rack its hosts."""
    ordered = sorted(brokers, key=lambda broker: broker.id)
    if any(broker.rack is None for broker in ordered):
        return _by_turns(ordered, _host)
    racks = _grouped(ordered, lambda broker: broker.rack or "")
    return _turns([_by_turns(racks[rack], _host) for rack in sorted(racks)])


def _by_turns(ordered: list[BrokerImage], key: Callable[[BrokerImage], Hashable]) -> list[BrokerImage]:
    return _turns(list(_grouped(ordered, key).values()))


def _grouped(ordered: Iterable[BrokerImage], key: Callable[[BrokerImage], K]) -> dict[K, list[BrokerImage]]:
    groups: dict[K, list[BrokerImage]] = {}
    for broker in ordered:
        groups.setdefault(key(broker), []).append(broker)
    return groups


def _turns(groups: Sequence[Sequence[BrokerImage]]) -> list[BrokerImage]:
    """One of each group in turn."""
    return [broker for turn in zip_longest(*groups) for broker in turn if broker is not None]


def _host(broker: BrokerImage) -> Hashable:
    """One that does not say where it is, is on a host of its own."""
    return broker.id if broker.host_id is None else broker.host_id


def _replicas(candidates: list[BrokerImage], replication_factor: int) -> Replicas:
    """The best brokers of `candidates`, which are in order of preference."""
    no_racks = any(broker.rack is None for broker in candidates)
    in_rack: dict[Hashable, int] = {}
    on_host: dict[Hashable, int] = {}
    chosen: list[BrokerId] = []
    left = list(candidates)

    def held(broker: BrokerImage) -> tuple[int, int]:
        return 0 if no_racks else in_rack.get(broker.rack, 0), on_host.get(_host(broker), 0)

    for _ in range(replication_factor):
        best = min(left, key=held)  # the first of equals
        left.remove(best)
        in_rack[best.rack] = in_rack.get(best.rack, 0) + 1
        on_host[_host(best)] = on_host.get(_host(best), 0) + 1
        chosen.append(best.id)
    return tuple(chosen)
