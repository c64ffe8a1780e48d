"""Transactions through confluent-kafka: commit, abort, fences, and offsets of what was read."""

import time
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, NewTopic
from transcript import Transcript, arguments, text

TIMEOUT_S = 60


class Cluster:
    """The broker under test."""

    def __init__(self, bootstrap: str, transcript: Transcript) -> None:
        self.conf = {"bootstrap.servers": bootstrap, "log_level": 0}
        self.say = transcript
        self.admin = AdminClient(self.conf)

    def create(self, name: str, partitions: int = 1) -> str:
        topic = self.say.topic(name)
        made = self.admin.create_topics([NewTopic(topic, partitions, 1)])
        for future in made.values():
            future.result(timeout=15)
        self.say.settle()
        return topic

    def producer(self, name: str, **conf: Any) -> ck.Producer:
        told = {"transactional.id": self.say.topic(name), "linger.ms": 0} | conf
        producer = ck.Producer(self.conf | told)
        producer.init_transactions(TIMEOUT_S)
        return producer

    def consumer(self, group: str, **conf: Any) -> ck.Consumer:
        told = {
            "group.id": self.say.topic(group),
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
        }
        return ck.Consumer(self.conf | told | conf)

    def values(self, topic: str, isolation: str = "read_committed") -> list[str | None]:
        """Every value that a reader can see, partition by partition."""
        consumer = self.consumer("unused", **{"isolation.level": isolation, "enable.partition.eof": True})
        partitions = len(consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions)
        consumer.assign([ck.TopicPartition(topic, index, 0) for index in range(partitions)])
        found: list[tuple[int, int, str | None]] = []
        ended: set[int] = set()
        while len(ended) < partitions:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, "nothing comes"
            error = message.error()
            if error is None:
                found.append((message.partition(), message.offset(), text(message.value())))
            elif error.code() == ck.KafkaError._PARTITION_EOF:
                ended.add(message.partition())
        consumer.close()
        return [value for _, _, value in sorted(found)]


def commit_and_abort(cluster: Cluster) -> None:
    say = cluster.say
    say.section("commit and abort")
    topic = cluster.create("both", 3)
    producer = cluster.producer("one")
    producer.begin_transaction()
    for number in range(6):
        producer.produce(topic, f"a{number}", partition=number % 3)
    producer.flush(TIMEOUT_S)
    say.line("while open", cluster.values(topic))
    say.line("for all to see", len(cluster.values(topic, "read_uncommitted")))
    say.attempt("commit", lambda: producer.commit_transaction(TIMEOUT_S))
    say.line("after", cluster.values(topic))
    producer.begin_transaction()
    for number in range(6):
        producer.produce(topic, f"b{number}", partition=number % 3)
    producer.flush(TIMEOUT_S)
    say.attempt("abort", lambda: producer.abort_transaction(TIMEOUT_S))
    say.line("after", cluster.values(topic))
    say.line("for all to see", len(cluster.values(topic, "read_uncommitted")))
    producer.begin_transaction()
    say.attempt("empty commit", lambda: producer.commit_transaction(TIMEOUT_S))
    for number in range(20):
        producer.begin_transaction()
        producer.produce(topic, f"c{number:02}", partition=0)
        (producer.commit_transaction if number % 2 else producer.abort_transaction)(TIMEOUT_S)
    say.line("every second of twenty", [v for v in cluster.values(topic) if v is not None and v[0] == "c"])


def fences(cluster: Cluster) -> None:
    say = cluster.say
    say.section("fences")
    topic = cluster.create("fences")
    old = cluster.producer("two")
    old.begin_transaction()
    old.produce(topic, "old")
    old.flush(TIMEOUT_S)
    new = cluster.producer("two")
    say.attempt("the old one commits", lambda: old.commit_transaction(TIMEOUT_S))
    new.begin_transaction()
    new.produce(topic, "new")
    say.attempt("the new one commits", lambda: new.commit_transaction(TIMEOUT_S))
    say.line("seen", cluster.values(topic))
    say.attempt(
        "a timeout too long", lambda: cluster.producer("three", **{"transaction.timeout.ms": 900_001})
    )


def copy(cluster: Cluster) -> None:
    """Read, change, write, and commit both as one."""
    say = cluster.say
    say.section("copy")
    source, target = cluster.create("in", 2), cluster.create("out", 2)
    filler = ck.Producer(cluster.conf)
    for number in range(10):
        filler.produce(source, f"{number}", partition=number % 2)
    filler.flush(TIMEOUT_S)
    producer = cluster.producer("four")
    for turn, ending in enumerate(("abort", "commit", "commit")):
        consumer = cluster.consumer("copiers", **{"isolation.level": "read_committed"})
        consumer.subscribe([source])
        messages: list[ck.Message] = []
        wanted = 10 if turn < 2 else 0
        end = time.monotonic() + (TIMEOUT_S if wanted else 5)
        while len(messages) < max(wanted, 1) and time.monotonic() < end:
            messages += [m for m in consumer.consume(10, 0.2) if m.error() is None]
        say.line(f"turn {turn} reads", len(messages))
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, b"<" + (message.value() or b"") + b">", partition=message.partition())
        positions = consumer.position(consumer.assignment())
        metadata = consumer.consumer_group_metadata()
        if messages:
            producer.send_offsets_to_transaction(positions, metadata, TIMEOUT_S)
        if ending == "commit":
            say.attempt("commit", lambda: producer.commit_transaction(TIMEOUT_S))
        else:
            say.attempt("abort", lambda: producer.abort_transaction(TIMEOUT_S))
        consumer.close()
        say.line("out", cluster.values(target))
    consumer = cluster.consumer("copiers")
    parts = [ck.TopicPartition(source, index) for index in range(2)]
    say.line("committed", [part.offset for part in consumer.committed(parts, TIMEOUT_S)])
    consumer.close()


def main() -> None:
    args = arguments(__doc__)
    cluster = Cluster(args.bootstrap, Transcript(args.prefix, args.settle_s))
    commit_and_abort(cluster)
    fences(cluster)
    copy(cluster)


if __name__ == "__main__":
    main()
