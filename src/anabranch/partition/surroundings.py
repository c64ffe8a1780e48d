"""Surroundings of partitions: what those that a broker leads share."""

from concurrent.futures import Executor
from typing import NamedTuple

from anabranch.base.clock import Clock
from anabranch.base.ids import BrokerId
from anabranch.log.flusher import Flusher
from anabranch.partition.replica import Replica
from anabranch.partition.replication import Replication
from anabranch.partition.translations import Translations


class Surroundings(NamedTuple):
    broker: BrokerId
    clock: Clock
    flusher: Flusher
    translations: Translations
    touched: set[Replica]
    """Those that were written to, trimmed or configured, for whoever looks after them."""
    threads: Executor
    """For batches that take long to unpack."""
    replication: Replication
