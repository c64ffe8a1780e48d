"""Acknowledgements within transactions, from a topic's subscriptions to what is kept of them.

    ack    held in memory ─> a record in `__subscription_state` ─> answered
    end    acknowledged or delivered again ─> the cursor is kept ─> the records go

A crash between two steps of an end leaves the records, and the transaction is ended again after the restart:
to acknowledge twice does no harm.  A seek or a reset forgets them first, since what is then delivered again
is not what they were about.

Who asks has made sure that the transaction is open.
"""

import logging
from collections.abc import Sequence

from anabranch.base.errors import Corrupt
from anabranch.groups.transaction_ids import TxnId
from anabranch.subscriptions.acking import Ack
from anabranch.subscriptions.consumer import Consumer
from anabranch.subscriptions.pending_acks import encode
from anabranch.topics.errors import NotAllowed
from anabranch.topics.held import Held
from anabranch.topics.surroundings import Surroundings

log = logging.getLogger(__name__)


class TransactionalAcks:
    def __init__(self, around: Surroundings) -> None:
        self._around = around

    async def load(self, held: Held) -> None:
        """Bring back what open transactions have acknowledged."""
        assert held.durable is not None
        for txn, kept in (await self._around.pending_acks.of(held.durable.name)).items():
            try:
                held.subscription.restore_transaction(txn, kept)
            except Corrupt as error:  # rather delivered again than never
                log.error(
                    "%s, subscription %s: acknowledgements of transaction %s are unreadable, what it "
                    "acknowledged is delivered again: %s",
                    held.subscription.topic,
                    held.subscription.name,
                    txn,
                    error,
                )

    async def ack(
        self, held: Held, txn: TxnId, consumer: Consumer, acks: Sequence[Ack], *, cumulative: bool
    ) -> None:
        """Returns when it is kept.  If that fails the messages are delivered again."""
        if held.durable is None:
            raise NotAllowed("a subscription that is not durable takes no acknowledgements of transactions")
        number, kept = held.subscription.ack_within(txn, consumer, acks, cumulative=cumulative)
        try:
            await self._around.pending_acks.write(held.durable.name, txn, number, encode(kept))
        except BaseException:
            held.subscription.withdraw(txn, kept)
            raise

    async def end(self, txn: TxnId, held: Held, *, commit: bool) -> None:
        if held.durable is None:
            return
        held.subscription.end_transaction(txn, commit=commit)
        if commit:
            await self._around.positions.save(held.durable)
        await self._around.pending_acks.drop(held.durable.name, txn)

    async def forget(self, held: Held) -> None:
        """Nothing is acknowledged any more, whatever becomes of the transactions."""
        assert held.durable is not None
        for txn in held.subscription.reading.pending:
            await self._around.pending_acks.drop(held.durable.name, txn)
