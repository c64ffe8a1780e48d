"""The assignor of share groups: a partition goes to as many members as it takes for all to have work.

    4 members, 2 partitions     every partition to 2 members
    2 members, 4 partitions     every member 2 partitions, every partition to one member
    3 members, 2 partitions     every partition to 2 members; one member has both

As Kafka's `simple`: a partition is shared by members / partitions of them, rounded up, and members have
numbers of partitions that differ by one at most.  As much as that allows stays where it is.  If all members
subscribe to the same topics the partitions of all topics are shared out at once, and else topic by topic.
"""

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from uuid import UUID

from anabranch.groups.assignors.subscribers import Assignment, Members
from anabranch.groups.consumer_member import Partitions

TopicPartition = tuple[UUID, int]


def assign_simply(members: Members, assignable: Partitions) -> Assignment:
    """What each member should have of `assignable`; every one of these partitions has somebody."""
    given: dict[str, set[TopicPartition]] = {member_id: set() for member_id in members}
    subscriptions = {member.topics for member in members.values()}
    pools = list(subscriptions) if len(subscriptions) == 1 else _single_topics(subscriptions)
    for topics in pools:
        subscribers = sorted(member_id for member_id, member in members.items() if topics <= member.topics)
        pool = [
            (topic, partition) for topic in sorted(topics) for partition in sorted(assignable.get(topic, ()))
        ]
        held = {
            member_id: {
                (topic, partition)
                for topic in topics
                for partition in members[member_id].owned.get(topic, ())
            }
            for member_id in subscribers
        }
        for member_id, partitions in share_out(subscribers, pool, held).items():
            given[member_id] |= partitions
    return {member_id: _by_topic(partitions) for member_id, partitions in given.items()}


def share_out(
    members: Sequence[str], partitions: Sequence[TopicPartition], held: Mapping[str, set[TopicPartition]]
) -> dict[str, set[TopicPartition]]:
    """`partitions` to `members`, all of whom may have any, keeping what they held as far as that is fair."""
    if not members or not partitions:
        return {member_id: set() for member_id in members}
    sharing = -(-len(members) // len(partitions))
    quotas = _quotas(members, sharing * len(partitions))
    known = set(partitions)
    given = {member_id: held[member_id] & known for member_id in members}
    holders: dict[TopicPartition, set[str]] = {partition: set() for partition in partitions}
    for member_id, has in given.items():
        for partition in has:
            holders[partition].add(member_id)
    _take_back(given, holders, quotas, sharing)
    _hand_out(given, holders, quotas, sharing)
    return given


def _quotas(members: Sequence[str], places: int) -> dict[str, int]:
    """How many partitions each may have: together `places`, apart by one at most."""
    count = len(members)
    return {
        member_id: -(-places * (i + 1) // count) + (-places * i // count)
        for i, member_id in enumerate(members)
    }


def _take_back(
    given: dict[str, set[TopicPartition]],
    holders: dict[TopicPartition, set[str]],
    quotas: Mapping[str, int],
    sharing: int,
) -> None:
    """What too many have, from those first who have too much; then what somebody has too much of."""

    def excess(member_id: str) -> int:
        return len(given[member_id]) - quotas[member_id]

    for partition, having in holders.items():
        for member_id in sorted(having, key=lambda member_id: (-excess(member_id), member_id)):
            if len(having) <= sharing:
                break
            having.discard(member_id)
            given[member_id].discard(partition)
    for member_id, has in given.items():
        # Those that most others have, too, so that few are left with nobody.
        for partition in sorted(has, key=lambda partition: (-len(holders[partition]), partition)):
            if excess(member_id) <= 0:
                break
            holders[partition].discard(member_id)
            has.discard(partition)


def _hand_out(
    given: dict[str, set[TopicPartition]],
    holders: dict[TopicPartition, set[str]],
    quotas: Mapping[str, int],
    sharing: int,
) -> None:
    """To those with most room, first what nobody has, then what one has, and so on."""
    waiting = [(len(has) - quotas[member_id], member_id) for member_id, has in given.items()]
    waiting = [entry for entry in waiting if entry[0] < 0]
    heapify(waiting)
    for wanted in range(1, sharing + 1):
        for partition, having in holders.items():
            if len(having) < wanted:
                _give(partition, having, given, waiting)


def _give(
    partition: TopicPartition,
    having: set[str],
    given: dict[str, set[TopicPartition]],
    waiting: list[tuple[int, str]],
) -> None:
    passed_over = []
    while waiting:
        room, member_id = heappop(waiting)
        if member_id in having:
            passed_over.append((room, member_id))
            continue
        having.add(member_id)
        given[member_id].add(partition)
        if room + 1 < 0:
            heappush(waiting, (room + 1, member_id))
        break
    for entry in passed_over:
        heappush(waiting, entry)


def _single_topics(subscriptions: set[frozenset[UUID]]) -> list[frozenset[UUID]]:
    return [frozenset((topic,)) for topic in sorted(frozenset().union(*subscriptions))]


def _by_topic(partitions: set[TopicPartition]) -> Partitions:
    by_topic: dict[UUID, set[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, set()).add(partition)
    return {topic: frozenset(indexes) for topic, indexes in by_topic.items()}
