"""The uniform assignor: as many partitions each, and as few of them moved as that allows.

    a 0 1 2 3   b joins   ->   a 0 1   b 2 3         two move: fewer would not be even
    a 0 1  b 2 3  c 4 5   b leaves   ->   a 0 1 2   c 3 4 5      what a and c had stays

Everyone keeps what it had, up to its share; what is left over is handed out, to whoever has least.
Where racks are known, a partition is handed to a member beside one of its replicas if the shares allow
that, and who must give partitions up gives up those from elsewhere first.  A partition is never moved
for its rack alone: that would trade a pause for some bandwidth.

Members that all subscribe to the same topics have shares that differ by one at most.  If they do not,
such shares may be impossible, and the result is the most even one there is: no partition, nor chain of
partitions, could be passed on so that two members come closer (the search is for augmenting paths).
"""

from collections import deque
from collections.abc import Iterable
from uuid import UUID

from anabranch.groups.assignors.subscribers import Assignment, Members, Topics

_Partition = tuple[UUID, int]


def assign_uniformly(members: Members, topics: Topics) -> Assignment:
    if not members:
        return {}
    kept = _kept(members, topics)
    racks = _Racks(members, topics)
    if len({member.topics for member in members.values()}) == 1:
        _level_alike(members, topics, kept, racks)
    else:
        _level_unlike(members, topics, kept, racks)
    return {member_id: _by_topic(partitions) for member_id, partitions in kept.items()}


class _Racks:
    """Who stands beside which partition."""

    def __init__(self, members: Members, topics: Topics) -> None:
        self._topics = topics
        self._of = {id: member.rack_id for id, member in members.items() if member.rack_id is not None}
        known = {rack for topic in topics.values() for racks in topic.partition_racks for rack in racks}
        self.matter = len(known) > 1 and not known.isdisjoint(self._of.values())

    def are_shared(self, member_id: str, partition: _Partition) -> bool:
        topic_id, index = partition
        return self._of.get(member_id) in self._topics[topic_id].partition_racks[index]


def _kept(members: Members, topics: Topics) -> dict[str, list[_Partition]]:
    """What each member had and may still have, in order; nothing twice."""
    taken: set[_Partition] = set()
    kept: dict[str, list[_Partition]] = {}
    for member_id in sorted(members):
        member = members[member_id]
        still = [
            (topic_id, index)
            for topic_id, indexes in member.owned.items()
            if topic_id in member.topics and topic_id in topics
            for index in indexes
            if index < topics[topic_id].num_partitions and (topic_id, index) not in taken
        ]
        taken.update(still)
        kept[member_id] = sorted(still)
    return kept


def _free(kept: dict[str, list[_Partition]], topics: Topics, wanted: Iterable[UUID]) -> list[_Partition]:
    taken = {partition for partitions in kept.values() for partition in partitions}
    return [
        (topic_id, index)
        for topic_id in sorted(wanted)
        for index in range(topics[topic_id].num_partitions)
        if (topic_id, index) not in taken
    ]


def _by_topic(partitions: list[_Partition]) -> dict[UUID, frozenset[int]]:
    topics: dict[UUID, set[int]] = {}
    for topic_id, index in partitions:
        topics.setdefault(topic_id, set()).add(index)
    return {topic_id: frozenset(indexes) for topic_id, indexes in topics.items()}


# --- everyone subscribes to the same


def _level_alike(members: Members, topics: Topics, kept: dict[str, list[_Partition]], racks: _Racks) -> None:
    subscribed = next(iter(members.values())).topics & topics.keys()
    total = sum(topics[topic_id].num_partitions for topic_id in subscribed)
    share, larger_shares = divmod(total, len(members))
    # The larger shares go to those who would have to give most up otherwise.
    by_size = sorted(kept, key=lambda member_id: (-len(kept[member_id]), member_id))
    room: dict[str, int] = {}
    for position, member_id in enumerate(by_size):
        allowed = share + (position < larger_shares)
        partitions = kept[member_id]
        if len(partitions) > allowed and racks.matter:
            partitions.sort(key=lambda partition: not racks.are_shared(member_id, partition))
        del partitions[allowed:]
        if len(partitions) < allowed:
            room[member_id] = allowed - len(partitions)
    free = _free(kept, topics, subscribed)
    if racks.matter:
        free = _hand_out(free, kept, room, racks)
    _hand_out(free, kept, room, None)


