"""A broker's node: of whom it is refused, of whom it is taken over, and that it comes back with a session."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from anabranch.base.disk import DirectDisk
from anabranch.base.errors import Exists, NotFound, Unavailable
from anabranch.base.ids import BrokerId
from anabranch.client.destinations import Address
from anabranch.cluster.image_watcher import ImageWatcher
from anabranch.cluster.registration import Registration, document_of, is_stale
from anabranch.meta import paths
from anabranch.meta.documents import BrokerDocument, decode, encode
from anabranch.meta.embedded import EmbeddedStore
from anabranch.meta.image import NO_EPOCH, BrokerImage, ClusterImage
from anabranch.meta.session import SessionState
from tests.support.waiting import until

B1 = BrokerId(1)
ME = BrokerImage(
    B1,
    "h",
    9092,
    "rack",
    internal=Address("inside", 9093),
    pulsar=Address("h", 6650),
    http=Address("h", 8080),
    host_id="machine",
    version="1",
    instance="second",
    directory="folder",
)

CONTROLLER = b'{"broker":1}'


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[EmbeddedStore]:
    store = EmbeddedStore.open(tmp_path / "metadata", DirectDisk(4))
    yield store
    await store.close()


async def registration(store: EmbeddedStore) -> tuple[Registration, ImageWatcher]:
    watcher = ImageWatcher(store, ClusterImage(cluster_id="c"))
    await watcher.start()
    return Registration(store, watcher, random.Random(5)), watcher


def test_the_document_says_all_but_id_and_epoch() -> None:
    document = decode(encode(document_of(ME)), BrokerDocument, "/brokers/1")
    assert document == document_of(ME)
    assert document.internal == ME.for_brokers == Address("inside", 9093)
    assert replace(ME, internal=None).for_brokers == Address("h", 9092)


def test_an_old_document_is_read() -> None:
    document = decode(b'{"host":"h","port":1,"rack":null}', BrokerDocument, "/brokers/1")
    assert document == BrokerDocument("h", 1)


@pytest.mark.parametrize(
    ("instance", "directory", "stale"),
    [
        ("first", "folder", True),
        ("second", "folder", True),  # of this very process, in a session that it lost
        ("unheard of", "folder", False),  # a copy of the folder, older than that start
        ("first", "another", False),
        ("first", "", False),
    ],
)
def test_whose_a_node_is(instance: str, directory: str, stale: bool) -> None:
    found = replace(document_of(ME), instance=instance, directory=directory, port=9192)
    assert is_stale(found, ME, {"first"}) is stale


@pytest.mark.parametrize(
    ("host_id", "port", "stale"),
    [("machine", 9092, True), ("another machine", 9092, False), ("machine", 9192, False)],
)
def test_who_had_this_very_port_is_gone(host_id: str, port: int, stale: bool) -> None:
    """Also if its folder went with its disk, so that nothing else tells whose the node is."""
    found = replace(document_of(ME), host_id=host_id, port=port, directory="another", instance="unheard of")
    assert is_stale(found, ME, {"first"}) is stale


def test_without_a_folder_nothing_is_ones_own() -> None:
    nameless = BrokerImage(B1, "h", 1)
    assert nameless.host_id is None
    assert not is_stale(document_of(nameless), nameless, {""})


async def test_the_epoch_rises_with_every_registration(store: EmbeddedStore) -> None:
    epochs = []
    for _ in range(3):
        session = store.new_session()
        mine, watcher = await registration(session)
        await mine.register(ME)
        assert watcher.image.brokers[B1] == replace(ME, epoch=watcher.image.brokers[B1].epoch)
        epochs.append(watcher.image.brokers[B1].epoch)
        await session.close()
    assert NO_EPOCH < epochs[0] < epochs[1] < epochs[2]


async def test_what_an_earlier_start_left_is_taken_over_at_once(store: EmbeddedStore) -> None:
    """Also that it was the controller; its session would hold both for seconds."""
    dead = store.new_session()
    before, watcher = await registration(dead)
    await before.register(replace(ME, instance="first"))
    await dead.create(paths.CONTROLLER, CONTROLLER, ephemeral=True)
    epoch = watcher.image.brokers[B1].epoch
    mine, watcher = await registration(store)
    await mine.register(ME, {"first"})
    assert watcher.image.brokers[B1].instance == "second"
    assert watcher.image.brokers[B1].epoch > epoch
    assert await store.get(paths.CONTROLLER) is None
    await dead.close()
    assert await store.get(paths.broker(B1)) is not None


async def test_a_controller_that_lives_stays(store: EmbeddedStore) -> None:
    dead, other = store.new_session(), store.new_session()
    await (await registration(dead))[0].register(replace(ME, instance="first"))
    await other.create(paths.CONTROLLER, CONTROLLER, ephemeral=True)
    await (await registration(store))[0].register(ME, {"first"})
    assert await store.get(paths.CONTROLLER) is not None
    await dead.close()
    await other.close()


async def test_the_id_of_another_process_is_refused(store: EmbeddedStore) -> None:
    other = store.new_session()
    await (await registration(other))[0].register(replace(ME, directory="another", host_id="another machine"))
    with pytest.raises(Exists, match=r"broker id 1 is in use by another process; set another node\.id"):
        await (await registration(store))[0].register(ME, {"first"})
    await other.close()


class Reopening(EmbeddedStore):
    """A store that opens another session when one is lost, as ZooKeeper's does."""

    refuses = 0

    async def lose_session(self) -> None:
        """Its nodes go; then there is another session."""
        lost = self.session.id
        self._rounds.end_session(lost)
        self.session.become(SessionState.EXPIRED)
        await asyncio.sleep(0)
        self.session.become(SessionState.CONNECTED, self._rounds.open_session())

    async def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        if self.refuses:
            self.refuses -= 1
            raise Unavailable("not yet")
        return await super().create(path, data, ephemeral=ephemeral, sequential=sequential)


