"""Transactions by hand: both protocols, codes of who is late, fenced or unknown, what readers are shown."""

import time
from typing import Any

import raw
from raw import FETCH, INIT_PRODUCER_ID, LIST_OFFSETS, PRODUCE, Connection, batch
from transcript import Transcript, arguments

FIND_COORDINATOR, ADD_PARTITIONS, ADD_OFFSETS, END, MARKERS, OFFSET_COMMIT = 10, 24, 25, 26, 27, 28
OFFSET_FETCH, DESCRIBE, LIST = 9, 65, 66
AGAIN = (14, 15, 16, 51)  # the coordinator is not there yet, or is at something else
TRANSACTIONAL = 16


class Producer:
    """An instance of a transactional producer."""

    def __init__(self, broker: Connection, transactional_id: str) -> None:
        self.broker = broker
        self.id = transactional_id
        self.producer_id = self.epoch = -1
        self.sequences: dict[tuple[int, str, int], int] = {}

    def introduce(self, version: int = 5, **told: Any) -> list[Any]:
        """The code, and the epoch if there is one."""
        values = {"transactional_id": self.id, "transaction_timeout": 60_000} | told
        answer = again(lambda: self.broker.call(INIT_PRODUCER_ID, version, NONE | values))
        if not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return [answer.error_code, answer.producer_epoch]

    def add(self, *places: tuple[str, int], version: int = 3) -> list[Any]:
        values = {
            "v3_and_below_transactional_id": self.id,
            "v3_and_below_producer_id": self.producer_id,
            "v3_and_below_producer_epoch": self.epoch,
            "v3_and_below_topics": [{"name": name, "partitions": [index]} for name, index in places],
        }

        def call() -> Any:
            answer = self.broker.call(ADD_PARTITIONS, version, values)
            answered = {
                (topic.name, part.partition_index): int(part.partition_error_code)
                for topic in answer.results_by_topic_v3_and_below
                for part in topic.results_by_partition
            }
            return Codes([answered[place] for place in places])

        return list(again(call).codes)

    def produce(self, topic: str, value: bytes, index: int = 0, version: int = 11, **lies: Any) -> int:
        told = {"producer_id": self.producer_id, "epoch": self.epoch} | lies
        key = (told["epoch"], topic, index)
        sequence = told.get("sequence", self.sequences.get(key, 0))
        data = batch(
            [value],
            producer=(told["producer_id"], told["epoch"], sequence),
            attributes=told.get("attributes", TRANSACTIONAL),
        )
        answer = self.broker.call(
            PRODUCE,
            version,
            {
                "transactional_id": told.get("transactional_id", self.id),
                "acks": -1,
                "timeout": 5000,
                "topic_data": [{"name": topic, "partition_data": [{"index": index, "records": data}]}],
            },
        )
        code = int(answer.responses[0].partition_responses[0].error_code)
        if not code and "sequence" not in told:
            self.sequences[key] = sequence + 1
        return code

    def end(self, *, commit: bool, version: int = 4, keep: bool = False) -> list[Any]:
        """The code, and by how much the epoch has moved on; `keep` does as if the answer were lost."""
        values = {
            "transactional_id": self.id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "committed": commit,
        }
        answer = again(lambda: self.broker.call(END, version, values))
        if version < 5 or answer.error_code:
            return [answer.error_code]
        moved = answer.producer_epoch - self.epoch
        if not keep:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return [answer.error_code, moved]

    def add_offsets(self, group: str, version: int = 3) -> int:
        values = {"transactional_id": self.id, "producer_id": self.producer_id, "producer_epoch": self.epoch}
        return int(
            again(lambda: self.broker.call(ADD_OFFSETS, version, values | {"group_id": group})).error_code
        )

    def commit_offset(self, group: str, topic: str, offset: int, version: int = 3, **told: Any) -> int:
        values = {
            "transactional_id": self.id,
            "group_id": group,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "generation_id": -1,
            "topics": [{"name": topic, "partitions": [{"partition_index": 0, "committed_offset": offset}]}],
        } | told

        def call() -> Any:
            answer = self.broker.call(OFFSET_COMMIT, version, values)
            return Codes([int(answer.topics[0].partitions[0].error_code)])

        return int(again(call).error_code)


NONE = {"producer_id": -1, "producer_epoch": -1}


