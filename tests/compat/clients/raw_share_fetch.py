"""Share consumers by hand: sessions and their epochs, what is acquired, and every way to acknowledge it.

Members join their group first and stay in it; what they fetch is asked for again until something is there,
since brokers differ in how soon a share partition is open.
"""

import time
from typing import Any

import raw
from raw import Connection, batch
from raw_share_groups import Member, find
from transcript import Transcript, arguments

FETCH, ACKNOWLEDGE = 78, 79
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
GROUP_RESOURCE = 32


class Consumer:
    """A share consumer of partition 0."""

    def __init__(self, broker: Connection, group: str, name: str, topic_id: Any) -> None:
        self.broker, self.group, self.name, self.topic_id = broker, group, name, topic_id
        self.epoch = 0

    def fetch(self, *acks: Any, version: int = 2, count: bool = True, **told: Any) -> Any:
        values: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.name,
            "share_session_epoch": self.epoch,
            "max_wait": 500,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 100,
            "batch_size": 100,
            "topics": self.topics(acks, always=self.epoch == 0),
        }
        answer = self.broker.call(FETCH, version, values | told)
        if count and not answer.error_code:
            self.epoch += 1
        return answer

    def acknowledge(self, *acks: Any, version: int = 2, count: bool = True, **told: Any) -> Any:
        values = {
            "group_id": self.group,
            "member_id": self.name,
            "share_session_epoch": self.epoch,
            "topics": self.topics(acks),
        }
        answer = self.broker.call(ACKNOWLEDGE, version, values | told)
        if count and not answer.error_code:
            self.epoch += 1
        return answer

    def topics(self, acks: Any, *, always: bool = False) -> list[dict[str, Any]]:
        batches = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": types}
            for first, last, *types in acks
        ]
        part = {"partition_index": 0, "acknowledgement_batches": batches}
        return [{"topic_id": self.topic_id, "partitions": [part]}] if batches or always else []

    def until_some(self, **told: Any) -> Any:
        for _ in range(200):
            answer = self.fetch(**told)
            if taken(answer):
                return answer
            time.sleep(0.1)
        return answer


def taken(answer: Any) -> list[list[int]]:
    return [
        [one.first_offset, one.last_offset, one.delivery_count]
        for topic in answer.responses
        for part in topic.partitions
        for one in part.acquired_records
    ]


def fetched(answer: Any) -> list[Any]:
    """The error of the whole; of each partition: errors, what was acquired."""
    parts = [
        [part.partition_index, int(part.error_code), part.acknowledge_error_code]
        for topic in answer.responses
        for part in topic.partitions
    ]
    return [int(answer.error_code), parts, taken(answer)]


def settled(answer: Any) -> list[Any]:
    parts = [
        [part.partition_index, int(part.error_code)]
        for topic in answer.responses
        for part in topic.partitions
    ]
    return [int(answer.error_code), parts]


