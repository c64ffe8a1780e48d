"""The range assignor: each topic is cut into runs of partitions, one per member.

    5 partitions, members a b c    a 0 1   b 2 3   c 4

Topics of as many partitions and the same members are cut alike, so partition i of each goes to the
same member: that is what joins need, and why people choose this over `uniform`.  Static members come
first, by instance id, so that a restart under a new member id changes nothing; then the others, by
member id.
"""

from uuid import UUID

from anabranch.groups.assignors.subscribers import Assignment, Members, Topics


def assign_ranges(members: Members, topics: Topics) -> Assignment:
    ranked = sorted(members, key=lambda id: _rank(id, members[id].instance_id))
    given: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id in members}
    for topic in topics.values():
        readers = [member_id for member_id in ranked if topic.topic_id in members[member_id].topics]
        if not readers:
            continue
        each, more = divmod(topic.num_partitions, len(readers))
        end = 0
        for position, member_id in enumerate(readers):
            start, end = end, end + each + (position < more)
            if start < end:
                given[member_id][topic.topic_id] = frozenset(range(start, end))
    return dict(given)


def _rank(member_id: str, instance_id: str | None) -> tuple[bool, str]:
    return instance_id is None, member_id if instance_id is None else instance_id
