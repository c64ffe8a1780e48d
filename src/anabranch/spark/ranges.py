"""Offset ranges: what is to be fetched and how, from the planner to the tasks."""

from typing import TYPE_CHECKING, NamedTuple

from anabranch.base.errors import AnabranchError
from anabranch.client.destinations import TopicPartition
from anabranch.client.settings import Settings
from anabranch.wire.kafka.fetch import COMPACTED, DESCRIBED

if TYPE_CHECKING:
    from anabranch.spark.values.typed import Typed
    from anabranch.spark.varints import Ints


class DataLost(AnabranchError):
    """Records that were to be read are not there any more."""


class Range(NamedTuple):
    """Offsets of one partition, `end` exclusive."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)


class Fetching(NamedTuple):
    """How ranges are fetched.  Travels to executors."""

    settings: Settings
    committed: bool = False
    fail_on_data_loss: bool = True
    fetch_bytes: int = 4 << 20
    typed: "Typed | None" = None
    """Keys and values that are read by their schemas."""
    described: bool = False
    """Whether messages of Pulsar's clients are to come with all that these see of them."""
    is_lone: bool = False
    """Whether the topic has no other partition."""
    compacted: bool = False
    """Whether the broker is to give its compacted view, if it has one."""
    only: "Ints | None" = None
    """The offsets that are wanted, in order, if not all are."""

    @property
    def wishes(self) -> int:
        return DESCRIBED * self.described | COMPACTED * self.compacted
