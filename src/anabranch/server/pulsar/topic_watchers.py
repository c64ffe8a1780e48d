"""The topic lists that a connection watches: what comes and goes is told as it happens.

A watcher is a namespace and a pattern.  While a connection has any, it follows the cluster's image, and looks
only at the topics that changed.  Only persistent topics are watched, as Pulsar does.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeGuard

from anabranch.base.errors import Invalid
from anabranch.base.ids import Namespace, TopicName
from anabranch.meta.image import ImageChange, TopicChange, TopicImage
from anabranch.server.pulsar.topic_lists import ListPattern, hash_of_sorted, names_of
from anabranch.wire.pulsar import commands_pb2 as pb

if TYPE_CHECKING:
    from anabranch.server.pulsar.connection import PulsarConnection

_MAX_WATCHERS = 1000


class Watcher:
    __slots__ = ("id", "listed", "namespace", "pattern")

    def __init__(self, id: int, namespace: Namespace, pattern: ListPattern, listed: Iterable[str]) -> None:
        self.id = id
        self.namespace = namespace
        self.pattern = pattern
        self.listed = sorted(listed)  # stays so, since the hash of a long list is asked for at every change

    def select(self, names: set[TopicName]) -> set[str]:
        return {name.pulsar for name in self.pattern.select(names)}

    def change(self, added: set[str], deleted: set[str]) -> None:
        if deleted:
            self.listed = [name for name in self.listed if name not in deleted]
        for name in added:
            at = bisect_left(self.listed, name)
            if at == len(self.listed) or self.listed[at] != name:
                self.listed.insert(at, name)


class TopicWatchers:
    __slots__ = ("_connection", "_unsubscribe", "_watchers")

    def __init__(self, connection: "PulsarConnection") -> None:
        self._connection = connection
        self._watchers: dict[int, Watcher] = {}
        self._unsubscribe: Callable[[], None] | None = None

    def add(self, watcher: Watcher) -> None:
        if len(self._watchers) >= _MAX_WATCHERS:
            raise Invalid(f"a connection may watch {_MAX_WATCHERS} topic lists; close some")
        self._watchers[watcher.id] = watcher
        if self._unsubscribe is None:
            self._unsubscribe = self._connection.services.cluster.subscribe(self._image_changed)

    def remove(self, id: int) -> None:
        self._watchers.pop(id, None)
        if not self._watchers:
            self.close()

    def close(self) -> None:
        self._watchers.clear()
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    def _image_changed(self, change: ImageChange) -> None:
        if not change.topics:
            return
        for watcher in list(self._watchers.values()):
            try:
                self._look(watcher, change.topics)
            except Invalid as error:  # its pattern is too much work on these names
                self._connection.refuse(error)
                return

    def _look(self, watcher: Watcher, changes: Sequence[TopicChange]) -> None:
        before: set[TopicName] = set()
        after: set[TopicName] = set()
        for was, now in changes:
            if _is_listed(was, watcher.namespace):
                before.update(names_of(was))
            if _is_listed(now, watcher.namespace):
                after.update(names_of(now))
        self._tell(watcher, watcher.select(after - before), watcher.select(before - after))

    def _tell(self, watcher: Watcher, added: set[str], deleted: set[str]) -> None:
        if not added and not deleted:
            return
        watcher.change(added, deleted)
        told = pb.WatchTopicUpdate(
            watcher_id=watcher.id,
            new_topics=sorted(added),
            deleted_topics=sorted(deleted),
            topics_hash=hash_of_sorted(watcher.listed),
        )
        self._connection.send(pb.BaseCommand(type=pb.BaseCommand.WATCH_TOPIC_UPDATE, watch_topic_update=told))


def _is_listed(topic: TopicImage | None, namespace: Namespace) -> TypeGuard[TopicImage]:
    return topic is not None and topic.name.in_namespace == namespace and not topic.is_internal
