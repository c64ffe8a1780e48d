"""Share groups by hand: members and their epochs, groups of other kinds, offsets described, set and deleted.

What members are given is shown as a number of partitions, since who gets which is an assignor's own affair;
heartbeats are repeated until an assignment is there, since brokers differ in how soon that is.
"""

import base64
import time
from typing import Any

import raw
from raw import Connection, batch
from transcript import Transcript, arguments

OFFSET_COMMIT, OFFSET_FETCH, JOIN, LIST, DELETE_GROUPS, CONSUMER_HEARTBEAT = 8, 9, 11, 16, 42, 68
HEARTBEAT, DESCRIBE, FIND = 76, 77, 10
DESCRIBE_OFFSETS, ALTER_OFFSETS, DELETE_OFFSETS, OFFSET_DELETE = 90, 91, 92, 47
INITIALIZE, READ, WRITE, DELETE_STATE, SUMMARY = 83, 84, 85, 86, 87
AGAIN = (14, 15, 16)  # the coordinator is not there yet
DEADLINE_S = 60.0


class Member:
    def __init__(self, broker: Connection, group: str, member_id: str, topics: list[str]) -> None:
        self.broker = broker
        self.group, self.member_id, self.topics = group, member_id, topics
        self.epoch = 0
        self.partitions = 0

    def beat(self, **told: Any) -> Any:
        """A heartbeat; everything is said by one that joins."""
        values = {"group_id": self.group, "member_id": self.member_id, "member_epoch": self.epoch}
        if self.epoch == 0:
            values["subscribed_topic_names"] = self.topics
        answer = again(lambda: self.broker.call(HEARTBEAT, 1, values | told))
        if not answer.error_code and "member_epoch" not in told:
            self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.partitions = sum(len(topic.partitions) for topic in answer.assignment.topic_partitions)
        return answer

    def until(self, partitions: int, *others: "Member") -> list[int]:
        """Heartbeat, as others do, until this member has so many partitions."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            for member in (self, *others):
                member.beat()
            found = [member.partitions for member in (self, *others)]
            if found[0] == partitions or time.monotonic() > deadline:
                return found
            time.sleep(0.05)

    def leave(self) -> list[Any]:
        answer = self.beat(member_epoch=-1)
        self.epoch = 0
        return [answer.error_code, answer.member_epoch]


def again(call: Any) -> Any:
    for _ in range(600):
        answer = call()
        if getattr(answer, "error_code", 0) not in AGAIN:
            return answer
        time.sleep(0.1)
    return answer


def told(answer: Any) -> list[Any]:
    return [int(answer.error_code), answer.error_message]


def refusals(script: Transcript, broker: Connection, topic: str) -> None:
    script.section("what is refused at once")
    group = script.topic("refused")
    base = {"group_id": group, "member_id": "m", "member_epoch": 0, "subscribed_topic_names": [topic]}
    for label, lie in {
        "no group": {"group_id": ""},
        "no rack": {"rack_id": ""},
        "no topics": {"subscribed_topic_names": None},
        "empty topics": {"subscribed_topic_names": []},
        "an epoch below": {"member_epoch": -2},
        "an epoch of nobody": {"member_epoch": 3},
        "leaving what is not there": {"member_epoch": -1},
    }.items():
        answer = again(lambda lie=lie: broker.call(HEARTBEAT, 1, base | lie))
        script.line(label, [*told(answer), answer.member_id, answer.member_epoch])


def membership(script: Transcript, broker: Connection, topic: str) -> None:
    script.section("members")
    group = script.topic("members")
    one, two = (Member(broker, group, name, [topic]) for name in ("one", "two"))
    answer = one.beat(rack_id="r1")
    script.line("one joins", [*told(answer), answer.member_id, answer.member_epoch > 0])
    script.line("one has all", one.until(3))
    two.beat()
    script.line("they share", [*sorted(one.until(2, two)), one.partitions + two.partitions >= 3])
    script.line("ahead", told(one.beat(member_epoch=one.epoch + 9)))
    script.line(
        "nobody", told(broker.call(HEARTBEAT, 1, {"group_id": group, "member_id": "x", "member_epoch": 4}))
    )
    script.line(
        "nobody leaves",
        told(broker.call(HEARTBEAT, 1, {"group_id": group, "member_id": "x", "member_epoch": -1})),
    )
    answer = one.beat(subscribed_topic_names=[topic])
    script.line("said again", [*told(answer), answer.assignment is not None])
    described = broker.call(DESCRIBE, 1, {"group_ids": [group, script.topic("none"), ""]})
    for found in sorted(described.groups, key=lambda found: found.group_id):
        script.line(
            "described",
            [*told(found), found.group_id, found.group_state, found.assignor_name, len(found.members)],
        )
    for member in sorted(described_members(described, group), key=lambda member: member.member_id):
        topics = [topic.topic_name for topic in member.assignment.topic_partitions]
        script.line(
            "member",
            [member.member_id, member.rack_id, member.client_id, list(member.subscribed_topic_names), topics],
        )
    listed = broker.call(LIST, 5, {"types_filter": ["Share"]}).groups
    script.line(
        "listed", [[g.group_state, g.group_type, g.protocol_type] for g in listed if g.group_id == group]
    )
    script.line("not deleted", delete(broker, group))
    script.line("one leaves", one.leave())
    script.line("two has all", two.until(3))
    script.line("two leaves", two.leave())
    found = broker.call(DESCRIBE, 1, {"group_ids": [group]}).groups[0]
    script.line("empty", [found.group_state, len(found.members)])
    script.line("deleted", delete(broker, group))
    script.line("deleted again", delete(broker, group))
    script.line("gone", told(broker.call(DESCRIBE, 1, {"group_ids": [group]}).groups[0]))


def described_members(described: Any, group: str) -> Any:
    return next(found for found in described.groups if found.group_id == group).members


def delete(broker: Connection, group: str) -> int:
    return int(again(lambda: broker.call(DELETE_GROUPS, 2, {"groups_names": [group]}).results[0]).error_code)


def kinds(script: Transcript, broker: Connection, topic: str) -> None:
    script.section("groups of other kinds")
    share, consumer, plain = (script.topic(name) for name in ("share", "consumer", "plain"))
    member = Member(broker, share, "m", [topic])
    member.beat()
    joins: dict[str, Any] = {
        "member_id": "c",
        "member_epoch": 0,
        "rebalance_timeout": 10_000,
        "subscribed_topic_names": [topic],
        "topic_partitions": [],
    }
    answer = again(lambda: broker.call(CONSUMER_HEARTBEAT, 1, joins | {"group_id": share}))
    script.line("a consumer in a share group", told(answer))
    classic = {
        "group_id": share,
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    script.line("a classic member in it", int(broker.call(JOIN, 5, classic).error_code))
    script.line("committed to", commit(broker, share, topic))
    script.line("fetched from", fetch(broker, share, topic))
    script.line(
        "an offset deleted", int(broker.call(OFFSET_DELETE, 0, {"group_id": share, "topics": []}).error_code)
    )
    member.leave()
    answer = broker.call(CONSUMER_HEARTBEAT, 1, joins | {"group_id": share})
    script.line("a consumer in an empty share group", told(answer))
    script.line("a classic member in it", int(broker.call(JOIN, 5, classic).error_code))
    again(lambda: broker.call(CONSUMER_HEARTBEAT, 1, joins | {"group_id": consumer}))
    script.line("a share member in a consumer group", told(Member(broker, consumer, "m", [topic]).beat()))
    script.line(
        "described as a share group", told(broker.call(DESCRIBE, 1, {"group_ids": [consumer]}).groups[0])
    )
    script.line("committed", commit(broker, plain, topic))
    script.line("a share member in a group of offsets", told(Member(broker, plain, "m", [topic]).beat()))
    for group in (share, consumer, plain):
        answer = again(lambda group=group: broker.call(ALTER_OFFSETS, 0, alteration(group, topic, {0: 1})))
        script.line("offsets set", told(answer))
        script.line(
            "offsets deleted", told(broker.call(DELETE_OFFSETS, 0, {"group_id": group, "topics": []}))
        )
    broker.call(CONSUMER_HEARTBEAT, 1, {"group_id": consumer, "member_id": "c", "member_epoch": -1})


def commit(broker: Connection, group: str, topic: str) -> int:
    part = {
        "partition_index": 0,
        "committed_offset": 1,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    values = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "topics": [{"name": topic, "partitions": [part]}],
    }
    for _ in range(600):
        code = int(broker.call(OFFSET_COMMIT, 8, values).topics[0].partitions[0].error_code)
        if code not in AGAIN:
            break
        time.sleep(0.1)
    return code


def fetch(broker: Connection, group: str, topic: str) -> list[int]:
    asked = {"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}
    found = broker.call(OFFSET_FETCH, 8, {"groups": [asked]}).groups[0]
    return [int(found.error_code), len(found.topics)]


def alteration(group: str, topic: str, offsets: dict[int, int]) -> dict[str, Any]:
    parts = [{"partition_index": index, "start_offset": offset} for index, offset in offsets.items()]
    return {"group_id": group, "topics": [{"topic_name": topic, "partitions": parts}]}


def offsets(script: Transcript, broker: Connection, topic: str) -> None:
    script.section("offsets")
    group, none = script.topic("offsets"), script.topic("none")
    raw.produce(broker, topic, batch([b"x"] * 10))

    def described(label: str, group: str, topics: Any) -> None:
        answer = broker.call(DESCRIBE_OFFSETS, 1, {"groups": [{"group_id": group, "topics": topics}]})
        found = answer.groups[0]
        script.line(label, [*told(found), found.group_id])
        for about in sorted(found.topics, key=lambda about: about.topic_name):
            for part in sorted(about.partitions, key=lambda part: part.partition_index):
                # (the leader's epoch is the leader's affair)
                shown = [part.partition_index, part.start_offset, part.lag, *told(part)]
                script.line(f"  {about.topic_name}", [about.topic_id is not None, *shown])

    some = [{"topic_name": topic, "partitions": [0]}, {"topic_name": none, "partitions": [0]}]
    described("of a group that is not there", group, None)
    described("of its partitions", group, some)
    altered(script, "set in a new group", broker, alteration(group, topic, {0: 4, 1: 0, 7: 0}))
    altered(script, "of an unknown topic", broker, alteration(group, none, {0: 4}))
    altered(script, "of nothing", broker, {"group_id": group, "topics": []})
    altered(script, "of no group", broker, alteration("", topic, {0: 0}))
    described("all of them", group, None)
    described("some of them", group, some)
    member = Member(broker, group, "m", [topic])
    member.until(3)
    altered(script, "while it has members", broker, alteration(group, topic, {0: 4}))
    deleted(script, "while it has members", broker, group, topic)
    described("with a member", group, None)
    member.leave()
    deleted(script, "deleted", broker, group, topic)
    deleted(script, "again", broker, group, topic)
    deleted(script, "of an unknown topic", broker, group, none)
    deleted(script, "of an unknown group", broker, none, topic)
    described("nothing left", group, None)
    altered(script, "set again", broker, alteration(group, topic, {2: 0}))
    described("and described", group, None)
    script.line("the group deleted", delete(broker, group))
    described("of the deleted group", group, [{"topic_name": topic, "partitions": [2]}])


def altered(script: Transcript, label: str, broker: Connection, values: dict[str, Any]) -> None:
    answer = again(lambda: broker.call(ALTER_OFFSETS, 0, values))
    script.line(label, told(answer))
    for about in answer.responses:
        for part in sorted(about.partitions, key=lambda part: part.partition_index):
            script.line(
                f"  {about.topic_name}", [about.topic_id is not None, part.partition_index, *told(part)]
            )


def deleted(script: Transcript, label: str, broker: Connection, group: str, topic: str) -> None:
    answer = broker.call(DELETE_OFFSETS, 0, {"group_id": group, "topics": [{"topic_name": topic}]})
    script.line(label, told(answer))
    for about in answer.responses:
        script.line(f"  {about.topic_name}", [about.topic_id is not None, *told(about)])


def states(script: Transcript, broker: Connection, topic: str, topic_id: Any) -> None:
    script.section("what is kept")
    group = script.topic("states")
    text = base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()
    keys = [f"{group}:{text}:0", "nonsense", f"{group}:{text}", f"{group}:{text}:x", f":{text}:0"]
    script.line("where", find(broker, 2, keys))

    def call(label: str, key: int, version: int, **part: Any) -> None:
        values = {
            "group_id": group,
            "topics": [{"topic_id": topic_id, "partitions": [{"partition": 0} | part]}],
        }
        answer = broker.call(key, version, values)
        for about in answer.results:
            for one in about.partitions:
                shown: list[Any] = [int(one.error_code)]
                for field in ("state_epoch", "start_offset", "delivery_complete_count", "leader_epoch"):
                    shown += [getattr(one, field)] if hasattr(one, field) else []
                if hasattr(one, "state_batches"):
                    shown.append(
                        [
                            [b.first_offset, b.last_offset, b.delivery_state, b.delivery_count]
                            for b in one.state_batches
                        ]
                    )
                script.line(label, shown)

    def batches(*told: tuple[int, int, int, int]) -> list[dict[str, int]]:
        names = ("first_offset", "last_offset", "delivery_state", "delivery_count")
        return [dict(zip(names, one, strict=True)) for one in told]

    call("read of nothing", READ, 0, leader_epoch=0)
    call("its summary", SUMMARY, 1, leader_epoch=0)
    call("written to nothing", WRITE, 1, state_epoch=0, leader_epoch=0, start_offset=0, state_batches=[])
    call("initialised", INITIALIZE, 0, state_epoch=5, start_offset=10)
    call("at an older epoch", INITIALIZE, 0, state_epoch=4, start_offset=10)
    call("read", READ, 0, leader_epoch=2)
    call("read by one before", READ, 0, leader_epoch=1)
    call("summary", SUMMARY, 1, leader_epoch=2)
    told_of = {"leader_epoch": 2, "state_epoch": 5, "delivery_complete_count": 3}
    call(
        "written", WRITE, 1, **told_of, start_offset=10, state_batches=batches((10, 14, 0, 1), (15, 19, 2, 1))
    )
    call("read", READ, 0, leader_epoch=2)
    call("written over", WRITE, 1, **told_of, start_offset=12, state_batches=batches((13, 16, 2, 2)))
    call("read", READ, 0, leader_epoch=2)
    call("the start alone", WRITE, 1, **told_of, start_offset=15, state_batches=[])
    call(
        "the rest alone",
        WRITE,
        1,
        **told_of,
        start_offset=-1,
        state_batches=batches((30, 31, 4, 5), (20, 20, 0, 1)),
    )
    call("read", READ, 0, leader_epoch=3)
    call("summary", SUMMARY, 1, leader_epoch=3)
    call("by a leader before", WRITE, 1, **told_of, start_offset=20, state_batches=[])
    told_of["leader_epoch"] = 3
    call("before it was reset", WRITE, 1, **told_of | {"state_epoch": 4}, start_offset=20, state_batches=[])
    call("initialised again", INITIALIZE, 0, state_epoch=6, start_offset=2)
    call("as before that", WRITE, 1, **told_of, start_offset=20, state_batches=[])
    call("read", READ, 0, leader_epoch=3)
    call("deleted", DELETE_STATE, 0)
    call("again", DELETE_STATE, 0)
    call("read", READ, 0, leader_epoch=3)
    call("a partition that is not there", INITIALIZE, 0, partition=9, state_epoch=0, start_offset=0)


def find(broker: Connection, key_type: int, keys: list[str]) -> list[int]:
    """The codes with which coordinators are found."""
    asked = {"key_type": key_type, "coordinator_keys": keys}
    for _ in range(600):
        codes = [int(found.error_code) for found in broker.call(FIND, 6, asked).coordinators]
        if codes[0] not in AGAIN:
            break
        time.sleep(0.1)
    return codes


def main() -> None:
    args = arguments(__doc__)
    script = Transcript(args.prefix, args.settle_s)
    with Connection(args.bootstrap, timeout_s=30) as broker:
        topic = script.topic("shared")
        topic_id = raw.create_topic(broker, topic, 3)
        script.settle()
        find(broker, 0, [script.topic("members")])
        refusals(script, broker, topic)
        membership(script, broker, topic)
        kinds(script, broker, topic)
        offsets(script, broker, topic)
        states(script, broker, topic, topic_id)


if __name__ == "__main__":
    main()
