"""Fetch by hand: sessions and their epochs, limits in bytes, topic ids, leader epochs, waiting."""

import time
import uuid
from typing import Any

import raw
from raw import FETCH, Connection, batch, batches, fetch_request, produce
from transcript import Transcript, arguments

VERSION = 17
NO_ID = uuid.UUID(int=0)
LONG_MS = 12_000  # a fetch that is woken takes far less, on whatever machine


def shown(answer: Any, names: dict[Any, str]) -> list[Any]:
    """Error and session of an answer, and per partition: error, high watermark, batches."""
    rows = [
        [
            names.get(topic.topic_id, "?"),
            p.partition_index,
            p.error_code,
            p.high_watermark,
            batches(p.records),
        ]
        for topic in answer.responses
        for p in topic.partitions
    ]
    return [answer.error_code, "session" if answer.session_id else "none", sorted(rows)]


class Topics:
    """Two topics of three partitions; ten batches of two records of 100 bytes in partition 0 of `first`."""

    def __init__(self, say: Transcript, broker: Connection) -> None:
        self.first = raw.create_topic(broker, say.topic("first"), 3)
        self.second = raw.create_topic(broker, say.topic("second"), 3)
        say.settle()
        self.names = {self.first: "first", self.second: "second"}
        for i in range(10):
            assert produce(broker, say.topic("first"), batch([b"%03d" % i + b"x" * 97] * 2)).error_code == 0


def sessions(say: Transcript, broker: Connection, topics: Topics) -> None:
    say.section("sessions")
    first, second = topics.first, topics.second

    def fetch(label: str, session: int, epoch: int, where: Any, **options: Any) -> Any:
        told = fetch_request(where, session_id=session, session_epoch=epoch, **options)
        answer = broker.call(FETCH, VERSION, told)
        say.line(label, shown(answer, topics.names))
        return answer.session_id

    fetch("without a session", 0, -1, [(first, [(0, 18)])])
    session = fetch("new session", 0, 0, [(first, [(0, 18), (1, 0)]), (second, [(0, 0)])])
    fetch("nothing changed", session, 1, [])
    produce(broker, say.topic("second"), batch([b"new"]))
    fetch("one partition has news", session, 2, [])
    fetch("the same news again", session, 3, [])
    fetch("position moved", session, 4, [(second, [(0, 1)])])
    fetch("partition added", session, 5, [(second, [(1, 0)])])
    forget = {"forgotten_topics_data": [{"topic_id": first, "partitions": [0, 1]}]}
    fetch("partitions forgotten", session, 6, [], **forget)
    produce(broker, say.topic("first"), batch([b"unseen"]))
    fetch("forgotten stays quiet", session, 7, [])
    fetch("wrong epoch", session, 99, [])
    fetch("right epoch after it", session, 8, [])
    fetch("unknown session", session ^ 0x55555555, 1, [])
    other = fetch("replaced by a new one", session, 0, [(first, [(0, 20)])])
    say.line("has another id", other != session)
    fetch("the old one is gone", session, 9, [])
    fetch("closed", other, -1, [(first, [(0, 20)])])
    fetch("closed is unknown", other, 1, [])


def limits(say: Transcript, broker: Connection, topics: Topics) -> None:
    say.section("limits in bytes")
    first, second = topics.first, topics.second
    for i in range(3):
        produce(broker, say.topic("second"), batch([bytes([65 + i]) * 5000]), partition=i)

    def fetch(label: str, where: Any, **options: Any) -> None:
        say.line(label, shown(broker.call(FETCH, VERSION, fetch_request(where, **options)), topics.names))

    fetch("one byte a partition: the first batch whole", [(first, [(0, 0)])], partition_max_bytes=1)
    fetch("one byte in all: the first batch whole", [(first, [(0, 0)])], max_bytes=1)
    fetch("no bytes at all", [(first, [(0, 0)])], max_bytes=0, partition_max_bytes=0, max_wait=0)
    fetch("from inside a batch: the batch whole", [(first, [(0, 5)])], partition_max_bytes=1)
    fetch("300 bytes: what fits, cut at a batch", [(first, [(0, 0)])], partition_max_bytes=300)
    fetch("1000 bytes a partition", [(first, [(0, 0)])], partition_max_bytes=1000)
    second_all = (second, [(0, 1), (1, 0), (2, 0)])
    fetch("one byte a partition, four partitions", [(first, [(0, 0)]), second_all], partition_max_bytes=1)
    fetch("600 bytes in all", [(first, [(0, 0)]), second_all], max_bytes=600)
    fetch("6000 bytes in all", [second_all, (first, [(0, 0)])], max_bytes=6000)


def positions(say: Transcript, broker: Connection, topics: Topics) -> None:
    say.section("positions, ids, epochs")
    first = topics.first

    def fetch(label: str, where: Any, **options: Any) -> None:
        told = fetch_request(where, max_wait=0, **options)
        say.line(label, shown(broker.call(FETCH, VERSION, told), topics.names))

    fetch("at the end", [(first, [(0, 21)])])
    fetch("past the end", [(first, [(0, 22)])])
    fetch("negative offset", [(first, [(0, -1)])])
    fetch("unknown partition", [(first, [(9, 0)])])
    fetch("unknown id", [(uuid.UUID(int=77), [(0, 0)])])
    fetch("no id", [(NO_ID, [(0, 0)])])
    fetch("unknown id beside a good one", [(uuid.UUID(int=77), [(0, 0)]), (first, [(0, 20)])])
    for epoch in (0, 1, 5):
        told = fetch_request([(first, [(0, 20)])], max_wait=0)
        told["topics"][0]["partitions"][0]["current_leader_epoch"] = epoch
        say.line(f"leader epoch {epoch}", shown(broker.call(FETCH, VERSION, told), topics.names))
    fetch("read committed", [(first, [(0, 20)])], isolation_level=1)
    name = say.topic("first")
    told = {"name": name, "partitions": [{"partition_index": 0, "timestamp": 0, "current_leader_epoch": 3}]}
    answer = broker.call(raw.LIST_OFFSETS, 9, {"replica_id": -1, "topics": [told]})
    say.line("list offsets, future epoch", answer.topics[0].partitions[0].error_code)
    for epoch, current in ((0, 0), (0, -1), (1, -1), (-1, -1), (0, 4)):
        partition = {"partition": 0, "leader_epoch": epoch, "current_leader_epoch": current}
        told = {"replica_id": -1, "topics": [{"topic": name, "partitions": [partition]}]}
        found = broker.call(raw.OFFSET_FOR_LEADER_EPOCH, 4, told).topics[0].partitions[0]
        shown_end = [found.error_code, found.leader_epoch, found.end_offset]
        say.line(f"end of epoch {epoch}, current {current}", shown_end)


