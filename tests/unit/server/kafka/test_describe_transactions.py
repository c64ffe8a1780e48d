from anabranch.wire.kafka.schema import ErrorCode
from tests.unit.server.kafka.transacting import DESCRIBE, Client
from tests.unit.server.kafka.whole_broker import WholeBroker


async def test_what_is_known_of_an_id(broker: WholeBroker) -> None:
    await broker.create("orders", 2)
    client = await Client.introduced(broker, "copy")
    await client.add(("orders", 0), ("orders", 1))
    answer = await broker.ask(DESCRIBE, 0, transactional_ids=["copy", "unknown", "", "copy"])
    found, unknown, empty = answer.transaction_states
    assert (found.error_code, found.transactional_id) == (0, "copy")
    assert (found.transaction_state, found.transaction_timeout.total_seconds()) == ("Ongoing", 60)
    assert found.transaction_start_time.timestamp() * 1000 == broker.clock.ms
    assert (found.producer_id, found.producer_epoch) == (client.producer_id, client.epoch)
    assert [(topic.topic, tuple(topic.partitions)) for topic in found.topics] == [("orders", (0, 1))]
    assert unknown.error_code == ErrorCode.transactional_id_not_found
    assert empty.error_code == ErrorCode.invalid_request


async def test_without_the_topic_there_is_no_coordinator(broker: WholeBroker) -> None:
    (state,) = (await broker.ask(DESCRIBE, 0, transactional_ids=["copy"])).transaction_states
    assert state.error_code == ErrorCode.not_coordinator
