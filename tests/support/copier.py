"""Exactly once, as an application does it: what is read from one topic is written to another.

    python -m tests.support.copier BOOTSTRAP IN OUT NAME PROTOCOL

It reads as the static member NAME of the group `copiers`, whose protocol is `classic` or `consumer`, writes
`<value>` for every value, and commits both as one.  It goes on until it is killed, through every error that a
broker that comes and goes can cause: what is abortable is aborted, after what is fatal it starts anew.
"""

import sys
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

GROUP = "copiers"
_BATCH = 20
_WAIT_S = 0.1


class Copier:
    def __init__(self, bootstrap: str, source: str, target: str, name: str, protocol: str) -> None:
        common = {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "socket.timeout.ms": 5000,
            # librdkafka 2.16 forgets a broker that is away and starts over; a transaction then may wait for
            # the one that it has forgotten, for ever.
            "metadata.recovery.strategy": "none",
        }
        self._source = source
        self._target = target
        self._read: list[Message] = []
        self._producer = Producer(
            common | {"transactional.id": name, "transaction.timeout.ms": 20_000, "linger.ms": 1}
        )
        self._consumer = Consumer(
            common
            | {
                "group.id": GROUP,
                "group.instance.id": name,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
            | ({"session.timeout.ms": 6000} if protocol == "classic" else {})
        )

    def run(self) -> None:
        self._producer.init_transactions(20)
        self._consumer.subscribe(
            [self._source], on_assign=self._drop, on_revoke=self._drop, on_lost=self._drop
        )
        while True:
            self._fill()
            if self._read:
                self._copy()

    def _drop(self, _: Consumer, moved: list[TopicPartition]) -> None:
        """What was read of these is somebody else's now, or will be read again."""
        gone = {part.partition for part in moved}
        self._read = [message for message in self._read if message.partition() not in gone]

    def _fill(self) -> None:
        deadline = time.monotonic() + _WAIT_S
        while len(self._read) < _BATCH and (left_s := deadline - time.monotonic()) > 0:
            message = self._consumer.poll(left_s)
            if message is None:
                return
            error = message.error()
            if error is None:
                self._read.append(message)
            elif error.fatal() or error.code() == KafkaError._FATAL:
                raise KafkaException(error)

    def _copy(self) -> None:
        try:
            self._producer.begin_transaction()
            for message in self._read:
                self._producer.produce(self._target, b"<" + (message.value() or b"") + b">")
            ends = {message.partition(): (message.offset() or 0) + 1 for message in self._read}
            self._producer.send_offsets_to_transaction(
                [TopicPartition(self._source, partition or 0, end) for partition, end in ends.items()],
                self._consumer.consumer_group_metadata(),
                10,
            )
            self._producer.commit_transaction(10)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort() and not error.args[0].retriable():
                raise
            self._producer.abort_transaction(10)
            self._rewind()
        self._read.clear()

    def _rewind(self) -> None:
        """Back to what is committed."""
        for part in self._consumer.committed(self._consumer.assignment(), 10):
            offset = part.offset if part.offset >= 0 else 0
            self._consumer.seek(TopicPartition(part.topic, part.partition, offset))

    def close(self) -> None:
        self._consumer.close()


def main() -> None:
    while True:
        copier = Copier(*sys.argv[1:6])
        try:
            copier.run()
        except KafkaException as error:
            print("starts anew:", error, flush=True)
            time.sleep(0.1)
        copier.close()


if __name__ == "__main__":
    main()