class Codes:
    def __init__(self, codes: list[int]) -> None:
        self.codes = codes
        self.error_code = codes[0]


def again(call: Any) -> Any:
    """What `call` answers once the coordinator has time for it."""
    for _ in range(600):
        answer = call()
        if answer.error_code not in AGAIN:
            return answer
        time.sleep(0.05)
    return answer


def stable(broker: Connection, topic: str) -> list[int]:
    """The end for readers of committed records, and for all; once what was decided is written."""
    ends = []
    for isolation in (1, 0):
        part = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
        values = {
            "replica_id": -1,
            "isolation_level": isolation,
            "topics": [{"name": topic, "partitions": [part]}],
        }
        ends.append(int(broker.call(LIST_OFFSETS, 7, values).topics[0].partitions[0].offset))
    return ends


def settled(broker: Connection, topic: str) -> list[int]:
    for _ in range(600):
        ends = stable(broker, topic)
        if ends[0] == ends[1]:
            break
        time.sleep(0.05)
    return ends


def aborted(broker: Connection, topic: str) -> list[int]:
    """First offsets of transactions that a reader of committed records must leave out."""
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
    values = {
        "max_wait": 100,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 1,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [part]}],
    }
    answer = broker.call(FETCH, 11, {"replica_id": -1} | values)
    found = answer.responses[0].partitions[0].aborted_transactions or ()
    return sorted(one.first_offset for one in found)


def find(broker: Connection, key: str, kind: int) -> None:
    """Have the coordinator's topic made."""
    for _ in range(600):
        answer = broker.call(FIND_COORDINATOR, 4, {"key_type": kind, "coordinator_keys": [key]})
        if not answer.coordinators[0].error_code:
            return
        time.sleep(0.05)


def introductions(say: Transcript, broker: Connection) -> None:
    say.section("introductions")
    one = Producer(broker, say.topic("intro"))
    say.line("new", one.introduce())
    say.line("again", one.introduce())
    say.line("an old version", one.introduce(version=1))
    say.line("timeout 0", one.introduce(transaction_timeout=0))
    say.line("timeout too long", one.introduce(transaction_timeout=900_001))
    say.line("no name", Producer(broker, "").introduce())
    known = {"producer_id": one.producer_id, "producer_epoch": one.epoch}
    say.line("going on", one.introduce(**known))
    say.line("going on, the answer lost", one.introduce(**known))
    say.line("a new instance", one.introduce())
    say.line("the old one goes on", one.introduce(**known))
    say.line("the old one goes on, by version 3", one.introduce(version=3, **known))
    say.line("somebody else's id", one.introduce(producer_id=one.producer_id + 1, producer_epoch=0))


def first_protocol(say: Transcript, broker: Connection) -> None:
    say.section("first protocol")
    topic = say.topic("first")
    raw.create_topic(broker, topic)
    say.settle()
    one = Producer(broker, say.topic("p1"))
    one.introduce()
    say.line("commit of nothing", one.end(commit=True))
    say.line("abort of nothing", one.end(commit=False))
    say.line("produce without adding, version 9", one.produce(topic, b"x", version=9))
    say.line("produce without adding, version 11", one.produce(topic, b"x", version=11))
    say.line("add", one.add((topic, 0)))
    say.line("add again", one.add((topic, 0)))
    say.line("add what is not there", one.add((topic, 0), (topic, 7), ("nowhere", 0)))
    say.line("add an internal topic", one.add(("__transaction_state", 0)))
    say.line("produce", one.produce(topic, b"a"))
    say.line("produce more", one.produce(topic, b"b", version=9))
    say.line("the same batch again", one.produce(topic, b"b", sequence=1))
    say.line("a gap", one.produce(topic, b"c", sequence=9))
    say.line("not transactional meanwhile", one.produce(topic, b"c", attributes=0, transactional_id=None))
    say.line("transactional without an id", one.produce(topic, b"c", transactional_id=None))
    say.line(
        "with somebody else's id", one.produce(topic, b"c", transactional_id="nobody", producer_id=1 << 40)
    )
    say.line("ends, while open", stable(broker, topic))
    say.line("commit", one.end(commit=True))
    say.line("ends, after", settled(broker, topic))
    say.line("commit again", one.end(commit=True))
    say.line("abort after the commit", one.end(commit=False))
    say.line("late records", one.produce(topic, b"late"))
    say.line("next transaction", one.add((topic, 0)))
    say.line("its records", one.produce(topic, b"d"))
    say.line("abort", one.end(commit=False))
    say.line("abort again", one.end(commit=False))
    say.line("commit after the abort", one.end(commit=True))
    say.line("ends", settled(broker, topic))
    say.line("aborted", aborted(broker, topic))


