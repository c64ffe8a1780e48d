"""Produce by hand: sequences and epochs of idempotent producers, batches that lie, acks, topic ids."""

import struct
import uuid
from typing import Any

import raw
from raw import PRODUCE, Connection, batch, new_producer, produce
from transcript import Transcript, arguments


def shown(answer: Any) -> list[Any]:
    """Error, first offset, errors of single records."""
    return [answer.error_code, answer.base_offset, [error.batch_index for error in answer.record_errors]]


def sequences(say: Transcript, broker: Connection) -> None:
    say.section("sequences")
    name = say.topic("sequences")
    raw.create_topic(broker, name)
    say.settle()
    me = new_producer(broker)

    def send(label: str, epoch: int, sequence: int, count: int = 2) -> None:
        data = batch([b"v"] * count, producer=(me, epoch, sequence))
        say.line(label, shown(produce(broker, name, data)))

    send("first", 0, 0)
    send("next", 0, 2)
    send("the last again: told its old offset", 0, 2)
    send("the one before again", 0, 0)
    send("a gap", 0, 10)
    send("the next after the gap", 0, 4)
    for start in range(6, 16, 2):
        send(f"on to {start}", 0, start)
    send("the last but four", 0, 6)
    send("older than the five that are kept", 0, 2)
    send("same start, other length", 0, 14, 1)
    send("new epoch not from 0", 1, 16)
    send("new epoch from 0", 1, 0)
    send("old epoch", 0, 18)
    send("new epoch goes on", 1, 2)
    stranger = batch([b"v"], producer=(me + 1_000_000, 0, 5))
    say.line("an unknown producer in the middle", shown(produce(broker, name, stranger)))
    wrap = new_producer(broker)
    data = batch([b"v"] * 2, producer=(wrap, 0, 2**31 - 2))
    say.line("unknown producer near the end of sequences", shown(produce(broker, name, data)))
    say.line("wraps to 0", shown(produce(broker, name, batch([b"v"], producer=(wrap, 0, 0)))))


def producers(say: Transcript, broker: Connection) -> None:
    say.section("producer ids")

    def init(label: str, **told: Any) -> None:
        values = {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1} | told
        answer = broker.call(raw.INIT_PRODUCER_ID, 4, values)
        say.line(label, [answer.error_code, answer.producer_epoch, answer.producer_id >= 0])

    init("new")
    init("again")
    init("negative timeout", transaction_timeout=-1)
    say.line("all different", len({new_producer(broker) for _ in range(10)}))


def lies(say: Transcript, bootstrap: str) -> None:
    say.section("batches that lie")
    name = say.topic("lies")
    with Connection(bootstrap) as broker:
        raw.create_topic(broker, name)
    say.settle()
    good = batch([b"good"])
    cases = {
        "good": good,
        "wrong checksum": batch([b"v"], crc_off_by=1),
        "magic 1": batch([b"v"], magic=1),
        "magic 0": batch([b"v"], magic=0),
        "magic 3": batch([b"v"], magic=3),
        "more records told than there": batch([b"v"], count=5),
        "fewer records told than there": batch([b"v", b"w"], count=1),
        "no records told": batch([b"v"], count=0),
        "negative count": batch([b"v"], count=-1),
        "cut in the middle": good[:-3],
        "only a header": good[:61],
        "length too small": good[:8] + struct.pack(">i", 10) + good[12:],
        "length negative": good[:8] + struct.pack(">i", -5) + good[12:],
        "length beyond the end": good[:8] + struct.pack(">i", len(good) * 2) + good[12:],
        "two batches": good + good,
        "nothing": b"",
        "control batch": batch([b"v"], attributes=32, producer=(1, 0, 0)),
        "transactional without a transaction": batch([b"v"], attributes=16, producer=(1, 0, 0)),
    }
    for label, data in cases.items():
        with Connection(bootstrap, timeout_s=5) as broker:  # one of its own: it may be closed
            say.attempt(label, lambda b=broker, d=data: shown(produce(b, name, d)))
    # Kafka also refuses rubbish that says it is compressed, for it unpacks every batch.  We do not unpack
    # what came with a good checksum and goes out as it came.
    with Connection(bootstrap, timeout_s=5) as broker:
        answer = produce(broker, name, batch([b"v"], attributes=7))
        say.line("codec 7", "refused" if answer.error_code else "taken")  # Kafka: "unknown server error"


def acks_and_ids(say: Transcript, broker: Connection) -> None:
    say.section("acks, ids, several at once")
    name, good = say.topic("acks"), batch([b"good"])
    ident = raw.create_topic(broker, name, 2)
    say.settle()
    for acks in (-1, 1):
        say.line(f"acks {acks}", shown(produce(broker, name, good, acks=acks)))
    for acks in (2, -2):
        say.line(f"acks {acks}", shown(produce(broker, name, good, acks=acks)))
    told = [{"name": name, "partition_data": [{"index": 0, "records": good}]}]
    broker.send(PRODUCE, 9, {"acks": 0, "timeout": 1000, "topic_data": told})
    say.line("acks 0: no answer, the next one follows", shown(produce(broker, name, good)))
    say.line("unknown topic", shown(produce(broker, say.topic("not-there"), good)))
    say.line("unknown partition", shown(produce(broker, name, good, partition=7)))

    def by_id(label: str, known: Any) -> None:
        data = [{"topic_id": known, "partition_data": [{"index": 1, "records": good}]}]
        answer = broker.call(PRODUCE, 13, {"acks": -1, "timeout": 1000, "topic_data": data})
        say.line(label, shown(answer.responses[0].partition_responses[0]))

    by_id("by id", ident)
    by_id("by unknown id", uuid.UUID(int=77))
    bad = batch([b"v"], crc_off_by=1)
    several = [{"index": 0, "records": bad}, {"index": 1, "records": good}, {"index": 9, "records": good}]
    told = [{"name": name, "partition_data": several}]
    answer = broker.call(PRODUCE, 9, {"acks": -1, "timeout": 1000, "topic_data": told})
    parts = sorted(answer.responses[0].partition_responses, key=lambda p: p.index)
    say.line("one bad, one good, one unknown", [[p.index, *shown(p)] for p in parts])
    raw_keys = batch([b"1", b"2", b"3"], keys=[b"a", None, b"c"])
    compacted = say.topic("compacted")
    raw.create_topic(broker, compacted, 1, cleanup_policy="compact")
    say.settle()
    say.line("one record without a key", shown(produce(broker, compacted, raw_keys)))


def main() -> None:
    args = arguments(__doc__)
    say = Transcript(args.prefix, args.settle_s)
    with Connection(args.bootstrap) as broker:
        sequences(say, broker)
        producers(say, broker)
        acks_and_ids(say, broker)
        lies(say, args.bootstrap)
        names = [say.topic(name) for name in ("sequences", "acks", "compacted", "lies")]
        broker.call(raw.DELETE_TOPICS, 1, {"topic_names": names, "timeout": 5000})


if __name__ == "__main__":
    main()