async def test_it_registers_again_when_its_session_was_lost(
    store: EmbeddedStore, caplog: pytest.LogCaptureFixture
) -> None:
    reopening = Reopening(store._rounds)
    mine, watcher = await registration(reopening)
    await mine.register(ME)
    epoch = watcher.image.brokers[B1].epoch
    running = asyncio.gather(mine.run(), watcher.run())
    reopening.refuses = 2
    await reopening.lose_session()
    await until(lambda: B1 in watcher.image.brokers and watcher.image.brokers[B1].epoch > epoch)
    assert caplog.text.count("not registered yet") == 2
    running.cancel()
    await reopening.close()


async def test_a_call_that_failed_and_was_carried_out_is_no_obstacle(store: EmbeddedStore) -> None:
    await store.create(paths.broker(B1), encode(document_of(ME)), ephemeral=True)
    mine, watcher = await registration(store)
    await mine.register(ME)
    assert B1 in watcher.image.brokers


async def test_it_gives_way_as_long_as_there_is_a_reason(store: EmbeddedStore) -> None:
    one, watcher = await registration(store)
    with pytest.raises(NotFound):
        await one.give_way(B1, "its disk takes nothing")
    await one.register(ME)
    assert watcher.image.brokers[B1].gives_way, "as it was told before"
    await one.give_way(B1, "it stops")
    await one.lead_again(B1, "its disk takes nothing")
    assert watcher.image.brokers[B1].gives_way
    await one.lead_again(B1, "it stops")
    assert not watcher.image.brokers[B1].gives_way
    assert watcher.image.brokers[B1] == replace(ME, epoch=watcher.image.brokers[B1].epoch)


async def test_a_session_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    """A start that took longer than the session finds the store about to open another."""
    store = Reopening.open(tmp_path / "metadata", DirectDisk(4))
    mine, watcher = await registration(store)
    store.session.become(SessionState.SUSPENDED)
    store.refuses = 1
    registering = asyncio.ensure_future(mine.register(ME))
    await asyncio.sleep(0)
    store.session.become(SessionState.CONNECTED)
    await registering
    assert B1 in watcher.image.brokers
    await store.close()


async def test_a_store_that_refuses_ends_the_start(tmp_path: Path) -> None:
    store = Reopening.open(tmp_path / "metadata", DirectDisk(4))
    mine, _ = await registration(store)
    store.refuses = 1
    with pytest.raises(Unavailable):
        await mine.register(ME)
    await store.close()
