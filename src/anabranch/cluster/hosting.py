"""From the cluster's image to the partitions that this broker serves.

A subscriber of the image: topics that appear are announced to the host, those that grow or are
configured anew are told so, those that vanish are taken away.
"""

from collections.abc import Callable

from anabranch.cluster.image import ClusterImage, Overrides, TopicImage, topic_changes
from anabranch.log.config import LogConfig
from anabranch.partition.host import PartitionHost


class Hosting:
    def __init__(self, host: PartitionHost, log_config: Callable[[Overrides], LogConfig]) -> None:
        self._host = host
        self._log_config = log_config

    def image_changed(self, old: ClusterImage, new: ClusterImage) -> None:
        for before, after in topic_changes(old, new):
            if after is None:
                assert before is not None
                self._host.remove_topic(before.name)
            elif before is None:
                config = self._log_config(after.config)
                self._host.add_topic(after.name, after.id, len(after.partitions), config)
            else:
                self._changed(before, after)

    def _changed(self, before: TopicImage, after: TopicImage) -> None:
        if len(after.partitions) > len(before.partitions):
            self._host.grow_topic(after.name, len(after.partitions))
        if after.config != before.config:
            self._host.configure_topic(after.name, self._log_config(after.config))

    def defaults_changed(self, image: ClusterImage) -> None:
        """The broker's own configuration changed: every topic may have another now."""
        for topic in image.topics.values():
            self._host.configure_topic(topic.name, self._log_config(topic.config))
