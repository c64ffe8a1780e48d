"""WATCH_TOPIC_LIST: the topics that a pattern means, and from then on what comes and goes.

A client that knows the list's hash gets the list only if it has changed since.
What comes and goes is told by WATCH_TOPIC_UPDATE (`topic_watchers.py`).
"""

from anabranch.base.ids import Namespace
from anabranch.server.pulsar.connection import PulsarConnection
from anabranch.server.pulsar.registry import command
from anabranch.server.pulsar.topic_lists import ListPattern, hash_of, topics_in
from anabranch.server.pulsar.topic_watchers import Watcher
from anabranch.wire.pulsar import commands_pb2 as pb


@command(pb.BaseCommand.WATCH_TOPIC_LIST)
def watch_topic_list(request: pb.WatchTopicList, connection: PulsarConnection) -> None:
    namespace = Namespace.parse(request.namespace)
    pattern = ListPattern(request.topics_pattern)
    topics = topics_in(connection.services.cluster.image, namespace)
    names = {name.pulsar for name in pattern.select(topics) if name.is_persistent}
    connection.watchers.add(Watcher(request.watcher_id, namespace, pattern, names))
    told_hash = hash_of(names)
    told = pb.WatchTopicListSuccess(
        request_id=request.request_id,
        watcher_id=request.watcher_id,
        topic=sorted(names) if request.topics_hash != told_hash else (),
        topics_hash=told_hash,
    )
    connection.send(
        pb.BaseCommand(type=pb.BaseCommand.WATCH_TOPIC_LIST_SUCCESS, watch_topic_list_success=told)
    )


@command(pb.BaseCommand.WATCH_TOPIC_LIST_CLOSE)
def watch_topic_list_close(request: pb.WatchTopicListClose, connection: PulsarConnection) -> None:
    connection.watchers.remove(request.watcher_id)
    connection.succeed(request.request_id)
