"""The transaction coordinator: which shard a transactional id belongs to, and what takes more than a step.

    end ─> PrepareCommit in the log ─> markers in every partition ─> CompleteCommit in the log ─> answer

From Prepare on the outcome is fixed.  No marker is written before Prepare is acknowledged: else another
coordinator could know nothing of an end that partitions know.  The client is told when the markers have been
tried once, or after a second: usually all is done by then and its next transaction starts without a refusal.
What is not done, because a disk was full or a broker was killed, is tried again until it is; after a start or
an election, first of all.

`run` does that, and looks from time to time for transactions that have timed out and for ids nobody uses.

A shard that could not be read at the start is tried again there, too: it may have transactions to finish.

Raised to handlers, who answer with its code: NotCoordinator while there is no topic or another broker leads
the partition, CoordinatorLoading while the shard is being read, CoordinatorUnreadable if that has failed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial

from anabranch.base.clock import Clock
from anabranch.base.errors import (
    AnabranchError,
    CoordinatorLoading,
    CoordinatorUnreadable,
    NotCoordinator,
    NotFound,
    NotOwner,
    TransactionCoordinatorFenced,
    Unavailable,
    UnknownTopic,
)
from anabranch.base.seldom import Seldom
from anabranch.groups import transactions
from anabranch.groups.coordinator import partition_for
from anabranch.groups.effects import Answer, Effects, Producer, Token
from anabranch.groups.internal_topic import make_topic
from anabranch.groups.marker_queues import TIMEOUT_S
from anabranch.groups.runtime import Begun, Decide, Runtime
from anabranch.groups.transaction_config import TransactionConfig
from anabranch.groups.transaction_markers import Markers, Writing, end_of, outcomes
from anabranch.groups.transaction_records import NO_PRODUCER_ID, TopicPartition, Transaction
from anabranch.groups.transaction_shard import Added, TransactionShard, refused
from anabranch.partition.led_partitions import LedPartitions
from anabranch.wire.kafka.schema import ErrorCode

log = logging.getLogger(__name__)
_trouble = Seldom(log, 10.0)

STATE_TOPIC = "__transaction_state"
_RETRY_S = 0.1
_TOLD_AFTER_S = 1.0  # an end whose markers are not acknowledged by then is completed beside the requests
_LOADED_S = 5.0  # how long to wait at a start for shards to be read, before those that are there are served
_EXPIRED_A_BATCH = 1000
_AT_ONCE = 64  # transactions that are completed at the same time


class NoTransactions(NotCoordinator):
    """Nobody has ever begun one."""


class TransactionCoordinator:
    def __init__(
        self,
        clock: Clock,
        partitions: LedPartitions,
        config: Callable[[], TransactionConfig],
        new_producer_id: Callable[[], Awaitable[int]],
        create_topic: Callable[[], Awaitable[None]],
        markers: Markers,
    ) -> None:
        self._clock = clock
        self._led = partitions
        self._config = config
        self._new_producer_id = new_producer_id
        self._create_topic = create_topic
        self._runtime: Runtime[TransactionShard] = Runtime(
            clock, TransactionShard, partitions, lambda: int(TIMEOUT_S * 1000)
        )
        self.markers = markers
        self._finishing: set[str] = set()
        self._writing: dict[tuple[int, str], Writing] = {}
        self._unfinished: set[tuple[int, str]] = set()
        self._unread: set[int] = set()
        self._elected: dict[int, asyncio.Task[None]] = {}
        """Shards that are being read since this broker was elected."""
        self.on_loaded: Callable[[Mapping[str, Transaction]], None] = lambda found: None
        """Told of transactions that this broker coordinates from now on."""
        self._work = asyncio.Event()
        self._loaded = asyncio.Event()

    # --- where

    async def ensure_topic(self) -> int:
        """The number of partitions of the topic, which is made if it is not there."""
        try:
            return self._partitions()
        except NotCoordinator:
            await make_topic(STATE_TOPIC, self._create_topic)
            return self._partitions()

    def shard_of(self, transactional_id: str) -> int:
        return partition_for(transactional_id, self._partitions())

    def is_here(self, transactional_id: str) -> bool:
        """Whether this broker is to be asked about it: it leads the shard, or nobody has begun one ever."""
        try:
            return self._led.is_led(self.shard_of(transactional_id))
        except NoTransactions:
            return True

    def _partitions(self) -> int:
        try:
            return self._led.count
        except UnknownTopic as error:
            raise NoTransactions(f"the topic {STATE_TOPIC} has not been made yet") from error

    # --- what clients ask for

    async def initialize(
        self, transactional_id: str, timeout_ms: int, known: Producer | None = None
    ) -> Answer:
        """An instance of a producer introduces itself.  Its producer id and epoch."""
        if not 0 < timeout_ms <= self._config().max_timeout_ms:
            return refused(ErrorCode.invalid_transaction_timeout)
        index = self.shard_of(transactional_id)
        answer = await self._try_to_initialize(index, transactional_id, timeout_ms, known)
        if answer["error_code"] == ErrorCode.concurrent_transactions:
            # Usually what the instance before left open: it is aborted now, and nobody has to ask again.
            answer = await self._try_to_initialize(index, transactional_id, timeout_ms, known)
        return answer

    async def _try_to_initialize(
        self, index: int, transactional_id: str, timeout_ms: int, known: Producer | None
    ) -> Answer:
        new_id = await self._maybe_new_id(index, transactional_id)
        instance = transactions.Instance(timeout_ms, known, new_id)
        answer = await self._runtime.submit(
            index, lambda shard, token, now_ms: shard.initialize(token, transactional_id, instance, now_ms)
        )
        await self._finish(index, transactional_id)
        return answer

    async def begin(self, transactional_id: str, timeout_ms: int, new_id: int = NO_PRODUCER_ID) -> Answer:
        """A transaction of Pulsar's begins, under `new_id` if the transactional id is new."""
        await self.ensure_topic()
        return await self._runtime.submit(
            self.shard_of(transactional_id),
            lambda shard, token, now_ms: shard.begin(token, transactional_id, timeout_ms, new_id, now_ms),
        )

    async def add(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Iterable[TopicPartition],
        client_version: int = 0,
        begun: Begun | None = None,
    ) -> ErrorCode:
        """Partitions take part in the producer's transaction, which begins if it has not yet.

        `begun` as in `Runtime.submit`.
        """
        added = Added(producer, frozenset(partitions), client_version)
        answer = await self._runtime.submit(
            self.shard_of(transactional_id),
            lambda shard, token, now_ms: shard.add(token, transactional_id, added, now_ms),
            begun,
        )
        return ErrorCode(answer["error_code"])

    def verify(
        self, transactional_id: str, producer: Producer, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether each of `partitions` takes part in the transaction that the producer has open."""
        index = self.shard_of(transactional_id)
        shard = self._runtime.read(index)
        try:
            self._led.partition(index).check_writable()  # else another may have ended it
        except NotOwner as error:
            raise NotCoordinator(str(error)) from error
        return transactions.verify(shard.transactions.get(transactional_id), producer, partitions)

    async def end(
        self,
        transactional_id: str,
        producer: Producer,
        *,
        commit: bool,
        client_version: int = 0,
        begun: Begun | None = None,
    ) -> Answer:
        """Commit or abort.  The producer id and epoch to go on with, which the second protocol changes.

        `begun` as in `Runtime.submit`.
        """
        index = self.shard_of(transactional_id)
        new_id = NO_PRODUCER_ID
        if client_version >= transactions.EPOCH_BUMP:
            new_id = await self._maybe_new_id(index, transactional_id)
        ending = transactions.Ending(producer, commit, client_version, new_id)
        try:
            answer = await self._runtime.submit(
                index, lambda shard, token, now_ms: shard.end(token, transactional_id, ending, now_ms), begun
            )
        except asyncio.CancelledError:  # the client is gone; it may have ended all the same
            self._unfinished.add((index, transactional_id))
            self._work.set()
            raise
        await self._finish(index, transactional_id)
        return answer

    async def time_out(self, transactional_id: str) -> None:
        """Abort what has timed out, if it has."""
        await self._fence(self.shard_of(transactional_id), transactional_id)

    def find(self, transactional_id: str) -> Transaction | None:
        shard = self._runtime.read(self.shard_of(transactional_id))
        return shard.transactions.get(transactional_id)

    async def settled(self, transactional_id: str) -> None:
        """Return when what is known of it is safe: what a client may be told."""
        await self._runtime.settled(self.shard_of(transactional_id))

    def all(self) -> dict[str, Transaction]:
        """Every transaction here.  CoordinatorLoading, or -Unreadable, while not all are known."""
        if not self._loaded.is_set() or self._elected:
            raise CoordinatorLoading("transactions are being read")
        if self._unread:
            raise CoordinatorUnreadable(f"transactions of {len(self._unread)} partitions could not be read")
        return self.known()

    def known(self) -> dict[str, Transaction]:
        """Those that could be read."""
        return {id: one for shard in self._runtime.shards() for id, one in shard.transactions.items()}

    async def loaded(self) -> None:
        """Return when all of them are known that can be read."""
        await self._loaded.wait()

    # --- what goes on by itself

    async def run(self) -> None:
        """Finish what a kill left unfinished, then look after time-outs for as long as the node lives."""
        loading = asyncio.ensure_future(self._load_all())
        try:  # one may wait for its replicas, and is not to hold up the others
            await asyncio.wait((loading,), timeout=_LOADED_S)
            await self._go_on()
        finally:
            loading.cancel()

    async def _go_on(self) -> None:
        next_expiry = self._clock.monotonic() + self._config().expiration_check_interval_ms / 1000
        next_abort = self._clock.monotonic()
        while True:
            now = self._clock.monotonic()
            if now >= next_abort:
                next_abort = now + self._config().abort_check_interval_ms / 1000
                for index in sorted(self._unread):
                    self._begin_to_load(index)
                await self._each_shard(self._look_after)
            if now >= next_expiry:
                next_expiry = now + self._config().expiration_check_interval_ms / 1000
                await self._each_shard(self._expire)
            unfinished = list(self._unfinished)
            for i in range(0, len(unfinished), _AT_ONCE):  # one that has to wait does not hold up the others
                await asyncio.gather(*[self._finish(*one, 0.0) for one in unfinished[i : i + _AT_ONCE]])
            if self._unfinished:  # not to be woken: what has just failed says that there is work
                await asyncio.sleep(_RETRY_S)
            else:
                await self._rest(min(next_abort, next_expiry) - self._clock.monotonic())

    def close(self) -> None:
        for loading in self._elected.values():
            loading.cancel()
        self.markers.close()
        self._runtime.close()

    async def _load_all(self) -> None:
        try:
            count = self._partitions()
        except NotCoordinator:
            self._loaded.set()
            return
        for index in range(count):
            if self._led.is_led(index):
                self.elected(index)
        while self._elected:
            await asyncio.wait(self._elected.values())
        self._loaded.set()

    def elected(self, index: int) -> None:
        """This broker leads partition `index` of the topic from now on."""
        if not self._led.is_unwritten(index):
            self._begin_to_load(index)

    def _begin_to_load(self, index: int) -> None:
        if index not in self._elected:
            loading = self._elected[index] = asyncio.ensure_future(self._load(index))
            loading.add_done_callback(lambda _: self._elected.pop(index, None))

    async def _load(self, index: int) -> None:
        try:
            await self._runtime.load(index)
        except (NotFound, NotCoordinator):  # the topic was deleted, or another broker leads the partition
            self._unread.discard(index)
        except (AnabranchError, OSError) as error:
            log.warning(
                "%s-%d: its transactions cannot be served, tried again soon: %s", STATE_TOPIC, index, error
            )
            self._unread.add(index)
        else:
            self._unread.discard(index)
            shard = self._runtime.read(index)
            self._unfinished.update((index, id) for id in shard.prepared())
            self._work.set()
            self.on_loaded(shard.transactions)

    async def _each_shard(self, work: Callable[[TransactionShard, int], Awaitable[None]]) -> None:
        for shard in self._runtime.shards():
            try:
                await work(shard, self._clock.now_ms())
            except (AnabranchError, OSError) as error:
                log.warning(
                    "%s-%d: its transactions are looked at later: %s", STATE_TOPIC, shard.index, error
                )

    async def _look_after(self, shard: TransactionShard, now_ms: int) -> None:
        """Abort what has timed out; find what is prepared and not finished, for whatever reason."""
        for transactional_id in shard.timed_out(now_ms):
            log.info("transactional id %r: its transaction has timed out and is aborted", transactional_id)
            await self._fence(shard.index, transactional_id, 0.0)
        self._unfinished.update((shard.index, id) for id in shard.prepared())

    async def _fence(self, index: int, transactional_id: str, most_s: float = _TOLD_AFTER_S) -> None:
        new_id = await self._maybe_new_id(index, transactional_id)
        await self._submit_within(
            most_s, index, lambda shard, token, now_ms: shard.fence(token, transactional_id, new_id, now_ms)
        )
        await self._finish(index, transactional_id, most_s)

    async def _expire(self, shard: TransactionShard, now_ms: int) -> None:
        expiration_ms = self._config().expiration_ms
        expired = shard.expired(expiration_ms, now_ms)
        while expired:
            ids, expired = expired[:_EXPIRED_A_BATCH], expired[_EXPIRED_A_BATCH:]
            await self._runtime.submit(shard.index, partial(_expire, ids=ids, expiration_ms=expiration_ms))

    async def _rest(self, seconds: float) -> None:
        """Until there is work, or time has passed."""
        try:
            async with asyncio.timeout(max(0.001, seconds)):  # `wait_for` may lose a cancellation to a wake
                await self._work.wait()
        except TimeoutError:
            return
        self._work.clear()

    # --- how it is done

    async def _finish(self, index: int, transactional_id: str, most_s: float = _TOLD_AFTER_S) -> None:
        """Complete a transaction if it is prepared: within `most_s`, or else as soon as that is possible."""
        if transactional_id in self._finishing:
            return
        self._finishing.add(transactional_id)
        finished = False
        try:
            finished = await self._try_to_finish(index, transactional_id, most_s)
        except (NotCoordinator, TransactionCoordinatorFenced):  # whoever leads the partition completes it
            finished = True
        except (AnabranchError, OSError) as error:
            _trouble.warning(
                "transactional id %r: its transaction cannot be completed yet, tried again soon: %s",
                transactional_id,
                error,
            )
        finally:  # whoever asked may be gone, and has taken its task along
            self._finishing.discard(transactional_id)
            if finished:
                self._unfinished.discard((index, transactional_id))
                self._writing.pop((index, transactional_id), None)
            else:
                self._unfinished.add((index, transactional_id))
                self._work.set()

    async def _try_to_finish(self, index: int, transactional_id: str, most_s: float) -> bool:
        """Write the markers of a transaction that is prepared, then write that all are there."""
        prepared = self._runtime.read(index).transactions.get(transactional_id)
        if prepared is None or prepared.state not in transactions.PREPARED:
            return True
        partition = self._led.partition(index)
        end = end_of(prepared, partition.leader_epoch)
        writing = self._writing.get((index, transactional_id))
        if writing is None or writing.end != end:
            writing = Writing(end, partition.acknowledgement(partition.log_end))
            self._writing[(index, transactional_id)] = writing
        if writing.prepared is not None:
            if not writing.prepared.done():
                await asyncio.wait((writing.prepared,), timeout=most_s)
            if not writing.prepared.done():
                return False  # nothing is wrong; its replicas may need long, and others wait behind it
            (error,) = await outcomes((writing.prepared,))
            writing.prepared = None
            if error is not None:
                del self._writing[(index, transactional_id)]
                raise error
        if not await self.markers.write_all(prepared, writing, most_s):
            return False
        # Should this be lost, the next leader finds the transaction prepared.
        await self._submit_within(
            most_s,
            index,
            lambda shard, token, now_ms: shard.complete(token, transactional_id, prepared, now_ms),
        )
        return True

    async def _submit_within(self, most_s: float, index: int, decide: Decide[TransactionShard]) -> None:
        """Have it decided and written; not acknowledged, if that takes longer."""
        deciding = self._runtime.submit_now(index, decide)
        if not deciding.done():
            await asyncio.wait((deciding,), timeout=most_s)
        if deciding.done():
            deciding.result()

    async def _maybe_new_id(self, index: int, transactional_id: str) -> int:
        """A producer id, if the next step may need one."""
        shard = await self._runtime.look(index)
        if not transactions.needs_producer_id(shard.transactions.get(transactional_id)):
            return NO_PRODUCER_ID
        try:
            return await self._new_producer_id()
        except Unavailable as error:
            raise CoordinatorLoading(str(error)) from error


def _expire(
    shard: TransactionShard, token: Token, now_ms: int, ids: list[str], expiration_ms: int
) -> Effects:
    return shard.expire(token, ids, expiration_ms, now_ms)
