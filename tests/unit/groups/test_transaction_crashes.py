"""The broker dies at every step of a transaction: it is there as a whole or not at all, and the next works.

A step is a change of a file.  The transaction writes to two partitions and commits an offset; it begins with
a new transactional id, or with one whose instance before left a transaction open.
"""

from pathlib import Path

import pytest

from anabranch.groups.effects import Producer
from tests.support.crashing_disk import Crash, CrashingDisk
from tests.support.transactions import Transacting

ID = "copy"
OUT, OTHER = ("out", 0), ("out", 1)


class Told:
    """What the client was told before the broker died."""

    ended = False


async def transact(node: Transacting, told: Told, *, commit: bool, version: int) -> None:
    me = await node.introduce(ID)
    await node.write(ID, me, OUT, "a", version=version)
    await node.write(ID, me, OTHER, "b", version=version)
    await node.commit_offset(ID, me, "g", 5, version=version)
    await node.end(ID, me, commit=commit, version=version)
    told.ended = True


async def left_open(folder: Path) -> None:
    """A transaction that an earlier instance began and did not end."""
    node = Transacting(folder)
    me = await node.introduce(ID)
    await node.write(ID, me, OUT, "left")
    node.kill()


async def steps_of(folder: Path, *, commit: bool, version: int, resumed: bool) -> int:
    """How many steps the transaction has when nothing goes wrong."""
    if resumed:
        await left_open(folder)
    disk = CrashingDisk()
    node = Transacting(folder, disk)
    disk.arm(1 << 60)
    await transact(node, Told(), commit=commit, version=version)
    node.kill()
    return disk.steps


@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("commit", [True, False])
async def test_a_kill_at_every_step(tmp_path: Path, commit: bool, version: int, resumed: bool) -> None:
    steps = await steps_of(tmp_path / "counted", commit=commit, version=version, resumed=resumed)
    assert steps > 10
    outcomes = set()
    for step in range(steps):
        folder = tmp_path / str(step)
        if resumed:
            await left_open(folder)
        disk, told = CrashingDisk(), Told()
        node = Transacting(folder, disk)
        disk.arm(step)
        with pytest.raises(Crash):
            await transact(node, told, commit=commit, version=version)
        node.kill()
        outcomes.add(await survived(folder, told, commit=commit))
    assert outcomes == ({True, False} if commit else {False})


async def survived(folder: Path, told: Told, *, commit: bool) -> bool:
    """Start again and check.  Whether the transaction is there."""
    node = Transacting(folder)
    node._next_id = 500
    await node.look_after()
    successor = await node.introduce(ID)
    seen = (node.committed(*OUT), node.committed(*OTHER), await node.offset("g"))
    assert seen in ((["a"], ["b"], 5), ([], [], -1)), "half a transaction"
    is_there = seen[2] == 5
    assert not told.ended, "the last step comes after the answer"
    assert commit or not is_there
    await next_transaction_works(node, successor)
    assert node.committed(*OUT) == [*seen[0], "next"]
    node.kill()
    return is_there


async def next_transaction_works(node: Transacting, me: Producer) -> None:
    for place in (OUT, OTHER):
        partition = node.host.partition(*place)
        assert partition.last_stable == partition.log_end, "a transaction hangs"
    await node.write(ID, me, OUT, "next")
    await node.commit_offset(ID, me, "g", 6)
    await node.end(ID, me, commit=True)
    assert await node.offset("g") == 6
