import msgspec

from anabranch.wire.kafka.schema import ErrorCode
from tests.unit.server.kafka.whole_broker import WholeBroker


async def test_a_broker_that_is_alone_is_asked_nothing(broker: WholeBroker) -> None:
    data = msgspec.msgpack.encode(["ReadNames", [0]])
    answer = await broker.ask(58, 0, request_data=data, request_principal=None, client_host_address=b"")
    assert (answer.error_code, answer.response_data) == (ErrorCode.cluster_authorization_failed, None)
