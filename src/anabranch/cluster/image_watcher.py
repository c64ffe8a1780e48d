"""Image watcher: keeps the cluster's image in step with the metadata store.

The store says which paths changed; the watcher reads them and swaps the image.

    event "/topics/public/default/orders"  ──> to read again ──> read, build ──> swap, tell

Events and a node's own writes come the same way in, and reading happens one sweep at a time, so the
image can only move forward.  `refresh` makes sure the image shows what a writer has just written,
before the writer answers its client; `run` is the background task that sweeps up what others wrote.
"""

import asyncio
from collections.abc import Callable, Sequence

from anabranch.cluster.builder import ImageBuilder
from anabranch.meta import paths
from anabranch.meta.image import ClusterImage, ImageChange
from anabranch.meta.store import Event, MetadataStore, Versioned

_READS_AT_ONCE = 256

Subscriber = Callable[[ImageChange], None]


class ImageWatcher:
    def __init__(self, store: MetadataStore, image: ClusterImage) -> None:
        self.image = image
        self._store = store
        self._subscribers: list[Subscriber] = []
        self._unread: dict[str, None] = {}  # paths, in the order in which they changed
        self._sweeping = asyncio.Lock()
        self._work = asyncio.Event()

    async def start(self) -> None:
        """Watch, then read everything, so that nothing falls between."""
        await self._store.watch(paths.ROOT, self._changed)
        builder = ImageBuilder(self.image)
        for path, value in await self._store.scan(paths.ROOT):
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
            await self._sweep()

    def _changed(self, event: Event) -> None:
        self._unread[event.path] = None
        self._work.set()

    async def _sweep(self) -> None:
        async with self._sweeping:
            self._work.clear()
            changed, self._unread = self._unread, {}
            if not changed:
                return
            builder = ImageBuilder(self.image)
            try:
                for path, value in zip(changed, await self._read(list(changed)), strict=True):
                    if value is None:
                        builder.apply(path, None)
                    else:
                        builder.apply(path, value.data, value.czxid)
            except BaseException:
                self._unread = changed | self._unread  # cancelled, or the store is away: not seen yet
                self._work.set()
                raise
            if builder.changed:
                self._swap(builder.change())

    async def _read(self, wanted: Sequence[str]) -> list[Versioned | None]:
        """Several on their way at a time: a broker that goes changes the documents of a thousand topics."""
        if len(wanted) == 1:
            return [await self._store.get(wanted[0])]
        found: list[Versioned | None] = []
        for start in range(0, len(wanted), _READS_AT_ONCE):
            some = wanted[start : start + _READS_AT_ONCE]
            found += await asyncio.gather(*map(self._store.get, some))
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
