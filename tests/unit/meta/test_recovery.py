"""Reading a journal back after a crash, and refusing one that no crash explains."""

import logging
from pathlib import Path

import pytest

from anabranch.base.disk import DirectDisk
from anabranch.base.errors import Corrupt
from anabranch.meta.journal import FIRST_LINE, FRAME, frame_of, whole_journal
from anabranch.meta.recovery import recover
from anabranch.meta.tree import Change, Count, Remove, Reserve, Set, Tree
from tests.support.metadata import content

STEPS: list[list[Change]] = [
    [Set("/a", b"", 0, 1), Set("/a/b", b"one", 0, 1)],
    [Set("/a/b", b"two", 1, 1), Set("/c", b"x" * 100, 0, 1)],
    [Remove("/a/b"), Count("/a", 7), Reserve(50)],
    [Set("/d", bytes(range(256)), 0, 1)],
]


def load(path: Path) -> Tree:
    journal, tree = recover(path, DirectDisk(4))
    journal.close()
    return tree


def trees() -> list[Tree]:
    """The tree after each number of steps."""
    found = [Tree()]
    for step in STEPS:
        tree = found[-1].copy()
        for change in step:
            tree.apply(change)
        found.append(tree)
    return found


def written(path: Path) -> tuple[bytes, list[int]]:
    """A journal of all steps, and where each ends."""
    content = FIRST_LINE
    ends = [len(content)]
    for step in STEPS:
        content += frame_of(step)
        ends.append(len(content))
    path.write_bytes(content)
    return content, ends


def same(tree: Tree, other: Tree) -> bool:
    return tree.changes() == other.changes() and tree.durable_bytes == other.durable_bytes


def test_a_new_journal_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    assert len(load(path)) == 0
    assert path.read_bytes() == FIRST_LINE
    assert len(load(path)) == 0


def test_all_steps_come_back(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    written(path)
    tree = load(path)
    assert same(tree, trees()[-1])
    assert content(tree.get("/d")) == (bytes(range(256)), 0)
    assert tree.next_number("/a") == 7
    assert tree.next_zxid == 51


def test_a_file_cut_anywhere_gives_a_prefix(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "journal"
    content, ends = written(path)
    expected = trees()
    for cut in range(len(FIRST_LINE), len(content)):
        path.write_bytes(content[:cut])
        steps = sum(end <= cut for end in ends) - 1
        with caplog.at_level(logging.WARNING):
            caplog.clear()
            assert same(load(path), expected[steps]), cut
        assert path.stat().st_size == ends[steps]
        assert bool(caplog.records) == (cut != ends[steps])


@pytest.mark.parametrize("filler", [b"\0", b"\xff", b"J"])
def test_a_tail_that_was_never_written_is_cut_off(tmp_path: Path, filler: bytes) -> None:
    """After a power cut a file may have its new length without its new content."""
    path = tmp_path / "journal"
    content, ends = written(path)
    for cut in range(ends[-2], ends[-1]):
        path.write_bytes(content[:cut] + filler * (len(content) - cut + 50))
        if content[:cut] + filler * (len(content) - cut) == content:
            continue
        assert same(load(path), trees()[-2]), cut


def test_a_flipped_bit_before_an_intact_frame_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    content, ends = written(path)
    for at in range(len(FIRST_LINE), ends[-2]):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :])
        with pytest.raises(Corrupt) as caught:
            load(path)
        frame_start = max(end for end in ends if end <= at)
        assert str(path) in str(caught.value)
        assert f"truncate -s {frame_start} {path}" in str(caught.value)


def test_the_advice_helps(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    content, ends = written(path)
    path.write_bytes(content[: ends[1] + 20] + b"#" + content[ends[1] + 21 :])
    with pytest.raises(Corrupt, match=f"truncate -s {ends[1]} "):
        load(path)
    path.write_bytes(path.read_bytes()[: ends[1]])
    assert same(load(path), trees()[1])


@pytest.mark.parametrize("content", [b"", FIRST_LINE[:5], b"anabranch metadata x\n", b"\0" * 100])
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "journal"
    path.write_bytes(content)
    with pytest.raises(Corrupt, match=f"{path}.*backup"):
        load(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("format", [1, 3])
def test_a_journal_of_another_format_is_refused_by_its_number(tmp_path: Path, format: int) -> None:
    path = tmp_path / "journal"
    content = b"anabranch metadata %d\nanything" % format
    path.write_bytes(content)
    with pytest.raises(Corrupt, match=f"{path} is a metadata journal of format {format}, .* format 2 only"):
        load(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "changes",
    [
        [Remove("/not/there")],
        [Set("/a/b", b"", 0, 1)],
        [Set("/a", b"", 0, 1), Set("/a/b", b"", 0, 1), Remove("/a")],
    ],
)
def test_changes_that_do_not_fit_are_refused(tmp_path: Path, changes: list[Change]) -> None:
    path = tmp_path / "journal"
    path.write_bytes(FIRST_LINE + frame_of(changes))
    with pytest.raises(Corrupt, match=str(path)):
        load(path)


def test_a_payload_that_is_no_list_of_changes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(FIRST_LINE + frame_of("surprise"))  # type: ignore[arg-type]
    with pytest.raises(Corrupt, match="truncate -s 21 "):
        load(path)


def test_a_lying_length_reads_nothing_beyond_the_file(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(FIRST_LINE + FRAME.pack(b"\xffJ\xfe\n", 0xFFFFFFFF, 0) + b"x")
    assert len(load(path)) == 0
    assert path.read_bytes() == FIRST_LINE


def test_a_rewrite_that_a_crash_stopped_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    written(path)
    beside = tmp_path / "journal.tmp"
    beside.write_bytes(b"half a journal")
    assert same(load(path), trees()[-1])
    assert not beside.exists()


def test_a_whole_journal_is_its_tree(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    tree = Tree()
    tree.apply(Set("/n", b"", 0, 1))
    for i in range(2000):
        tree.apply(Set(f"/n/{i}", b"%d" % i, i, 1 + i))
    tree.apply(Set("/n/here", b"ephemeral", 0, 3000, owner=7))
    tree.apply(Count("/n", 3))
    path.write_bytes(whole_journal(tree.changes()))
    loaded = load(path)
    assert same(loaded, tree)
    assert len(loaded) == len(tree) - 1
