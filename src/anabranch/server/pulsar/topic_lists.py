"""Lists of a namespace's topics, as pattern consumers ask for them.

Partitioned topics are listed partition by partition.  What the broker keeps for itself is not listed.

A pattern is matched against `tenant/namespace/topic`, without domain and partition; it is a stranger's
program, so it runs in linear time (`groups/consumer_regex.py`, RE2's language).  The hash tells whether a
list has changed without sending it: CRC-32C over the sorted names with commas between, in hex, lowest byte
first, as Pulsar has it.
"""

from collections.abc import Iterable, Sequence

from crc32c import crc32c

from anabranch.base.errors import Invalid
from anabranch.base.ids import Namespace, TopicName, split_partition
from anabranch.groups.consumer_regex_match import TopicPattern
from anabranch.meta.image import AnyTopic, ClusterImage

_DOMAINS = ("persistent://", "non-persistent://")


def names_of(topic: AnyTopic) -> list[TopicName]:
    """What a topic is in a list."""
    if not topic.is_partitioned:
        return [topic.name]
    return [topic.name.partition(index) for index in range(topic.partition_count)]


def topics_in(image: ClusterImage, namespace: Namespace) -> list[TopicName]:
    return [name for topic in image.topics_in(namespace) if not topic.is_internal for name in names_of(topic)]


def hash_of(names: Iterable[str]) -> str:
    return hash_of_sorted(sorted(names))


def hash_of_sorted(names: Sequence[str]) -> str:
    return crc32c(",".join(names).encode("utf-8")).to_bytes(4, "little").hex()


class ListPattern:
    """Which topics a pattern means.  Invalid if it is none that can be matched here."""

    def __init__(self, text: str) -> None:
        for domain in sorted(_DOMAINS, key=len, reverse=True):
            before, found, after = text.partition(domain)
            if found:
                text = before + after
                break
        self._pattern = TopicPattern(text)

    def select(self, names: Iterable[TopicName]) -> list[TopicName]:
        short = [(name, _short(name)) for name in names]
        matching = self._pattern.matching({text for _, text in short})
        return [name for name, text in short if text in matching]


def _short(name: TopicName) -> str:
    return split_partition(name)[0].pulsar.partition("://")[2]


def pattern_of(text: str) -> ListPattern | None:
    """None if the broker cannot match it: the client has to."""
    try:
        return ListPattern(text)
    except Invalid:
        return None
