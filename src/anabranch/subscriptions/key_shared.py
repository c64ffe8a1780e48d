"""Key_shared: each message to the consumer that has its key, and the messages of a key in order.

A key is known by its hash.  Two things can keep a message back:

    the hash is held    another consumer than its owner has messages of it that are not acknowledged: it had
                        the key before somebody joined or left.  Until it has acknowledged them or given
                        them back, the key waits (the hash is *draining*)
    it would overtake   earlier messages of the hash wait already, or its owner can take no more

What waits is only offsets and hashes:

    waiting offset ─┬─ its hash is held, or nobody has it   ─> `_blocked`, by hash
                    └─ else                                 ─> `_ready`, a heap per owner

A heap gives the oldest first, so the order of each key is kept.  One key that waits does not keep others.

Invariants, checked by tests/model/test_subscriptions.py:
  * the unacknowledged messages of a hash are with one consumer;
  * a message is handed out after all earlier ones of its hash have been.

If order is of no interest (`keeps_order` is False) nothing is held, and messages wait for their owner only.
"""

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import NamedTuple

from anabranch.subscriptions.consumer import Consumer
from anabranch.subscriptions.hash_ranges import KeyOwners


class Draining(NamedTuple):
    """A hash that waits for who had it before."""

    hash: int
    holder: Consumer
    unacked: int
    """Entries that the holder has not acknowledged."""
    waiting: int
    """Entries that wait for that."""


class KeyRouter:
    __slots__ = (
        "_blocked",
        "_held",
        "_holders",
        "_ready",
        "_waiting",
        "_waiting_of",
        "keeps_order",
        "owners",
    )

    def __init__(self, owners: KeyOwners, *, keeps_order: bool) -> None:
        self.owners = owners
        self.keeps_order = keeps_order
        self._holders: dict[int, Consumer] = {}  # by hash
        self._held: dict[int, int] = {}  # entries, by hash
        self._waiting: dict[int, int] = {}  # offset -> hash
        self._waiting_of: dict[int, int] = {}  # entries, by hash
        self._ready: dict[Consumer, list[int]] = {}
        self._blocked: dict[int, list[int]] = {}

    def __len__(self) -> int:
        """How many entries wait."""
        return len(self._waiting)

    # --- who has what

    def add(self, consumer: Consumer) -> None:
        self.owners.add(consumer)
        self._sort_anew()

    def remove(self, consumer: Consumer, held: Iterable[tuple[int, int]]) -> None:
        """A consumer goes; what it held, by offset and hash, waits for another."""
        self.owners.remove(consumer)
        for offset, hash in held:
            self._let_go(hash)
            self._note(offset, hash)
        self._sort_anew()

    def hold(self, consumer: Consumer, hash: int) -> None:
        """An entry of `hash` was handed to `consumer`."""
        if self.keeps_order:
            self._holders[hash] = consumer
            self._held[hash] = self._held.get(hash, 0) + 1

    def release(self, hash: int) -> bool:
        """An entry of `hash` is acknowledged or given back.  True if others need not wait any more."""
        if not self._let_go(hash):
            return False
        blocked = self._blocked.get(hash)
        owner = self.owners.owner(hash) if blocked is not None else None
        if blocked is None or owner is None:
            return False
        del self._blocked[hash]
        heap = self._ready.setdefault(owner, [])
        for offset in blocked:
            heappush(heap, offset)
        return True

    def clear(self) -> None:
        """Nothing is held, nothing waits."""
        for each in (self._holders, self._held, self._waiting, self._waiting_of, self._ready, self._blocked):
            each.clear()

    # --- who gets what

    def owner_now(self, hash: int) -> Consumer | None:
        """Who may be given the next entry of the log, of that hash; None if it has to wait."""
        owner = self.owners.owner(hash)
        if owner is None or not self.keeps_order:
            return owner
        if hash in self._waiting_of or self._holders.get(hash, owner) is not owner:
            return None
        return owner

    def wait(self, offset: int, hash: int) -> None:
        self._note(offset, hash)
        self._sort_in(offset, hash)

    def has_ready(self, consumer: Consumer) -> bool:
        return bool(self._ready.get(consumer))

    def take_ready(self, consumer: Consumer, limit: int) -> list[tuple[int, int]]:
        """The oldest of what waits for nothing but `consumer`: offsets and hashes, in the log's order.

        They do not wait any more; what is not handed out at once has to `wait` again.
        """
        heap = self._ready.get(consumer)
        taken: list[tuple[int, int]] = []
        while heap and len(taken) < limit:
            offset = heappop(heap)
            hash = self._waiting.pop(offset)
            self._one_less(self._waiting_of, hash)
            taken.append((offset, hash))
        return taken

    def draining(self) -> list[Draining]:
        return [
            Draining(hash, holder, self._held[hash], len(self._blocked.get(hash, ())))
            for hash, holder in self._holders.items()
            if self.owners.owner(hash) is not holder
        ]

    # --- how it is done

    def _note(self, offset: int, hash: int) -> None:
        if offset not in self._waiting:
            self._waiting[offset] = hash
            self._waiting_of[hash] = self._waiting_of.get(hash, 0) + 1

    def _sort_in(self, offset: int, hash: int) -> None:
        owner = self.owners.owner(hash)
        if owner is None or self._holders.get(hash, owner) is not owner:
            self._blocked.setdefault(hash, []).append(offset)
        else:
            heappush(self._ready.setdefault(owner, []), offset)

    def _sort_anew(self) -> None:
        self._ready.clear()
        self._blocked.clear()
        for offset, hash in self._waiting.items():
            self._sort_in(offset, hash)

    def _let_go(self, hash: int) -> bool:
        """True if nobody holds the hash any more."""
        if hash not in self._held:
            return False
        self._one_less(self._held, hash)
        if hash in self._held:
            return False
        del self._holders[hash]
        return True

    @staticmethod
    def _one_less(counts: dict[int, int], hash: int) -> None:
        if counts[hash] == 1:
            del counts[hash]
        else:
            counts[hash] -= 1