def begin(script: Transcript, broker: Connection, name: str, *values: bytes) -> tuple[str, Any, Member]:
    """A topic with a batch for each value, a record for each of its letters, and a group that reads it."""
    topic, group = script.topic(name), script.topic(f"{name}-readers")
    topic_id = raw.create_topic(broker, topic)
    for value in values:
        put(broker, topic, value)
    configs = [{"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}]
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": group, "configs": configs}
    broker.call(raw.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False})
    script.settle()
    find(broker, 0, [group])
    member = Member(broker, group, "one", [topic])
    member.beat()
    member.until(1)
    return group, topic_id, member


def put(broker: Connection, topic: str, value: bytes) -> None:
    raw.produce(broker, topic, batch([bytes((letter,)) for letter in value]))


def sessions(script: Transcript, broker: Connection) -> None:
    script.section("sessions")
    group, topic_id, member = begin(script, broker, "sessions", b"abcd")
    one = Consumer(broker, group, "one", topic_id)
    script.line("not begun", fetched(one.fetch(share_session_epoch=4, count=False)))
    script.line("not begun, acknowledging", settled(one.acknowledge((0, 0, ACCEPT), count=False)))
    script.line("not begun, ending", fetched(one.fetch(share_session_epoch=-1, topics=[], count=False)))
    script.line("beginning with acknowledgements", fetched(one.fetch((0, 0, ACCEPT), count=False)))
    script.line("no member", fetched(one.fetch(member_id="", count=False)))
    script.line("the first", fetched(one.until_some()))
    script.line("nothing new", fetched(one.fetch(max_wait=0)))
    script.line("an epoch ahead", fetched(one.fetch(share_session_epoch=one.epoch + 3, count=False)))
    script.line(
        "an epoch ahead, acknowledging",
        settled(one.acknowledge((0, 0, ACCEPT), share_session_epoch=one.epoch + 3, count=False)),
    )
    script.line(
        "acknowledging does not begin",
        settled(one.acknowledge((0, 0, ACCEPT), share_session_epoch=0, count=False)),
    )
    more = [{"topic_id": topic_id, "partitions": [{"partition_index": 9}]}]
    script.line("no such partition", fetched(one.fetch(topics=more, max_wait=0)))
    script.line("the last", fetched(one.fetch((0, 1, ACCEPT), share_session_epoch=-1)))
    one.epoch = 0
    script.line("anew", fetched(one.until_some()))
    script.line(
        "ended by an acknowledgement", settled(one.acknowledge((2, 2, ACCEPT), share_session_epoch=-1))
    )
    one.epoch = 0
    script.line("anew", fetched(one.until_some()))
    member.leave()


def acknowledgements(script: Transcript, broker: Connection) -> None:
    script.section("acknowledgements")
    group, topic_id, member = begin(script, broker, "acks", b"abcdefgh", b"ij")
    one, two = (Consumer(broker, group, name, topic_id) for name in ("one", "two"))
    script.line("taken", fetched(one.until_some()))
    script.line("two begins", fetched(two.fetch(max_wait=0)))
    for label, acks in {
        "what another has": ((0, 0, ACCEPT),),
    }.items():
        script.line(label, settled(two.acknowledge(*acks)))
    for label, acks in {
        "no type": ((0, 1),),
        "too many types": ((0, 1, ACCEPT, ACCEPT, ACCEPT),),
        "an unknown type": ((0, 1, 9),),
        "a negative type": ((0, 1, -1),),
        "backwards": ((3, 2, ACCEPT),),
        "out of order": ((4, 5, ACCEPT), (0, 1, ACCEPT)),
        "overlapping": ((0, 3, ACCEPT), (2, 5, ACCEPT)),
        "beyond what was given": ((8, 30, ACCEPT),),
        "far beyond": ((100, 110, ACCEPT),),
        "renewed without saying so": ((0, 1, RENEW),),
    }.items():
        script.line(label, settled(one.acknowledge(*acks)))
    script.line("renewed", settled(one.acknowledge((0, 1, RENEW), is_renew_ack=True)))
    script.line("some of all", settled(one.acknowledge((0, 3, ACCEPT, RELEASE, REJECT, GAP))))
    script.line("again", settled(one.acknowledge((0, 0, ACCEPT))))
    script.line("what was released", settled(one.acknowledge((1, 1, ACCEPT))))
    script.line("what was rejected", settled(one.acknowledge((2, 2, ACCEPT))))
    script.line("one wrong spoils all", settled(one.acknowledge((4, 4, ACCEPT), (1, 1, ACCEPT))))
    script.line("comes again", fetched(two.fetch()))
    script.line("with the fetch", fetched(two.fetch((1, 1, ACCEPT), max_wait=0)))
    script.line("wrongly with the fetch", fetched(two.fetch((4, 4, ACCEPT), max_wait=0)))
    script.line("the rest", fetched(one.fetch((4, 9, ACCEPT), max_wait=0)))
    script.line("once more, done with by now", settled(one.acknowledge((4, 9, ACCEPT))))
    script.line("nothing", settled(one.acknowledge()))
    member.leave()


def limits(script: Transcript, broker: Connection) -> None:
    script.section("limits")
    group, topic_id, member = begin(script, broker, "limits", b"abcdefgh", b"ijkl", b"mnop", b"qrst")
    one = Consumer(broker, group, "one", topic_id)
    script.line("eight", taken(one.until_some(max_records=8)))
    script.line("three, strictly", taken(one.fetch(max_records=3, share_acquire_mode=1)))
    pieces = taken(one.fetch(max_records=3))  # cut where the strict one ended, or not
    script.line("three, by batches", [pieces[0][0], pieces[-1][1]])
    script.line("all that are left", taken(one.fetch()))
    script.line("no records", fetched(one.fetch(max_records=0, max_wait=0)))
    put(broker, script.topic("limits"), b"uv")
    put(broker, script.topic("limits"), b"wx")
    script.line("small batches, version 1", taken(one.fetch(version=1, batch_size=1)))
    member.leave()


def deliveries(script: Transcript, broker: Connection) -> None:
    script.section("deliveries")
    group, topic_id, member = begin(script, broker, "deliveries", b"abcd")
    one = Consumer(broker, group, "one", topic_id)
    answer = one.until_some()
    pieces = taken(answer)
    while taken(answer):
        answer = one.fetch(*((first, last, RELEASE) for first, last, _ in taken(answer)))
        pieces += taken(answer)
    script.line("in the order of offsets", sorted(pieces))
    member.leave()


def main() -> None:
    args = arguments(__doc__)
    script = Transcript(args.prefix, args.settle_s)
    with Connection(args.bootstrap, timeout_s=30) as broker:
        sessions(script, broker)
        acknowledgements(script, broker)
        limits(script, broker)
        deliveries(script, broker)


if __name__ == "__main__":
    main()
