import pytest

from anabranch.wire.kafka.schema import ErrorCode

DESCRIBE, HEARTBEAT, JOIN = 69, 68, 11
MAY_DO_ALL = (1 << 3) + (1 << 6) + (1 << 8) + (1 << 10) + (1 << 11)


async def join(broker):
    await broker.ask(
        HEARTBEAT,
        1,
        group_id="g",
        member_id="m",
        member_epoch=0,
        instance_id="i",
        rack_id="r",
        rebalance_timeout=60_000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
        server_assignor="range",
    )


@pytest.mark.parametrize("version", [0, 1])
async def test_a_group_and_its_members(broker, version):
    topic = await broker.create("orders", 2)
    await join(broker)
    answer = await broker.ask(DESCRIBE, version, group_ids=["g"], include_authorized_operations=True)
    (group,) = answer.groups
    assert (group.error_code, group.group_state, group.assignor_name) == (ErrorCode.none, "Stable", "range")
    assert (group.group_epoch, group.assignment_epoch) == (2, 2)
    assert group.authorized_operations == MAY_DO_ALL
    (member,) = group.members
    assert (member.member_id, member.instance_id, member.rack_id) == ("m", "i", "r")
    assert (member.member_epoch, member.client_id, member.client_host) == (2, "test", "/127.0.0.1")
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (("orders",), "")
    (held,) = member.assignment.topic_partitions
    assert (held.topic_id, held.topic_name, held.partitions) == (topic.id, "orders", (0, 1))
    assert member.target_assignment == member.assignment
    if version >= 1:
        assert member.member_type == 1


async def test_what_is_not_a_consumer_group(broker):
    await broker.create("orders", 2)
    answer = await broker.ask(DESCRIBE, 1, group_ids=["nobody"])
    assert answer.groups[0].error_code == ErrorCode.group_id_not_found
    await join(broker)
    answer = await broker.ask(DESCRIBE, 1, group_ids=["nobody", "", "g"])
    codes = [group.error_code for group in answer.groups]
    assert codes == [ErrorCode.group_id_not_found, ErrorCode.invalid_group_id, ErrorCode.none]
    assert answer.groups[0].error_message == "Group nobody not found."
    assert answer.groups[2].authorized_operations == -(1 << 31)


async def test_a_group_that_is_named_often_is_told_once(broker):
    await broker.create("orders", 2)
    await join(broker)
    answer = await broker.ask(DESCRIBE, 1, group_ids=["g", "x", "g", "x", "g"])
    assert [group.group_id for group in answer.groups] == ["g", "x"]