def _hand_out(
    free: list[_Partition], kept: dict[str, list[_Partition]], room: dict[str, int], racks: _Racks | None
) -> list[_Partition]:
    """Fill `room` one partition a member and round; what nobody takes (for want of racks) is returned."""
    left = []
    turns = deque(room)
    for partition in free:
        for _ in range(len(turns)):
            member_id = turns[0]
            turns.rotate(-1)
            if racks is None or racks.are_shared(member_id, partition):
                kept[member_id].append(partition)
                room[member_id] -= 1
                if room[member_id] == 0:
                    turns.remove(member_id)
                    del room[member_id]
                break
        else:
            left.append(partition)
    return left


# --- subscriptions differ


def _level_unlike(members: Members, topics: Topics, kept: dict[str, list[_Partition]], racks: _Racks) -> None:
    readers: dict[UUID, list[str]] = {}
    for member_id in sorted(members):
        for topic_id in members[member_id].topics & topics.keys():
            readers.setdefault(topic_id, []).append(member_id)
    free = _free(kept, topics, readers)
    free.sort(key=lambda partition: len(readers[partition[0]]))  # those with least choice first
    for partition in free:
        chosen = min(
            readers[partition[0]],
            key=lambda member_id: (
                len(kept[member_id]),
                racks.matter and not racks.are_shared(member_id, partition),
                member_id,
            ),
        )
        kept[chosen].append(partition)
    while _pass_one_on(kept, readers, racks):
        pass


def _pass_one_on(kept: dict[str, list[_Partition]], readers: dict[UUID, list[str]], racks: _Racks) -> bool:
    """Bring the member that has most, and somebody who has less by two, closer by one.  False if none can."""
    for giver in sorted(kept, key=lambda member_id: (-len(kept[member_id]), member_id)):
        chain = _chain_from(giver, kept, readers)
        if chain is not None:
            for source, topic_id, sink in reversed(chain):
                _move(kept, source, topic_id, sink, racks)
            return True
    return False


def _chain_from(
    giver: str, kept: dict[str, list[_Partition]], readers: dict[UUID, list[str]]
) -> list[tuple[str, UUID, str]] | None:
    """The shortest way to pass one partition each from `giver` to somebody with at least two less."""
    enough = len(kept[giver]) - 2
    came_by: dict[str, tuple[str, UUID] | None] = {giver: None}
    seen_topics: set[UUID] = set()
    queue = deque([giver])
    while queue:
        member_id = queue.popleft()
        for topic_id in sorted({topic_id for topic_id, _ in kept[member_id]} - seen_topics):
            seen_topics.add(topic_id)
            for other in readers[topic_id]:
                if other in came_by:
                    continue
                came_by[other] = (member_id, topic_id)
                if len(kept[other]) <= enough:
                    return _way_to(other, came_by)
                queue.append(other)
    return None


def _way_to(sink: str, came_by: dict[str, tuple[str, UUID] | None]) -> list[tuple[str, UUID, str]]:
    way = []
    step = came_by[sink]
    while step is not None:
        source, topic_id = step
        way.append((source, topic_id, sink))
        sink, step = source, came_by[source]
    return way[::-1]


def _move(kept: dict[str, list[_Partition]], source: str, topic_id: UUID, sink: str, racks: _Racks) -> None:
    """Move the partition of `topic_id` that came last, if racks have no better idea."""
    of_topic = [partition for partition in kept[source] if partition[0] == topic_id]
    chosen = of_topic[-1]
    if racks.matter:
        chosen = max(of_topic, key=lambda p: racks.are_shared(sink, p) - racks.are_shared(source, p))
    kept[source].remove(chosen)
    kept[sink].append(chosen)
