"""GET_TOPICS_OF_NAMESPACE: the topics of a namespace, all or those that a pattern means.

A client that knows the list's hash gets the list only if it has changed.  A pattern that the broker cannot
match is left to the client (`filtered=false`).
"""

from anabranch.base.ids import Namespace, TopicName
from anabranch.server.pulsar.connection import PulsarConnection
from anabranch.server.pulsar.registry import command
from anabranch.server.pulsar.services import PulsarServices
from anabranch.server.pulsar.topic_lists import hash_of, pattern_of, topics_in
from anabranch.wire.pulsar import commands_pb2 as pb


@command(pb.BaseCommand.GET_TOPICS_OF_NAMESPACE)
def topics_of_namespace(request: pb.GetTopicsOfNamespace, connection: PulsarConnection) -> None:
    topics = _listed(connection.services, Namespace.parse(request.namespace), request.mode)
    pattern = pattern_of(request.topics_pattern) if request.HasField("topics_pattern") else None
    if pattern is not None:
        topics = pattern.select(topics)
    names = [name.pulsar for name in topics]
    told_hash = hash_of(names)
    changed = not request.HasField("topics_hash") or request.topics_hash != told_hash
    told = pb.GetTopicsOfNamespaceResponse(
        request_id=request.request_id,
        topics=names if changed else (),
        filtered=pattern is not None,
        topics_hash=told_hash,
        changed=changed,
    )
    connection.send(
        pb.BaseCommand(
            type=pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE, get_topics_of_namespace_response=told
        )
    )


def _listed(services: PulsarServices, namespace: Namespace, mode: int) -> list[TopicName]:
    listed = topics_in(services.cluster.image, namespace)
    if mode == pb.GetTopicsOfNamespace.ALL:
        return listed
    is_persistent = mode == pb.GetTopicsOfNamespace.PERSISTENT
    return [name for name in listed if name.is_persistent == is_persistent]
