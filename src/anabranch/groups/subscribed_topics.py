"""The topics that a group is subscribed to, and a mark by which it sees that they changed."""

from collections.abc import Iterable
from hashlib import blake2b

from anabranch.groups.parts import TopicFacts, Topics

LOOK_AT_TOPICS_MS = 500
"""How often a group looks whether its topics are what they were: not at every heartbeat."""


def subscribed_topics(names: Iterable[str], topics: Topics) -> dict[str, TopicFacts]:
    """Those of `names` that are there, in order."""
    found = ((name, topics.by_name(name)) for name in sorted(names))
    return {name: facts for name, facts in found if facts is not None}


def topics_hash(topics: dict[str, TopicFacts]) -> int:
    """Another if a topic came, went, grew or moved; 0 of none."""
    if not topics:
        return 0
    digest = blake2b(digest_size=8)
    for name, facts in topics.items():
        racks = [sorted(racks) for racks in facts.partition_racks]
        digest.update(repr((name, facts.topic_id.hex, racks)).encode())
    return int.from_bytes(digest.digest(), signed=True)
