"""Effects of a coordinator's decision: records to write, answers to give, timers to set.

A decision is a plain function of the state and an event.  It changes nothing that a restart must
find again; it says what should be written, and the state follows when that is in the log:

    event ─> decision ─> Effects ─┬─ records ──> log ──┬─ in the log: replay, `then`; acknowledged: `replies`
                                  │                    └─ failed: `otherwise`
                                  └─ timers

`Shard.replay` applies a record, live and after a restart alike, so what was rebuilt is what was.  (Whoever
writes many records may say what replaying them comes to, `replayed_by`, and may have them encoded already,
`write_encoded`.)  What a restart may forget (who waits for a join, when a member was last heard of) is
changed in `then`.

The records of a decision are one batch of the log, all of them or none.  Independent records may be any
number, in as many batches as it takes (`each_for_itself`).

A token stands for a request that waits for its answer.  Any decision may answer any token.

Records may belong to a producer's transaction (`within`).  They are replayed as such, and have no effect
until `transaction_ended` says whether it committed.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, Protocol

Answer = dict[str, Any]
Token = Hashable


class KeyValue(NamedTuple):
    """A record of an internal topic; `value` None is a tombstone."""

    key: bytes
    value: bytes | None


class Producer(NamedTuple):
    """Whose transaction it is."""

    producer_id: int
    epoch: int


class Encoded(NamedTuple):
    """So many records as they lie in a batch."""

    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs
    parts: Sequence[bytes]


class Effects:
    __slots__ = (
        "answer_timeout_ms",
        "encoded",
        "is_divisible",
        "otherwise",
        "producer",
        "records",
        "replay",
        "replies",
        "then",
        "timers",
    )

    def __init__(self) -> None:
        self.records: list[KeyValue] = []
        self.then: list[Callable[[], None]] = []
        self.replies: list[tuple[Token, Answer]] = []
        self.otherwise: list[tuple[Token, Answer]] = []
        self.timers: dict[Hashable, int | None] = {}
        self.producer: Producer | None = None
        self.replay: Callable[[], None] | None = None
        self.encoded: Encoded | None = None
        self.is_divisible = False
        self.answer_timeout_ms: int | None = None

    def write(self, key: bytes, value: bytes | None) -> None:
        self.records.append(KeyValue(key, value))

    def write_encoded(self, encoded: Encoded, change: Callable[[], None]) -> None:
        """Write these instead of `records`; `change` does what replaying them would."""
        self.encoded = encoded
        self.replay = change

    def replayed_by(self, change: Callable[[], None]) -> None:
        """`change` does what replaying all of these records would, without reading them again."""
        self.replay = change

    def each_for_itself(self) -> None:
        """The records need not be written together: a crash may leave the first of them alone."""
        self.is_divisible = True

    def within(self, producer: "Producer") -> None:
        """The records belong to the transaction that `producer` has open."""
        self.producer = producer

    def reply(self, token: Token, answer: Answer) -> None:
        """Answer `token` once the records are written."""
        self.replies.append((token, answer))

    def reply_if_lost(self, token: Token, answer: Answer) -> None:
        """Answer `token` so if the records could not be written."""
        self.otherwise.append((token, answer))

    def answered_within(self, timeout_ms: int) -> None:
        """Let nobody wait longer for the acknowledgement of the records than that."""
        self.answer_timeout_ms = timeout_ms

    def after(self, change: Callable[[], None]) -> None:
        """Change what need not survive a restart, once the records are written."""
        self.then.append(change)

    def at(self, timer: Hashable, time_ms: int) -> None:
        """Have `Shard.timeout(timer)` called at `time_ms`, and at no other time."""
        self.timers[timer] = time_ms

    def cancel(self, timer: Hashable) -> None:
        self.timers[timer] = None


class Shard(Protocol):
    """The state of one partition of an internal topic, and what is decided over it."""

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Apply a record.  One of an unknown kind is passed over."""

    def replay_pending(self, producer_id: int, key: bytes, value: bytes | None) -> None:
        """Apply a record that belongs to an open transaction."""

    def transaction_ended(self, producer_id: int, *, commit: bool) -> None:
        """The transaction of `producer_id` has ended: what was pending counts, or is forgotten."""

    def loaded(self, now_ms: int) -> Effects:
        """Every record has been replayed: set the timers that should be running."""

    def timeout(self, timer: Hashable, now_ms: int) -> Effects:
        """A timer has come."""


class PlainShard:
    """What a shard has none of that is in no transaction, and decides nothing as time goes by."""

    def replay_pending(self, producer_id: int, key: bytes, value: bytes | None) -> None:
        """Nobody's."""

    def transaction_ended(self, producer_id: int, *, commit: bool) -> None:
        """Nobody's either."""

    def loaded(self, now_ms: int) -> Effects:
        return Effects()

    def timeout(self, timer: Hashable, now_ms: int) -> Effects:
        return Effects()
