"""Messages: what is sent comes back as it was, single, batched, chunked, compressed, with all they carry."""

import time

import pulsar
from pulsar_transcript import Transcript, more, receive, texts


def main() -> None:
    say = Transcript(__doc__)
    client = say.client

    say.section("one by one")
    topic = say.topic("single")
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    ids = [producer.send(f"m{i}".encode()) for i in range(5)]
    got = receive(consumer, 5)
    say.line("in order", texts(got))
    say.line("ids are the receipts'", [m.message_id() == i for m, i in zip(got, ids, strict=True)])
    say.line("ids ascend", ids == sorted(ids, key=lambda i: (i.ledger_id(), i.entry_id())))
    say.line("batch index", [i.batch_index() for i in ids])
    say.line("partition", [m.message_id().partition() for m in got])
    say.line("last sequence id", producer.last_sequence_id())
    say.line("redelivery counts", [m.redelivery_count() for m in got])

    say.section("what a message carries")
    now = int(time.time() * 1000)
    producer.send(
        b"full",
        properties={"a": "1", "b": "ä"},
        partition_key="key",
        ordering_key="order",
        event_timestamp=1_600_000_000_123,
        sequence_id=77,
    )
    [message] = receive(consumer, 1)
    say.line("properties", message.properties())
    say.line("key", message.partition_key())
    say.line("ordering key", message.ordering_key())
    say.line("event time", message.event_timestamp())
    say.line("published now", abs(message.publish_timestamp() - now) < 60_000)
    say.line("sequence", producer.last_sequence_id())
    say.line("topic", message.topic_name())
    say.line("producer", message.producer_name() == producer.producer_name())
    producer.send(b"")
    say.line("empty", texts(receive(consumer, 1)))
    consumer.close()
    producer.close()

    say.section("batches and compression")
    for name in ("NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY"):
        topic = say.topic(f"batch-{name}")
        consumer = client.subscribe(topic, "s")
        producer = client.create_producer(
            topic,
            batching_enabled=True,
            batching_max_messages=10,
            batching_max_publish_delay_ms=5000,
            compression_type=getattr(pulsar.CompressionType, name),
        )
        for i in range(25):
            producer.send_async(
                f"{name}{i}".encode() * 5, None, partition_key=f"k{i % 3}", properties={"i": str(i)}
            )
        producer.flush()
        got = receive(consumer, 25)
        say.line(name, [texts(got)[0], texts(got)[-1], len(got)])
        say.line("batch indexes", [m.message_id().batch_index() for m in got])
        say.line("keys", sorted({m.partition_key() for m in got}))
        say.line("properties", [m.properties()["i"] for m in got] == [str(i) for i in range(25)])
        say.line("nothing more", more(consumer))
        consumer.close()
        producer.close()

    say.section("key-based batches")
    topic = say.topic("key-batches")
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(
        topic,
        batching_enabled=True,
        batching_max_messages=12,
        batching_max_publish_delay_ms=5000,
        batching_type=pulsar.BatchingType.KeyBased,
    )
    for i in range(12):
        producer.send_async(f"v{i}".encode(), None, partition_key=f"k{i % 3}")
    producer.flush()
    got = receive(consumer, 12)
    by_key: dict[str, list[str]] = {}
    for message in got:
        by_key.setdefault(message.partition_key(), []).append(message.data().decode())
    say.line("by key", by_key)

    say.section("chunks")
    topic = say.topic("chunks")
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, chunking_enabled=True, batching_enabled=False)
    large = bytes(range(256)) * 50_000
    say.attempt("send 12.8 MB", lambda: producer.send(large))
    producer.send(b"after")
    got = receive(consumer, 2, timeout_ms=30_000)
    say.line("whole", [len(m.data()) for m in got])
    say.line("as it was", got[0].data() == large)
    say.line("nothing more", more(consumer))
    plain = client.create_producer(topic)
    say.attempt("too large without chunks", lambda: plain.send(large))

    say.section("sequence ids")
    topic = say.topic("sequences")
    producer = client.create_producer(topic, producer_name="named", initial_sequence_id=41)
    say.line("name", producer.producer_name())
    producer.send(b"x")
    say.line("first", producer.last_sequence_id())
    say.attempt("a second of its name", lambda: client.create_producer(topic, producer_name="named"))
    producer.close()
    producer = client.create_producer(topic, producer_name="named")
    say.line("without deduplication it begins anew", producer.last_sequence_id())
    client.close()


if __name__ == "__main__":
    main()
