"""Exactly once, as an application does it: what is read from one topic is written to another.

    python -m tests.support.copier BOOTSTRAP IN OUT

It reads as a static member of the group `copiers`, writes `<value>` for every value, and commits both as one.
It goes on until it is killed, through every error that a broker that comes and goes can cause: what is
abortable is aborted, after what is fatal it starts anew.
"""

import sys
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

GROUP = "copiers"


class Copier:
    def __init__(self, bootstrap: str, source: str, target: str) -> None:
        common = {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "socket.timeout.ms": 5000,
        }
        self._source = source
        self._target = target
        self._producer = Producer(
            common | {"transactional.id": "copier", "transaction.timeout.ms": 20_000, "linger.ms": 1}
        )
        self._consumer = Consumer(
            common
            | {
                "group.id": GROUP,
                "group.instance.id": "copier",
                "session.timeout.ms": 6000,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )

    def run(self) -> None:
        self._producer.init_transactions(20)
        self._consumer.subscribe([self._source])
        while True:
            messages = self._consumer.consume(20, 0.1)
            for message in messages:
                error = message.error()
                if error is not None and (error.fatal() or error.code() == KafkaError._FATAL):
                    raise KafkaException(error)
            good = [message for message in messages if message.error() is None]
            if good:
                self._copy(good)

    def _copy(self, messages: list[Message]) -> None:
        try:
            self._producer.begin_transaction()
            for message in messages:
                self._producer.produce(self._target, b"<" + (message.value() or b"") + b">")
            positions = self._consumer.position(self._consumer.assignment())
            self._producer.send_offsets_to_transaction(
                positions, self._consumer.consumer_group_metadata(), 10
            )
            self._producer.commit_transaction(10)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort() and not error.args[0].retriable():
                raise
            self._producer.abort_transaction(10)
            self._rewind()

    def _rewind(self) -> None:
        """Back to what is committed."""
        for part in self._consumer.committed(self._consumer.assignment(), 10):
            offset = part.offset if part.offset >= 0 else 0
            self._consumer.seek(TopicPartition(part.topic, part.partition, offset))

    def close(self) -> None:
        self._consumer.close()


def main() -> None:
    while True:
        copier = Copier(*sys.argv[1:4])
        try:
            copier.run()
        except KafkaException as error:
            print("starts anew:", error, flush=True)
            time.sleep(0.1)
        copier.close()


if __name__ == "__main__":
    main()
