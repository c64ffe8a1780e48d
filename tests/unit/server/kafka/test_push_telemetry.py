from typing import Any
from uuid import UUID, uuid4

import pytest

from anabranch.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress
from anabranch.wire.kafka.schema import ErrorCode
from tests.unit.server.kafka.whole_broker import WholeBroker


async def push(broker: WholeBroker, mine: UUID | None, subscription_id: int, **fields: Any) -> ErrorCode:
    values: dict[str, Any] = {"compression_type": NONE, "metrics": b"", "terminating": False} | fields
    answer = await broker.ask(72, 0, client_instance_id=mine, subscription_id=subscription_id, **values)
    code: ErrorCode = answer.error_code
    return code


async def subscribed(broker: WholeBroker) -> tuple[UUID, int]:
    answer = await broker.ask(71, 0, client_instance_id=None)
    return answer.client_instance_id, answer.subscription_id


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
async def test_metrics_are_counted(broker: WholeBroker, codec: int) -> None:
    mine, subscription_id = await subscribed(broker)
    metrics = bytes(compress(codec, b"m" * 5000))
    code = await push(broker, mine, subscription_id, compression_type=codec, metrics=metrics)
    assert code == ErrorCode.none
    assert (broker.services.telemetry.pushes, broker.services.telemetry.pushed_bytes) == (1, 5000)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"subscription_id": 5}, ErrorCode.unknown_subscription_id),
        ({"compression_type": 9}, ErrorCode.unsupported_compression_type),
        ({"compression_type": -1}, ErrorCode.unsupported_compression_type),
        ({"metrics": bytes((1 << 20) + 1)}, ErrorCode.telemetry_too_large),
        ({"compression_type": ZSTD, "metrics": b"garbage"}, ErrorCode.invalid_record),
        ({"mine": None}, ErrorCode.invalid_request),
        ({"mine": UUID(int=1)}, ErrorCode.invalid_request),
    ],
)
async def test_what_is_refused(broker: WholeBroker, fields: dict[str, Any], code: ErrorCode) -> None:
    mine, subscription_id = await subscribed(broker)
    values = {"mine": mine, "subscription_id": subscription_id} | fields
    assert await push(broker, **values) == code
    assert broker.services.telemetry.pushes == 0


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
async def test_a_bomb(broker: WholeBroker, codec: int) -> None:
    mine, subscription_id = await subscribed(broker)
    bomb = bytes(compress(codec, bytes(4 << 20)))
    assert len(bomb) < 1 << 20
    code = await push(broker, mine, subscription_id, compression_type=codec, metrics=bomb)
    assert code == ErrorCode.telemetry_too_large


async def test_a_client_that_never_asked(broker: WholeBroker) -> None:
    assert await push(broker, uuid4(), 5) == ErrorCode.unknown_subscription_id
