"""Pulsar's transactions as Kafka's coordinator keeps them.

    TxnID (3, 557057)   most bits: which of Pulsar's coordinators       3
                        least bits: producer id << 15 | epoch           17, epoch 1
    transactional id    __pulsar-transaction-3-17

A transaction has a producer id to itself while it lasts, since a marker ends all that the producer has open
in a partition.  Afterwards the next transaction may have the id, in a later epoch: so there are as many ids
as there were transactions at the same time, and an id of a transaction says by itself where that is kept.
"""

import re
from typing import NamedTuple

from anabranch.groups.effects import Producer

_EPOCH_BITS = 15
_LAST_EPOCH = (1 << _EPOCH_BITS) - 1
_LAST_NUMBER = (1 << 63) - 1
_PREFIX = "__pulsar-transaction-"
_TRANSACTIONAL_ID = re.compile(rf"{_PREFIX}(\d{{1,9}})-(\d{{1,15}})")


class TxnId(NamedTuple):
    coordinator: int
    number: int

    @classmethod
    def of(cls, coordinator: int, producer: Producer) -> "TxnId":
        return cls(coordinator, producer.producer_id << _EPOCH_BITS | producer.epoch)

    @property
    def producer(self) -> Producer:
        """Under whose id and epoch it writes."""
        return Producer(self.number >> _EPOCH_BITS, self.number & _LAST_EPOCH)

    @property
    def transactional_id(self) -> str:
        return transactional_id(self.coordinator, self.number >> _EPOCH_BITS)

    @property
    def is_possible(self) -> bool:
        """Whether a client can have been given it."""
        return self.number <= _LAST_NUMBER

    def __str__(self) -> str:
        """As Pulsar writes it."""
        return f"({self.coordinator},{self.number})"


def transactional_id(coordinator: int, producer_id: int) -> str:
    return f"{_PREFIX}{coordinator}-{producer_id}"


def coordinator_of(transactional_id: str) -> int | None:
    """Which of Pulsar's coordinators uses it; None if it is a Kafka client's."""
    match = _TRANSACTIONAL_ID.fullmatch(transactional_id)
    return None if match is None else int(match[1])
