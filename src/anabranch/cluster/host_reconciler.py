"""Host reconciler: makes the partitions that this broker hosts those that the cluster's image gives it.

A subscriber of the image: topics that appear are announced to the host, those that grow or are
reconfigured are told so, those that vanish are taken away.

A retention that was set the Pulsar way, for the topic, its namespace or by the broker's Pulsar options, takes
the place of the log's `retention.ms` and `retention.bytes`; topics that keep the broker's own state are left
as they are.
"""

from collections.abc import Callable

from anabranch.log.config import LogConfig
from anabranch.meta.image import ClusterImage, ImageChange, Overrides, TopicImage
from anabranch.meta.policies import NamespacePolicies
from anabranch.meta.policy_defaults import PolicyDefaults
from anabranch.meta.rules import log_retention
from anabranch.partition.host import PartitionHost

_NO_POLICIES = NamespacePolicies()


class HostReconciler:
    def __init__(
        self,
        host: PartitionHost,
        log_config: Callable[[Overrides], LogConfig],
        defaults: Callable[[], PolicyDefaults] = PolicyDefaults,
    ) -> None:
        self._host = host
        self._log_config = log_config
        self._defaults = defaults

    def image_changed(self, change: ImageChange) -> None:
        old, new, changes = change
        for before, after in changes:
            if after is None:
                assert before is not None
                self._host.remove_topic(before.name)
            elif before is None:
                self._host.add_topic(after, self._config_of(new, after))
            else:
                self._changed(new, before, after)
        if old.namespaces is not new.namespaces:
            self._namespaces_changed(old, new)

    def _changed(self, image: ClusterImage, before: TopicImage, after: TopicImage) -> None:
        self._host.change_topic(after)
        if after.config != before.config or after.policies != before.policies:
            self._host.configure_topic(after.name, self._config_of(image, after))

    def _namespaces_changed(self, old: ClusterImage, new: ClusterImage) -> None:
        changed = {
            name
            for name, policies in new.namespaces.items()
            if name in old.namespaces
            and old.namespaces[name].retention_policies != policies.retention_policies
        }
        if changed:
            for topic in new.topics.values():
                if topic.name.in_namespace in changed:
                    self._host.configure_topic(topic.name, self._config_of(new, topic))

    def defaults_changed(self, image: ClusterImage) -> None:
        """The broker's own configuration changed: every topic may have another now."""
        for topic in image.topics.values():
            self._host.configure_topic(topic.name, self._config_of(image, topic))

    def _config_of(self, image: ClusterImage, topic: TopicImage) -> LogConfig:
        if topic.is_internal:
            return self._log_config(topic.config)
        namespace = image.namespaces.get(topic.name.in_namespace, _NO_POLICIES)
        retention = log_retention(self._defaults(), namespace, topic.policies)
        return self._log_config({**topic.config, **retention} if retention else topic.config)
