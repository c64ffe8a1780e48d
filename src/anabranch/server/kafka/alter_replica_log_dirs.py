"""AlterReplicaLogDirs (34): move replicas to another folder of this broker, of which there is one.

A replica may be moved to where it is.  Another folder is LOG_DIR_NOT_FOUND, and a partition of which this
broker has no replica is REPLICA_NOT_AVAILABLE: Kafka takes note of where it may be made, and with one folder
there is nothing to note.
"""

from pathlib import Path
from typing import Any

from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.wire.kafka.schema import ErrorCode


@api(34, versions=(1, 2))
def alter_replica_log_dirs(request: Any, ctx: RequestContext) -> Answer:
    host = ctx.services.partitions
    ours = {folder.path.absolute() for folder in host.log_dirs()}
    topics: dict[str, list[Answer]] = {}
    for wanted in request.dirs:
        is_ours = Path(wanted.path) in ours
        for topic in wanted.topics:
            served = host.find(topic.name)
            count = 0 if served is None else served.image.partition_count
            for index in topic.partitions:
                if not is_ours:
                    code = ErrorCode.log_dir_not_found
                elif served is None or not 0 <= index < count:
                    code = ErrorCode.unknown_topic_or_partition
                else:
                    has_it = host.has_replica(served, index)
                    code = ErrorCode.none if has_it else ErrorCode.replica_not_available
                topics.setdefault(topic.name, []).append({"partition_index": index, "error_code": code})
    return {"results": [{"topic_name": name, "partitions": parts} for name, parts in topics.items()]}
