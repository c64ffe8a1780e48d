"""Requests of classic group members, at any version, to a broker whose new groups wait for nobody."""

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kio.serial import entity_reader, entity_writer

from anabranch.server.kafka.heartbeat import heartbeat as handler
from anabranch.server.kafka.held import Held
from anabranch.server.kafka.registry import RequestContext
from anabranch.wire.kafka.schema import answers_flexibly, request_schema, response_schema
from tests.support.classic import subscription
from tests.unit.server.kafka.whole_broker import WholeBroker, build, open_broker

JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE, LIST, DELETE = 11, 12, 13, 14, 15, 16, 42
OFFSET_COMMIT, OFFSET_FETCH = 8, 9
RANGE = {"name": "range", "metadata": subscription("t")}


@asynccontextmanager
async def prompt_broker(data: Path) -> AsyncIterator[WholeBroker]:
    prompt = {"group_initial_rebalance_delay_ms": "0", "offsets_topic_num_partitions": "2"}
    async with open_broker(data, **prompt) as broker:
        await broker.services.groups.ensure_topic()
        yield broker


async def join(broker: WholeBroker, version: int = 9, member_id: str = "", **values: Any) -> Any:
    told = {
        "group_id": "g",
        "session_timeout": 10_000,
        "protocol_type": "consumer",
        "protocols": [RANGE],
        "member_id": member_id,
    } | values
    if version >= 1:
        told.setdefault("rebalance_timeout", 60_000)
    return await broker.ask(JOIN, version, **told)


async def join_twice(broker: WholeBroker, version: int = 9) -> Any:
    """As a new member does: for an id, and with it."""
    promised = await join(broker, version)
    return await join(broker, version, promised.member_id)


async def sync(broker: WholeBroker, joined: Any, version: int = 5, **values: Any) -> Any:
    told = {"group_id": "g", "generation_id": joined.generation_id, "member_id": joined.member_id} | values
    if version >= 5:
        told = {"protocol_type": "consumer", "protocol_name": "range"} | told
    if joined.leader == joined.member_id:
        given = {"member_id": joined.member_id, "assignment": b"all"}
        told.setdefault("assignments", [given])
    return await broker.ask(SYNC, version, **told)


async def stable(broker: WholeBroker) -> Any:
    """A group of one, stable."""
    joined = await join_twice(broker)
    assert (await sync(broker, joined)).error_code == 0
    return joined


def send_heartbeat(broker: WholeBroker, version: int, **values: Any) -> Held:
    schema = request_schema(HEARTBEAT, version)
    body = io.BytesIO()
    entity_writer(schema)(body, build(schema, {"group_id": "g"} | values))
    context = RequestContext(version, "test", 1, broker.services, broker.peer)
    return handler(memoryview(body.getvalue()), 0, context)


async def heartbeat_answer(held: Held, version: int) -> Any:
    async with asyncio.timeout(60):
        chunks = await held.answered
    data = b"".join(bytes(chunk) for chunk in chunks or ())  # type: ignore[arg-type]
    at = 1 if answers_flexibly(HEARTBEAT, version) else 0
    answer, size = entity_reader(response_schema(HEARTBEAT, version))(data, at)
    assert at + size == len(data)
    return answer
