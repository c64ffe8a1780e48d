"""Records that a share group gives up: to the topic it names, if that is there and allows it."""

import logging

import pytest

from anabranch.base.seldom import Seldom
from anabranch.records.batch import split_batches
from anabranch.records.record import Record, iter_records, payload_of
from anabranch.subscriptions import share_dead_letters
from tests.unit.server.kafka.sharing import ACCEPT, REJECT, RELEASE, ShareMember, share
from tests.unit.server.kafka.whole_broker import WholeBroker

ALLOWED = {"errors_deadletterqueue_group_enable": "true"}


async def member_of_a_group(broker: WholeBroker, *values: str, **options: str) -> ShareMember:
    """One that holds a record for each value; the group is told `options`."""
    await broker.create("t", 2)
    broker.put("t", *values, keys=[f"k-{value}" for value in values], index=1)
    told = {name.replace("_", "."): value for name, value in options.items()}
    await broker.services.cluster.alter_group_config("g", lambda _: told)
    return ShareMember(broker, await share(broker, "g", "t", 0), "a")


def letters(broker: WholeBroker, topic: str, index: int) -> list[Record]:
    partition = broker.partition(topic, index)
    found = []
    for segment in partition.log.segments:
        for header, batch in split_batches(segment.file.pread(segment.size, 0)):
            found += iter_records(header, payload_of(header, batch, 1 << 20))
    return found


async def settle(member: ShareMember, *acks: tuple[int, ...]) -> None:
    """Of partition 1."""
    batches = [
        {"first_offset": first, "last_offset": last, "acknowledge_types": types}
        for first, last, *types in acks
    ]
    part = {"partition_index": 1, "acknowledgement_batches": batches}
    answer = await member.broker.ask(
        79,
        2,
        group_id="g",
        member_id=member.name,
        share_session_epoch=member.epoch,
        topics=[{"topic_id": member.topic_id, "partitions": [part]}],
    )
    assert answer.responses[0].partitions[0].error_code.name == "none"
    member.epoch += 1


async def test_a_letter_says_where_it_came_from(broker: WholeBroker) -> None:
    await broker.create("dlq.t", 2, **ALLOWED)
    a = await member_of_a_group(broker, "x", "y", errors_deadletterqueue_topic_name="dlq.t")
    await a.fetch(partitions=(0, 1))
    await settle(a, (0, 1, ACCEPT, REJECT))
    (letter,) = letters(broker, "dlq.t", 1)
    assert (letter.key, letter.value) == (None, None)
    assert letter.headers == (
        (b"__dlq.errors.topic", b"t"),
        (b"__dlq.errors.partition", b"1"),
        (b"__dlq.errors.offset", b"1"),
        (b"__dlq.errors.group", b"g"),
        (b"__dlq.errors.delivery.count", b"1"),
        (b"__dlq.errors.message", b"Offset rejected by client."),
    )


async def test_a_letter_has_the_record_if_the_group_wants_it(broker: WholeBroker) -> None:
    await broker.create("dlq.t", **ALLOWED)
    a = await member_of_a_group(
        broker,
        *"uvwxyz",
        errors_deadletterqueue_topic_name="dlq.t",
        errors_deadletterqueue_copy_record_enable="true",
        share_delivery_count_limit="2",
    )
    for _ in range(2):
        await a.fetch(partitions=(0, 1))
        await settle(a, (0, 3, RELEASE), *(((4, 5, REJECT),) if a.epoch == 1 else ()))
    found = letters(broker, "dlq.t", 0)
    assert [(letter.key, letter.value) for letter in found] == [
        (f"k-{value}".encode(), value.encode()) for value in "yzuvwx"
    ]
    assert dict(found[0].headers)[b"__dlq.errors.offset"] == b"4"
    assert dict(found[-1].headers)[b"__dlq.errors.message"].startswith(b"Offset delivery count")


@pytest.mark.parametrize(
    ("topic", "made", "why"),
    [
        ("dlq.t", None, "there is no topic"),
        ("dlq.t", {}, "takes no dead letters"),
        ("letters", ALLOWED, "no name for a topic"),
        ("__consumer_offsets", None, "no name for a topic"),
    ],
)
async def test_what_cannot_be_written_is_archived_and_logged(
    broker: WholeBroker,
    topic: str,
    made: dict[str, str] | None,
    why: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(share_dead_letters, "_trouble", Seldom(logging.getLogger(__name__), 0.0))
    if made is not None:
        await broker.create(topic, **made)
    a = await member_of_a_group(broker, "x", errors_deadletterqueue_topic_name=topic)
    await a.fetch(partitions=(0, 1))
    with caplog.at_level(logging.WARNING):
        await settle(a, (0, 0, REJECT))
    assert why in caplog.text
    answer = await a.fetch()
    assert not any(part.acquired_records for topic in answer.responses for part in topic.partitions)


async def test_a_topic_is_made_if_the_broker_may(broker: WholeBroker) -> None:
    await broker.services.cluster.alter_broker_config(
        None,
        lambda _: {
            "errors.deadletterqueue.auto.create.topics.enable": "true",
            "errors.deadletterqueue.topic.name.prefix": "dead-",
        },
    )
    a = await member_of_a_group(broker, "x", errors_deadletterqueue_topic_name="dead-t")
    await a.fetch(partitions=(0, 1))
    await settle(a, (0, 0, REJECT))
    assert len(letters(broker, "dead-t", 0)) == 1


async def test_letters_fit_the_topic(broker: WholeBroker) -> None:
    await broker.create("dlq.t", max_message_bytes="600", **ALLOWED)
    a = await member_of_a_group(broker, *"abcdefgh", errors_deadletterqueue_topic_name="dlq.t")
    await a.fetch(partitions=(0, 1))
    await settle(a, (0, 7, REJECT))
    offsets = [dict(letter.headers)[b"__dlq.errors.offset"] for letter in letters(broker, "dlq.t", 0)]
    assert offsets == [b"%d" % offset for offset in range(8)]


async def test_a_letter_that_is_too_large_keeps_no_other_back(
    broker: WholeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share_dead_letters, "_BATCH_BYTES", 1500)
    await broker.create("dlq.t", max_message_bytes="1000", **ALLOWED)
    a = await member_of_a_group(
        broker,
        *("a", "b" * 2000, "c", "d" * 900, "e" * 300, "f" * 300, "g"),
        errors_deadletterqueue_topic_name="dlq.t",
        errors_deadletterqueue_copy_record_enable="true",
    )
    await a.fetch(partitions=(0, 1))
    await settle(a, (0, 6, REJECT))
    assert [(letter.value or b"")[:1] for letter in letters(broker, "dlq.t", 0)] == [
        b"a",
        b"c",
        b"e",
        b"f",
        b"g",
    ]


async def test_letters_are_not_all_in_memory_at_once(
    broker: WholeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share_dead_letters, "_BATCH_BYTES", 1000)
    await broker.create("dlq.t", **ALLOWED)
    a = await member_of_a_group(
        broker,
        *(letter * 300 for letter in "abcdefgh"),
        errors_deadletterqueue_topic_name="dlq.t",
        errors_deadletterqueue_copy_record_enable="true",
    )
    await a.fetch(partitions=(0, 1))
    await settle(a, (0, 7, REJECT))
    (segment,) = broker.partition("dlq.t", 0).log.segments
    written = list(split_batches(segment.file.pread(segment.size, 0)))
    assert [header.count for header, _ in written] == [2, 2, 2, 2]