def fences(say: Transcript, broker: Connection) -> None:
    say.section("fences")
    topic = say.topic("fences")
    raw.create_topic(broker, topic, 2)
    say.settle()
    old = Producer(broker, say.topic("p2"))
    old.introduce()
    old.add((topic, 0))
    old.produce(topic, b"old")
    new = Producer(broker, say.topic("p2"))
    say.line("a new instance", new.introduce())
    say.line("ends", settled(broker, topic))
    say.line("aborted", aborted(broker, topic))
    say.line("the old one produces", old.produce(topic, b"zombie"))
    say.line("elsewhere", old.produce(topic, b"zombie", index=1))
    say.line("elsewhere, by version 12", old.produce(topic, b"zombie", index=1, version=12))
    for version in (1, 2):
        say.line(f"adds, by version {version}", old.add((topic, 0), version=version))
        say.line(f"commits, by version {version}", old.end(commit=True, version=version))
        say.line(f"adds offsets, by version {version}", old.add_offsets("g", version))
    say.line("commits, by version 5", old.end(commit=True, version=5))
    new.add((topic, 0))
    say.line("the new one produces", new.produce(topic, b"new"))
    say.line("and commits", new.end(commit=True))
    stranger = Producer(broker, say.topic("p2"))
    stranger.producer_id, stranger.epoch = new.producer_id + 1_000_000, 0
    say.line("a stranger adds", stranger.add((topic, 0)))
    say.line("commits", stranger.end(commit=True))
    say.line("produces", stranger.produce(topic, b"x"))
    say.line("produces, by version 12", stranger.produce(topic, b"x", version=12))
    stranger.id = say.topic("nobody")
    say.line("with an unknown name", stranger.add((topic, 0)))
    say.line("commits", stranger.end(commit=True))


def second_protocol(say: Transcript, broker: Connection) -> None:
    say.section("second protocol")
    topic = say.topic("second")
    raw.create_topic(broker, topic)
    say.settle()
    one = Producer(broker, say.topic("p3"))
    one.introduce()
    say.line("commit of nothing", one.end(commit=True, version=5))
    say.line("abort of nothing", one.end(commit=False, version=5))
    say.line("produce", one.produce(topic, b"a", version=12))
    say.line("commit, the answer lost", one.end(commit=True, version=5, keep=True))
    say.line("abort, by the old epoch", one.end(commit=False, version=5))
    say.line("commit again", one.end(commit=True, version=5))
    say.line("and once more", one.end(commit=True, version=5))
    say.line("produce", again_code(lambda: one.produce(topic, b"b", version=12)))
    say.line("by the old epoch", one.produce(topic, b"x", version=12, epoch=one.epoch - 1))
    say.line("abort", one.end(commit=False, version=5))
    say.line("ends", settled(broker, topic))
    say.line("aborted", aborted(broker, topic))


def again_code(call: Any) -> int:
    return int(again(lambda: Codes([call()])).error_code)


def offsets(say: Transcript, broker: Connection) -> None:
    say.section("offsets")
    topic, group = say.topic("offsets"), say.topic("group")
    raw.create_topic(broker, topic)
    say.settle()
    find(broker, group, 0)
    one = Producer(broker, say.topic("p4"))
    one.introduce()
    say.line("commit without adding, version 3", one.commit_offset(group, topic, 5))
    say.line("commit without adding, version 4", one.commit_offset(group, topic, 5, version=4))
    say.line("add", one.add_offsets(group))
    say.line("commit", one.commit_offset(group, topic, 5))
    say.line("of a topic that is not there", one.commit_offset(group, "nowhere", 5))
    say.line("of a generation", one.commit_offset(group, topic, 5, generation_id=3, member_id="m"))
    say.line("metadata too long", long_metadata(one, group, topic))
    say.line("fetched", fetched(broker, group, topic, stable=False))
    say.line("fetched, stable", fetched(broker, group, topic, stable=True))
    say.line("end", one.end(commit=True))
    say.line("fetched", fetched_once_stable(broker, group, topic))
    two = Producer(broker, say.topic("p5"))
    two.introduce()
    say.line("second protocol", again_code(lambda: two.commit_offset(group, topic, 9, version=5)))
    say.line("abort", two.end(commit=False, version=5))
    say.line("fetched", fetched_once_stable(broker, group, topic))


