"""Image watcher: keeps the cluster's image in step with the metadata store.

The store says which paths changed; the watcher reads them and swaps the image.

    event "/topics/public/default/orders"  ──> to read again ──> read, build ──> swap, tell

Events and a node's own writes come the same way in, and reading happens one sweep at a time, so the
image can only move forward.  `refresh` makes sure the image shows what a writer has just written,
before the writer answers its client; `run` is the background task that sweeps up what others wrote.

    event MISSED  ──> scan everything, take out what is gone ──> swap, tell

While the store is away the image stays as it is, and `run` tries again.  A document that cannot be read is no
reason to stop for a broker that runs, since all of them would: what was known of it stays.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from anabranch.base.errors import Corrupt, Unavailable
from anabranch.cluster.builder import ImageBuilder
from anabranch.meta import paths
from anabranch.meta.image import ClusterImage, ImageChange
from anabranch.meta.store import Event, EventKind, MetadataStore, Versioned

log = logging.getLogger(__name__)

_READ_AGAIN_S = 0.2
_READS_AT_ONCE = 256
_DOCUMENTS_A_TURN = 100  # a topic of 100 partitions takes 0.2 ms

Subscriber = Callable[[ImageChange], None]


class ImageWatcher:
    def __init__(self, store: MetadataStore, image: ClusterImage) -> None:
        self.image = image
        self._store = store
        self._subscribers: list[Subscriber] = []
        self._unread: dict[str, None] = {}  # paths, in the order in which they changed
        self._has_missed = False  # what changed, nobody can say
        self._known: set[str] = set()  # paths that have a document
        self._sweeping = asyncio.Lock()
        self._work = asyncio.Event()
        self.on_read_anew: Callable[[], None] = lambda: None
        """Called when the image shows all that is there, in the session that the store has now."""

    async def start(self) -> None:
        """Watch, then read everything, so that nothing falls between.  Corrupt if a document is damaged."""
        await self._store.watch(paths.ROOT, self._changed)
        builder = ImageBuilder(self.image)
        found = await self._read_all(builder)
        for path, value in found:
            builder.apply(path, value.data, value.czxid)
        self.image = builder.build()

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    async def refresh(self, *changed: str) -> None:
        """Return once the image shows what is at these paths, or something newer."""
        self._unread.update(dict.fromkeys(changed))
        await asyncio.sleep(0)  # writers whose answers came with ours are about to ask too: one sweep for all
        await self._sweep()

    async def run(self) -> None:
        while True:
            await self._work.wait()
            try:
                await self._sweep()
            except Unavailable:  # the session's log says why
                await asyncio.sleep(_READ_AGAIN_S)

    async def reread(self) -> None:
        """Return once the image shows all that is there: there may have been changes without events."""
        self._has_missed = True
        await self._sweep()

    def _changed(self, event: Event) -> None:
        if event.kind is EventKind.MISSED:
            self._has_missed = True
        else:
            self._unread[event.path] = None
        self._work.set()

    async def _sweep(self) -> None:
        async with self._sweeping:
            self._work.clear()
            changed, self._unread = self._unread, {}
            has_missed, self._has_missed = self._has_missed, False
            if not changed and not has_missed:
                return
            builder = ImageBuilder(self.image)
            session = self._store.session.id if has_missed else None
            try:
                if has_missed:
                    for number, (path, value) in enumerate(await self._read_all(builder), 1):
                        _apply(builder, path, value)
                        if number % _DOCUMENTS_A_TURN == 0:
                            await asyncio.sleep(0)
                else:
                    await self._read(builder, list(changed))
            except BaseException:
                self._unread = changed | self._unread  # cancelled, or the store is away: not seen yet
                self._has_missed |= has_missed
                self._work.set()
                raise
            if builder.changed:
                self._swap(builder.change())
            if has_missed and self._store.session.id == session:
                self.on_read_anew()

    async def _read(self, builder: ImageBuilder, changed: Sequence[str]) -> None:
        found = zip(changed, await self._get(changed), strict=True)
        for number, (path, value) in enumerate(found, 1):
            _apply(builder, path, value)
            if value is None:
                self._known.discard(path)
            else:
                self._known.add(path)
            if number % _DOCUMENTS_A_TURN == 0:
                await asyncio.sleep(0)

    async def _get(self, wanted: Sequence[str]) -> list[Versioned | None]:
        """Several on their way at a time: a broker that goes changes the documents of a thousand topics."""
        if len(wanted) == 1:
            return [await self._store.get(wanted[0])]
        found: list[Versioned | None] = []
        for start in range(0, len(wanted), _READS_AT_ONCE):
            some = wanted[start : start + _READS_AT_ONCE]
            found += await asyncio.gather(*map(self._store.get, some))
        return found

    async def _read_all(self, builder: ImageBuilder) -> Sequence[tuple[str, Versioned]]:
        """All that is there, to be applied; what is not there any more is taken out."""
        found = await self._store.scan(paths.ROOT)
        there = {path for path, _ in found}
        for path in self._known - there:
            _apply(builder, path, None)
        self._known = there
        return found

    def _swap(self, change: ImageChange) -> None:
        self.image = change.new
        failures: list[Exception] = []
        for subscriber in tuple(self._subscribers):
            try:
                subscriber(change)
            except Exception as error:  # noqa: BLE001  the others must hear of the image all the same
                failures.append(error)
        if failures:
            raise failures[0]


def _apply(builder: ImageBuilder, path: str, value: Versioned | None) -> None:
    try:
        if value is None:
            builder.apply(path, None)
        else:
            builder.apply(path, value.data, value.czxid)
    except Corrupt as error:
        log.error("%s; it is passed over until it is written anew", error)
