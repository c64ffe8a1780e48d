"""Messages that are not to be delivered yet, as the dispatchers of shared and key_shared meet them.

A fresh entry that is put aside already (it waits from before a restart, or came back and went out) is left to
the index; one whose time has not come is put aside; what is due comes back to be read again.
"""

from anabranch.base.errors import Corrupt
from anabranch.records.entries import Entry, read_metadata
from anabranch.records.pulsar_metadata_pb2 import MessageMetadata
from anabranch.subscriptions.delay import DelayView

_AT_ONCE = 256


class Delaying:
    __slots__ = ("_view",)

    def __init__(self, view: DelayView | None) -> None:
        """Without a view messages are delivered at once."""
        self._view = view

    def is_put_off(self, offset: int, deliver_at_ms: int, now_ms: int, *, is_fresh: bool) -> bool:
        view = self._view
        if view is None:
            return False
        if is_fresh and view.holds(offset):
            return True
        if deliver_at_ms <= now_ms:
            return False
        view.add(offset, deliver_at_ms)
        return True

    def due(self, now_ms: int) -> list[int]:
        return [] if self._view is None else self._view.due(now_ms, _AT_ONCE)

    def has_given(self, offset: int) -> bool:
        """Whether an entry was due before reading has come to it, and is passed over there."""
        return self._view is not None and self._view.has_given(offset)

    def passed(self, offset: int) -> None:
        """Reading has come to `offset`."""
        if self._view is not None:
            self._view.passed(offset)

    def rewound(self) -> None:
        if self._view is not None:
            self._view.rewound()


def metadata_of(entry: Entry) -> MessageMetadata:
    """Without anything in it if it cannot be read: the client that gets the entry will say so."""
    try:
        return read_metadata(entry.payload)
    except Corrupt:
        return MessageMetadata()
