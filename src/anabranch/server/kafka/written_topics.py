"""Topics as Metadata writes them, kept until they change.

A client without topics of its own asks for all of them, again and again: with a thousand topics of
ten partitions each that is 10,000 items, some 40 ms of writing.  A topic's image is replaced when it
changes, so its bytes hold for as long as the image is the same object and the same brokers are alive;
with all of them kept the answer is a thousand copies, under a millisecond.
"""

from anabranch.base.ids import BrokerId
from anabranch.meta.image import ClusterImage, TopicImage
from anabranch.server.kafka.described import partition, partition_for_oldest
from anabranch.wire.kafka.encoder import item_encoder

_METADATA = 3
_VERSIONS_IN_USE = 4  # of Metadata at one time, more or less


class WrittenTopics:
    def __init__(self) -> None:
        self._alive: frozenset[BrokerId] = frozenset()
        self._written: dict[tuple[str, int, int], tuple[TopicImage, bytes]] = {}

    def __len__(self) -> int:
        return len(self._written)

    def topic(
        self, image: ClusterImage, topic: TopicImage, shown_as: str, version: int, operations: int
    ) -> bytes:
        """`topic` at `version`, under the name that the client used for it."""
        key = (shown_as, version, operations)
        kept = self._written.get(key)
        if kept is not None and kept[0] is topic and self._alive == image.brokers.keys():
            return kept[1]
        self._make_room(image)
        out = bytearray()
        described = partition if version > 0 else partition_for_oldest
        item_encoder(_METADATA, version, "topics")(
            out,
            {
                "name": shown_as,
                "topic_id": topic.id,
                "is_internal": topic.is_internal,
                "partitions": [described(image, state) for state in topic.partitions],
                "topic_authorized_operations": operations,
            },
        )
        self._written[key] = (topic, bytes(out))
        return self._written[key][1]

    def _make_room(self, image: ClusterImage) -> None:
        """Forget everything if other brokers are alive than were, or if too much is of the past."""
        if self._alive != image.brokers.keys():
            self._alive = frozenset(image.brokers)
            self._written.clear()
        elif len(self._written) > _VERSIONS_IN_USE * (len(image.topics) + 1):
            self._written.clear()
