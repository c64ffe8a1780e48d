import pytest

from anabranch.wire.kafka.schema import ErrorCode
from tests.unit.server.kafka.whole_broker import WholeBroker


async def end_of(
    broker: WholeBroker, epoch: int, *, topic: str = "a", index: int = 0, current: int = -1, version: int = 4
) -> tuple[int, int, int]:
    part = {"partition": index, "leader_epoch": epoch, "current_leader_epoch": current}
    answer = await broker.ask(23, version, topics=[{"topic": topic, "partitions": [part]}])
    (result,) = answer.topics[0].partitions
    assert (answer.topics[0].topic, result.partition) == (topic, index)
    return result.error_code, result.leader_epoch, result.end_offset


@pytest.fixture
async def led(broker: WholeBroker) -> WholeBroker:
    """Epoch 0 wrote offsets 0 and 1, epoch 3 wrote 2 to 4, epoch 4 leads and has written nothing."""
    await broker.create("a", 2)
    broker.put("a", "x", "x")
    broker.partition("a").leader_epoch = 3
    broker.put("a", "x", "x", "x")
    broker.partition("a").leader_epoch = 4
    return broker


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_where_epochs_ended(led: WholeBroker, version: int) -> None:
    assert await end_of(led, 0, version=version) == (ErrorCode.none, 0, 2)
    assert await end_of(led, 1, version=version) == (ErrorCode.none, 0, 2)
    assert await end_of(led, 2, version=version) == (ErrorCode.none, 0, 2)
    assert await end_of(led, 3, version=version) == (ErrorCode.none, 3, 5)
    assert await end_of(led, 4, version=version) == (ErrorCode.none, 4, 5)


@pytest.mark.parametrize("epoch", [5, 1 << 30, -1])
async def test_an_epoch_nobody_heard_of(led: WholeBroker, epoch: int) -> None:
    assert await end_of(led, epoch) == (ErrorCode.none, -1, -1)


async def test_an_empty_partition(broker: WholeBroker) -> None:
    await broker.create("a")
    assert await end_of(broker, 0) == (ErrorCode.none, 0, 0)


@pytest.mark.parametrize(
    ("current", "code"),
    [
        (-1, ErrorCode.none),
        (4, ErrorCode.none),
        (3, ErrorCode.fenced_leader_epoch),
        (5, ErrorCode.unknown_leader_epoch),
    ],
)
async def test_the_leader_that_a_client_knows(led: WholeBroker, current: int, code: ErrorCode) -> None:
    assert (await end_of(led, 0, current=current))[0] == code


@pytest.mark.parametrize(("topic", "index"), [("a", 2), ("a", -1), ("absent", 0), ("..", 0)])
async def test_what_is_not_there(led: WholeBroker, topic: str, index: int) -> None:
    found = await end_of(led, 0, topic=topic, index=index)
    assert found == (ErrorCode.unknown_topic_or_partition, -1, -1)