def special_times(say: Transcript, broker: Connection) -> None:
    say.section("offsets by special timestamps")
    name = say.topic("first")
    for label, at in {"latest": -1, "earliest": -2, "max": -3, "local": -4, "tiered": -5, "six": -6}.items():
        told = {
            "name": name,
            "partitions": [{"partition_index": 0, "timestamp": at, "current_leader_epoch": -1}],
        }
        answer = broker.call(raw.LIST_OFFSETS, 11, {"replica_id": -1, "topics": [told], "timeout": 5000})
        found = answer.topics[0].partitions[0]
        say.line(label, [found.error_code, found.offset, found.leader_epoch])
    told = {"name": name, "partitions": [{"partition_index": 0, "timestamp": -3, "current_leader_epoch": -1}]}
    answer = broker.call(raw.LIST_OFFSETS, 6, {"replica_id": -1, "topics": [told]})
    say.line("max at a version before it", answer.topics[0].partitions[0].error_code)


def waiting(say: Transcript, bootstrap: str, broker: Connection, topics: Topics) -> None:
    say.section("waiting")
    name, ident = say.topic("waited"), raw.create_topic(broker, say.topic("waited"), 2)
    say.settle()
    names = topics.names | {ident: "waited"}

    def took(seconds: float, longest_s: float) -> str:
        return "at once" if seconds < 0.15 else "waited" if seconds < longest_s else "too long"

    def fetch(label: str, where: Any, **options: Any) -> None:
        seconds = []
        for _ in range(5):  # the quickest of them: a machine that stands still for a moment is not the broker
            started = time.monotonic()
            answer = broker.call(FETCH, VERSION, fetch_request(where, **options))
            seconds.append(time.monotonic() - started)
            if seconds[-1] < 0.15:
                break
        say.line(label, [took(min(seconds), 1.5), *shown(answer, names)])

    fetch("empty, no wait", [(ident, [(0, 0)])], max_wait=0)
    fetch("empty, half a second", [(ident, [(0, 0)])], max_wait=500)
    fetch("empty, no minimum", [(ident, [(0, 0)])], max_wait=500, min_bytes=0)
    fetch("an error does not wait", [(ident, [(7, 0)])], max_wait=500)
    with Connection(bootstrap) as other:
        started = time.monotonic()
        sent = broker.send(FETCH, VERSION, fetch_request([(ident, [(0, 0), (1, 0)])], max_wait=LONG_MS))
        time.sleep(0.3)
        produce(other, name, batch([b"wake up"]), partition=1)
        answer = broker.receive(FETCH, VERSION, sent)
        woken = took(time.monotonic() - started, LONG_MS / 2000)
        say.line("woken by a record", [woken, *shown(answer, names)])
        sent = broker.send(FETCH, VERSION, fetch_request([(ident, [(0, 0)])], max_wait=2500, min_bytes=400))
        produce(other, name, batch([b"x" * 100]))
        answer = broker.receive(FETCH, VERSION, sent)
        say.line("too few bytes to be woken", shown(answer, names))
        started = time.monotonic()
        wanted = fetch_request([(ident, [(0, 0)])], max_wait=LONG_MS, min_bytes=400)
        sent = broker.send(FETCH, VERSION, wanted)
        produce(other, name, batch([b"x" * 300]))
        answer = broker.receive(FETCH, VERSION, sent)
        woken = "at once" if time.monotonic() - started < LONG_MS / 2000 else "too long"
        say.line("enough bytes", [woken, *shown(answer, names)])


def order(say: Transcript, broker: Connection, topics: Topics) -> None:
    """A waiting fetch holds back the answers behind it, for answers come in the order of their requests."""
    say.section("order of answers")
    started = time.monotonic()
    fetch = broker.send(FETCH, VERSION, fetch_request([(topics.second, [(0, 2)])], max_wait=400))
    metadata = broker.send(raw.METADATA, 12, {"topics": []})
    first = broker.receive(FETCH, VERSION, fetch)
    say.line("the fetch", [time.monotonic() - started >= 0.3, first.error_code])
    say.line("then the metadata", len(broker.receive(raw.METADATA, 12, metadata).brokers))


def main() -> None:
    args = arguments(__doc__)
    say = Transcript(args.prefix, args.settle_s)
    with Connection(args.bootstrap) as broker:
        topics = Topics(say, broker)
        sessions(say, broker, topics)
        limits(say, broker, topics)
        positions(say, broker, topics)
        special_times(say, broker)
        waiting(say, args.bootstrap, broker, topics)
        order(say, broker, topics)
        names = [say.topic(name) for name in ("first", "second", "waited")]
        broker.call(raw.DELETE_TOPICS, 1, {"topic_names": names, "timeout": 5000})


if __name__ == "__main__":
    main()
