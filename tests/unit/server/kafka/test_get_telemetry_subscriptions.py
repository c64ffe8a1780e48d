from uuid import uuid4

from anabranch.wire.kafka.schema import ErrorCode
from tests.unit.server.kafka.whole_broker import WholeBroker

FIVE_MINUTES_MS = 300_000


async def test_nobody_wants_anything(broker: WholeBroker) -> None:
    answer = await broker.ask(71, 0, client_instance_id=None)
    assert answer.error_code == ErrorCode.none
    assert answer.client_instance_id is not None
    assert answer.accepted_compression_types == (4, 3, 1, 2)
    assert answer.push_interval.total_seconds() * 1000 == FIVE_MINUTES_MS
    assert (answer.telemetry_max_bytes, answer.delta_temporality) == (1 << 20, True)
    assert answer.requested_metrics == ()


async def test_what_somebody_wants(broker: WholeBroker) -> None:
    settings = {"metrics": "org.b,org.a", "interval.ms": "1000", "match": "client_software_name=lib.*"}
    await broker.services.cluster.replace_client_metrics("some", settings)
    mine = uuid4()
    unmatched = await broker.ask(71, 0, client_instance_id=mine)
    assert (unmatched.client_instance_id, unmatched.requested_metrics) == (mine, ())
    broker.connection_id = 2
    broker.peer.software_name = "librdkafka"
    matched = await broker.ask(71, 0, client_instance_id=mine)
    assert matched.requested_metrics == ("org.a", "org.b")
    assert matched.push_interval.total_seconds() == 1
    assert matched.subscription_id != unmatched.subscription_id


async def test_too_early(broker: WholeBroker) -> None:
    mine = uuid4()
    first = await broker.ask(71, 0, client_instance_id=mine)
    early = await broker.ask(71, 0, client_instance_id=mine)
    assert early.error_code == ErrorCode.throttling_quota_exceeded
    assert (early.client_instance_id, early.accepted_compression_types, early.subscription_id) == (
        None,
        (),
        0,
    )
    broker.clock.advance(FIVE_MINUTES_MS)
    assert await broker.ask(71, 0, client_instance_id=mine) == first
