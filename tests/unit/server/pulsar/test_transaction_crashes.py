"""The broker dies at every step of a Pulsar transaction: afterwards it is there as a whole or not at all.

A step is a change of a file; what is on the disk before it is kept, and a broker started on that.  The
transaction sends to two topics and acknowledges messages of a third, one of them in a batch.  Whatever the
client was told holds:

    told that it has ended      it has, without anybody's help
    not told                    the client asks again, and it ends so; or another aborts it: all or nothing
    still sending               it is open, and aborted
"""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from anabranch.groups.transaction_ids import TxnId
from anabranch.groups.transactions import PREPARED
from anabranch.wire.pulsar import commands_pb2 as pb
from tests.support.crashing_disk import CrashingDisk
from tests.support.pulsar_transactions import Refused, Transacting
from tests.support.pulsar_wire import PulsarBroker, pulsar_broker

SHARED = 1
ENABLED = {"transactionCoordinatorEnabled": "true"}
IN, FIRST, SECOND = "in", "first", "second"


class Moment(NamedTuple):
    """What was on the disk, and what the client knew."""

    folder: Path
    txn: TxnId | None
    is_ending: bool
    is_ended: bool


class Recording(CrashingDisk):
    """Keeps a copy of the folder before each step."""

    def __init__(self, data: Path, copies: Path) -> None:
        super().__init__()
        self._data = data
        self._copies = copies
        self.moments: list[Moment] = []
        self.txn: TxnId | None = None
        self.is_recording = self.is_ending = self.is_ended = False

    def _step(self) -> None:
        if self.is_recording:
            folder = self._copies / str(len(self.moments))
            shutil.copytree(self._data, folder)
            self.moments.append(Moment(folder, self.txn, self.is_ending, self.is_ended))


@asynccontextmanager
async def recorded(folder: Path) -> AsyncIterator[tuple[PulsarBroker, Recording]]:
    disk = Recording(folder / "data", folder / "copies")
    async with pulsar_broker(folder / "data", disk, **ENABLED) as broker:
        yield broker, disk


async def before(broker: PulsarBroker) -> Transacting:
    who = Transacting(await broker.connect())
    for id, topic in ((1, IN), (2, FIRST), (3, SECOND)):
        await who.produce(id, topic)
    await who.consume(4, IN, kind=SHARED)
    await who.plain(1, b"a")
    await who.plain(1, b"b", b"c")
    for topic, id in ((FIRST, 5), (SECOND, 6)):
        await who.consume(id, topic, kind=SHARED, permits=0)
    return who


async def transact(who: Transacting, disk: Recording, *, commit: bool) -> None:
    single, batch = (await who.received())[0], (await who.received())[0]
    disk.is_recording = True
    txn = await who.begin()
    disk.txn = txn
    await who.send(txn, 2, b"x")
    await who.send(txn, 3, b"y", b"z")
    await who.ack(txn, 4, single)
    await who.ack(txn, 4, pb.MessageId(ledger_id=0, entry_id=batch.entry_id, ack_set=[0b01]))
    disk.is_ending = True
    await who.end(txn, commit=commit)
    disk.is_ended = True
    await who.end(await who.begin(), commit=False)  # more steps, after the answer
    disk.is_recording = False


async def seen(broker: PulsarBroker, topic: str) -> list[tuple[bytes, tuple[int, ...]]]:
    """What a consumer of the subscription gets: last bytes, and which messages of a batch are left."""
    who = Transacting(await broker.connect())
    await who.consume(9, topic, kind=SHARED)
    await who.produce(8, topic)
    await who.plain(8, b"!")
    found = []
    while True:
        said = await who.client.message()
        assert said.entry is not None
        value = bytes(said.entry[-1:])
        if value == b"!":
            return found
        found.append((value, tuple(said.command.message.ack_set)))


DONE = ([(b"c", (0b01,))], [(b"x", ())], [(b"z", ())])
NOTHING = ([(b"a", ()), (b"c", ())], [], [])


async def outcome(moment: Moment, *, commit: bool) -> object:
    """Start on what was there, and end the transaction if that is not known to have happened."""
    async with pulsar_broker(moment.folder, **ENABLED) as broker:
        who = Transacting(await broker.connect())
        await broker.node.parts.transactions.loaded()
        if moment.txn is not None and not moment.is_ended:
            with suppress(Refused):  # it may have ended, or be on its way to the other end
                await who.end(moment.txn, commit=commit)
        for txn in broker.node.parts.txns:  # one that was begun, though nobody was told
            await who.end(txn, commit=False)
        for _ in range(1000):
            await asyncio.sleep(0)
        assert not any(one.state in PREPARED for one in broker.node.parts.transactions.all().values())
        return tuple([await seen(broker, topic) for topic in (IN, FIRST, SECOND)])


@pytest.mark.parametrize("commit", [True, False])
async def test_a_kill_at_every_step(tmp_path: Path, commit: bool) -> None:
    async with recorded(tmp_path) as (broker, disk):
        await transact(await before(broker), disk, commit=commit)
    assert len(disk.moments) > 10
    decided = []
    for moment in disk.moments:
        if moment.is_ending:
            again = await outcome(moment._replace(folder=_copy(moment)), commit=commit)
            assert again == (DONE if commit else NOTHING), moment
        if not moment.is_ended:
            aborted = await outcome(moment, commit=False)
            assert aborted in ((DONE, NOTHING) if moment.is_ending else (NOTHING,)), moment
            decided.append(aborted == DONE)
    assert decided == sorted(decided)  # once it is decided it stays so
    assert (True in decided) == commit


def _copy(moment: Moment) -> Path:
    folder = moment.folder.with_name(f"{moment.folder.name}-again")
    shutil.copytree(moment.folder, folder)
    return folder
