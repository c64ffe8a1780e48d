"""Transactions in compaction: which were aborted and which markers may go, batch by batch.

Compaction stays below the last stable offset, so every transaction it meets is decided.  Which ones
were aborted is known beforehand from the transaction indexes; the rest were committed.

    data of an aborted transaction     goes at once
    its abort marker                   stays while the walk met a batch of it, even one that goes now:
    a commit marker                    a reader in the middle of the transaction must find its end.
                                       After that it is kept until its delete horizon.

Aborted transactions whose marker stays, and whose data was met, are collected in `still_aborted`, for
the transaction index of the segment that is being written.
"""

from collections.abc import Iterable

from anabranch.log.transactions import AbortedTransaction
from anabranch.records.batch import BatchHeader
from anabranch.records.control import Marker


class Fates:
    __slots__ = ("_aborted", "_begun", "_committing", "_next", "still_aborted")

    def __init__(self, aborted: Iterable[AbortedTransaction], start: int) -> None:
        """For a walk from offset `start`: what ended before it is not met again."""
        self._aborted = sorted(
            (entry for entry in aborted if entry.last_offset >= start), key=lambda entry: entry.first_offset
        )
        self._next = 0
        self._begun: dict[int, tuple[AbortedTransaction, bool]] = {}  # by producer; was any data met?
        self._committing: set[int] = set()
        self.still_aborted: list[AbortedTransaction] = []

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a batch of data belongs to an aborted transaction."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        begun = self._begun.get(header.producer_id)
        if begun is None or begun[0].last_offset < header.base_offset:  # over, its marker was not readable
            self._committing.add(header.producer_id)
            return False
        self._begun[header.producer_id] = (begun[0], True)
        return True

    def is_spent(self, header: BatchHeader, marker: Marker | None) -> bool:
        """Whether a control batch ends a transaction of which nothing is left.

        `marker` is None for a control batch that was emptied, or is of a kind that we do not know.
        """
        self._begin_up_to(header.last_offset)
        if marker is None:
            return header.count == 0
        if marker.commit:
            met = header.producer_id in self._committing
            self._committing.discard(header.producer_id)
            return not met
        begun = self._begun.pop(header.producer_id, None)
        if begun is not None and begun[1]:
            self.still_aborted.append(begun[0])
            return False
        return True

    def _begin_up_to(self, offset: int) -> None:
        while self._next < len(self._aborted) and self._aborted[self._next].first_offset <= offset:
            entry = self._aborted[self._next]
            self._begun[entry.producer_id] = (entry, False)
            self._next += 1
