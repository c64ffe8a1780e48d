"""DescribeProducers (61): what each idempotent producer last wrote to a partition, as a replica of it knows.

A partition is answered once, however often it is named: an answer is far longer than the question.
"""

from typing import Any

from anabranch.base.errors import AnabranchError
from anabranch.base.ids import TopicName
from anabranch.log.producers import Producer
from anabranch.partition.host import PartitionHost
from anabranch.partition.standing import producers_of
from anabranch.server.kafka.errors import code_of, message_of
from anabranch.server.kafka.registry import Answer, RequestContext, api


@api(61, versions=(0, 0))
def describe_producers(request: Any, ctx: RequestContext) -> Answer:
    host = ctx.services.partitions
    wanted: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return {
        "topics": [
            {"name": name, "partitions": [_partition(host, name, index) for index in indexes]}
            for name, indexes in wanted.items()
        ]
    }


def _partition(host: PartitionHost, topic: str, index: int) -> Answer:
    answer: Answer = {"partition_index": index, "error_message": None, "active_producers": []}
    try:
        served = host.topic(TopicName.from_kafka(topic).kafka)
        producers = producers_of(host.replica(served, index))
    except (AnabranchError, OSError) as error:
        return answer | {"error_code": code_of(error), "error_message": message_of(error)}
    return answer | {"active_producers": [_producer(producer) for producer in producers]}


def _producer(producer: Producer) -> Answer:
    started = producer.txn_first_offset
    return {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "last_sequence": producer.last_sequence,
        "last_timestamp": producer.updated_ms,
        "coordinator_epoch": producer.coordinator_epoch,
        "current_txn_start_offset": -1 if started is None else started,
    }
