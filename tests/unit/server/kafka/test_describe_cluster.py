from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.base.ids import BrokerId
from anabranch.meta.image import BrokerImage, ClusterImage
from anabranch.server.kafka.describe_cluster import describe_cluster
from anabranch.wire.kafka.schema import ErrorCode
from tests.unit.server.kafka.whole_broker import WholeBroker

NOT_ASKED = -(1 << 31)


@pytest.mark.parametrize("version", range(3))
async def test_at_every_version(broker: WholeBroker, version: int) -> None:
    answer = await broker.ask(60, version)
    assert (answer.error_code, answer.error_message) == (ErrorCode.none, None)
    assert (answer.cluster_id, answer.controller_id) == (broker.image.cluster_id, 1)
    (node,) = answer.brokers
    assert (node.broker_id, node.host, node.port, node.rack) == (1, "127.0.0.1", 9092, "rack-a")
    assert answer.cluster_authorized_operations == NOT_ASKED
    if version >= 2:
        assert node.is_fenced is False


async def test_what_may_be_done(broker: WholeBroker) -> None:
    answer = await broker.ask(60, 0, include_cluster_authorized_operations=True)
    assert answer.cluster_authorized_operations == 8096


@pytest.mark.parametrize(
    ("kind", "code"),
    [(2, ErrorCode.mismatched_endpoint_type), (9, ErrorCode.unsupported_endpoint_type)],
)
async def test_other_kinds_of_node(broker: WholeBroker, kind: int, code: ErrorCode) -> None:
    answer = await broker.ask(60, 1, endpoint_type=kind)
    assert (answer.error_code, answer.cluster_id, answer.controller_id) == (code, "", -1)
    assert (answer.brokers, answer.cluster_authorized_operations) == ((), NOT_ASKED)
    assert answer.error_message


@pytest.mark.parametrize(("asked", "told"), [(False, {1: False}), (True, {1: False, 2: True})])
def test_a_broker_that_is_away_is_fenced(asked: bool, told: dict[int, bool]) -> None:
    one, two = (BrokerImage(BrokerId(id), "h", 9090 + id, "r") for id in (1, 2))
    image = ClusterImage(cluster_id="c", brokers={one.id: one}, seen_brokers={one.id: one, two.id: two})
    services = SimpleNamespace(cluster=SimpleNamespace(image=image))
    request = SimpleNamespace(
        endpoint_type=1, include_fenced_brokers=asked, include_cluster_authorized_operations=False
    )
    context: Any = SimpleNamespace(services=services)
    listed = describe_cluster(request, context)["brokers"]
    assert {broker["broker_id"]: broker["is_fenced"] for broker in listed} == told
    assert listed[-1]["port"] == 9090 + len(told)