def long_metadata(one: Producer, group: str, topic: str) -> int:
    part = {"partition_index": 0, "committed_offset": 5, "committed_metadata": "m" * 5000}
    return one.commit_offset(group, topic, 5, topics=[{"name": topic, "partitions": [part]}])


def fetched(broker: Connection, group: str, topic: str, *, stable: bool) -> list[int]:
    values = {
        "groups": [{"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}],
        "require_stable": stable,
    }
    part = broker.call(OFFSET_FETCH, 8, values).groups[0].topics[0].partitions[0]
    return [int(part.error_code), int(part.committed_offset)]


def fetched_once_stable(broker: Connection, group: str, topic: str) -> list[int]:
    for _ in range(600):
        found = fetched(broker, group, topic, stable=True)
        if not found[0]:
            break
        time.sleep(0.05)
    return found


def operators(say: Transcript, broker: Connection) -> None:
    say.section("operators")
    topic = say.topic("operated")
    raw.create_topic(broker, topic)
    say.settle()
    one = Producer(broker, say.topic("op"))
    one.introduce()
    one.introduce()
    one.add((topic, 0))
    one.produce(topic, b"a")

    def listed(**told: Any) -> list[Any]:
        filters = {"duration_filter": -1, "transactional_id_pattern": say.topic("") + "op"} | told
        answer = broker.call(LIST, 2, filters)
        names = sorted(
            [state.transactional_id, state.transaction_state] for state in answer.transaction_states
        )
        return [answer.error_code, sorted(answer.unknown_state_filters), names]

    say.line("listed", listed())
    say.line("listed, empty ones", listed(state_filters=["Empty"]))
    say.line("listed, unknown state", listed(state_filters=["Ongoing", "Sleeping"]))
    say.line("listed, by producer", listed(producer_id_filters=[one.producer_id]))
    say.line("listed, by another producer", listed(producer_id_filters=[one.producer_id + 1]))
    say.line("listed, those open for an hour", listed(duration_filter=3_600_000))
    say.line("listed, no expression", listed(transactional_id_pattern="(")[0])
    described = broker.call(DESCRIBE, 0, {"transactional_ids": [one.id, "", say.topic("nobody")]})
    for state in described.transaction_states:
        shown = [
            int(state.error_code),
            state.transaction_state,
            int(state.transaction_timeout.total_seconds()),
        ]
        topics = [[at.topic, list(at.partitions)] for at in state.topics]
        say.line(f"described {state.transactional_id}", [*shown, topics])

    def mark(label: str, version: int = 1, place: tuple[str, int] = (topic, 0), **told: Any) -> None:
        marker = {
            "producer_id": one.producer_id,
            "producer_epoch": one.epoch,
            "transaction_result": False,
            "topics": [{"name": place[0], "partition_indexes": [place[1]]}],
            "coordinator_epoch": 0,
        } | told
        answer = broker.call(MARKERS, version, {"markers": [marker]})
        codes = [part.error_code for at in answer.markers[0].topics for part in at.partitions]
        say.line(label, codes)

    mark("marker of an older epoch", producer_epoch=one.epoch - 1)
    mark("marker where nothing is", place=("nowhere", 0))
    mark("late marker of the second protocol", version=2, transaction_version=2)
    say.line("ends", stable(broker, topic))
    mark("marker")
    say.line("ends", stable(broker, topic))
    mark("marker again")
    mark("marker of the next epoch", version=2, transaction_version=2, producer_epoch=one.epoch + 1)
    say.line("ends", stable(broker, topic))


def main() -> None:
    args = arguments(__doc__)
    say = Transcript(args.prefix, args.settle_s)
    with Connection(args.bootstrap) as broker:
        find(broker, say.topic("intro"), 1)
        introductions(say, broker)
        first_protocol(say, broker)
        fences(say, broker)
        second_protocol(say, broker)
        offsets(say, broker)
        operators(say, broker)


if __name__ == "__main__":
    main()
