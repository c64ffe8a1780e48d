"""FindCoordinator (10): the broker that looks after a group or a transactional id.

    key type    0 a group, 1 a transactional id (v1), 2 a share group's partition (v6)
    keys        one, and its answer is the whole answer; from v4 several, each with its own

The coordinator of a key is the leader of the partition of an internal topic that the key's hash names.
The topic is made when it is first asked for.  A share group is a group as others are; the states of its
partitions are kept elsewhere, each under `group:topic id:partition`.

If that leader may just have died the answer waits for the election (`cluster/doubted_brokers`).
"""

from typing import Any

from anabranch.base.errors import AnabranchError, CoordinatorNotAvailable, NotCoordinator
from anabranch.base.ids import BrokerId
from anabranch.groups.coordinator import OFFSETS_TOPIC
from anabranch.groups.share_states import SHARE_STATE_TOPIC, read_share_key
from anabranch.groups.transaction_coordinator import STATE_TOPIC
from anabranch.meta.image import NO_BROKER, BrokerImage
from anabranch.server.kafka.errors import code_of, message_of
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.server.services import Services
from anabranch.wire.kafka.schema import ErrorCode

_GROUP = 0
_TRANSACTION = 1
_SHARE = 2
_NONE = -1
_FIRST_WITH_KEYS = 4
_FIRST_WITH_SHARE = 6


@api(10, versions=(0, 6))
async def find_coordinator(request: Any, ctx: RequestContext) -> Answer:
    if ctx.version >= _FIRST_WITH_KEYS:
        key_type = request.key_type
        if key_type == _SHARE and ctx.version < _FIRST_WITH_SHARE:
            key_type = _NONE
        found = [await _find(key, key_type, ctx.services) for key in request.coordinator_keys]
        return {"coordinators": found}
    key_type = request.key_type if request.key_type != _SHARE else _NONE
    answer = await _find(request.key, key_type, ctx.services)
    del answer["key"]  # the only one
    if not answer["error_code"]:
        answer["error_message"] = "NONE"
    return answer


async def _find(key: str, key_type: int, services: Services) -> Answer:
    if key_type not in (_GROUP, _TRANSACTION, _SHARE):
        return _refused(key, ErrorCode.invalid_request, f"there is no coordinator for key type {key_type}")
    try:
        broker = await _coordinator(key, key_type, services)
    except AnabranchError as error:
        return _refused(key, code_of(error), message_of(error))
    return {
        "key": key,
        "node_id": broker.id,
        "host": broker.host,
        "port": broker.port,
        "error_code": ErrorCode.none,
        "error_message": "",
    }


async def _coordinator(key: str, key_type: int, services: Services) -> BrokerImage:
    if key_type == _SHARE:
        states, share_key = services.share_groups.states, read_share_key(key)
        await states.ensure_topic()
        return await _leader(services, SHARE_STATE_TOPIC, states.shard_of(share_key))
    coordinator = services.groups if key_type == _GROUP else services.transactions
    try:
        await coordinator.ensure_topic()
    except NotCoordinator as error:  # another broker has made the topic, and it is not known here yet
        raise CoordinatorNotAvailable(str(error)) from error
    topic = OFFSETS_TOPIC if key_type == _GROUP else STATE_TOPIC
    return await _leader(services, topic, coordinator.shard_of(key))


async def _leader(services: Services, topic_name: str, index: int) -> BrokerImage:
    cluster = services.cluster

    def led_by() -> BrokerId:
        topic = cluster.image.topics_by_kafka_name.get(topic_name)
        return NO_BROKER if topic is None else topic.partitions[index].leader

    await services.doubted.settled(lambda brokers: led_by() in brokers)
    leader = cluster.image.brokers.get(led_by())
    if leader is None:
        raise CoordinatorNotAvailable(f"partition {index} of {topic_name} has no leader")
    return leader


def _refused(key: str, code: ErrorCode, message: str | None) -> Answer:
    return {
        "key": key,
        "node_id": -1,
        "host": "",
        "port": -1,
        "error_code": code,
        "error_message": message or "",
    }
