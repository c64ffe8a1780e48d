"""The topics that Pulsar clients have open, told what changes in the cluster: only what concerns them."""

from anabranch.cluster.cluster import Cluster
from anabranch.meta.image import ImageChange
from anabranch.topics.registry import Topics


def keep_informed(topics: Topics, cluster: Cluster) -> None:
    def image_changed(change: ImageChange) -> None:
        old, new, changes = change
        for before, after in changes:
            if after is None and before is not None:
                topics.deleted(before.name)
            elif after is not None and before is not None:
                topics.topic_changed(after.name)
        if old.non_persistent is not new.non_persistent:
            for name, topic in old.non_persistent.items():
                now = new.non_persistent.get(name)
                if now is None:
                    topics.deleted(name)
                elif now is not topic:
                    topics.topic_changed(name)
        if old.namespaces is not new.namespaces:
            changed = {
                space
                for space, policies in new.namespaces.items()
                if old.namespaces.get(space) is not policies
            }
            topics.namespaces_changed(changed)

    cluster.subscribe(image_changed)
