"""Exclusive: one consumer, and nobody else as long as it is attached."""

from collections.abc import Sequence

from anabranch.subscriptions.consumer import Consumer
from anabranch.subscriptions.errors import ConsumerBusy


class Exclusive:
    """Who is active, as `single_active` asks: the only one there is."""

    is_told = False  # nobody else could be active, so clients are not told

    def check(self, attached: Sequence[Consumer]) -> None:
        if attached:
            raise ConsumerBusy("Exclusive consumer is already connected")

    def choose(self, attached: Sequence[Consumer]) -> Consumer | None:
        return attached[0] if attached else None
