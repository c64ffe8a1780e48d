"""ShareAcknowledge (79): what became of records that a share consumer was given.

    v1     accept, release, reject; 0 for offsets without a record
    v2     renew; the answer says for how long records are locked

The answer is given when all of it is durable.  An epoch of -1 ends the consumer's session, and what it still
holds is given back.
"""

from typing import Any

from anabranch.base.errors import AnabranchError, InvalidShareSessionEpoch
from anabranch.base.ids import BrokerId
from anabranch.server.kafka.current_leaders import leader_of
from anabranch.server.kafka.errors import code_of, message_of
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.server.kafka.share_acks import acks_in, carry_out, member_of, places_in
from anabranch.server.share_sessions import FINAL_EPOCH, INITIAL_EPOCH
from anabranch.wire.kafka.current_leader import CurrentLeader

_NO_LEADER = CurrentLeader(BrokerId(0), 0)  # as Kafka has it


@api(79, versions=(1, 2))
async def share_acknowledge(request: Any, ctx: RequestContext) -> Answer:
    services = ctx.services
    epoch = request.share_session_epoch
    try:
        member = member_of(request)
        if epoch == INITIAL_EPOCH:
            raise InvalidShareSessionEpoch("acknowledgements do not start a share session")
        session = services.share_sessions.go_on(member, epoch)
    except AnabranchError as error:
        return _answer(code_of(error), message_of(error), 0, [], [])
    failed = await carry_out(
        services.share_partitions, member, acks_in(request.topics), may_renew=request.is_renew_ack
    )
    if epoch == FINAL_EPOCH:
        services.share_sessions.end(session)
    lock_ms = services.share_partitions.config_of(member[0]).share_record_lock_duration_ms
    brokers = services.cluster.image.brokers
    leaders: set[BrokerId] = set()
    topics: dict[Any, list[Answer]] = {}
    for place in places_in(request.topics):
        error_or_none = failed.get(place)
        leader = leader_of(error_or_none)
        if leader is not None:
            leaders.add(leader.id)
        told = leader or _NO_LEADER
        topics.setdefault(place[0], []).append(
            {
                "partition_index": place[1],
                "error_code": 0 if error_or_none is None else code_of(error_or_none),
                "error_message": None if error_or_none is None else message_of(error_or_none),
                "current_leader": {"leader_id": told.id, "leader_epoch": told.epoch},
            }
        )
    told_of = [{"topic_id": id, "partitions": parts} for id, parts in topics.items()]
    endpoints = [
        {"node_id": one.id, "host": one.host, "port": one.port, "rack": one.rack}
        for one in brokers.values()
        if one.id in leaders
    ]
    return _answer(0, None, lock_ms, told_of, endpoints)


def _answer(
    code: int, message: str | None, lock_ms: int, responses: list[Answer], endpoints: list[Answer]
) -> Answer:
    return {
        "error_code": code,
        "error_message": message,
        "acquisition_lock_timeout": lock_ms,
        "responses": responses,
        "node_endpoints": endpoints,
    }
