"""The compacted view: what is in it, how it grows, what a crash at every step leaves of it."""

import itertools
import random
import shutil
from pathlib import Path

import pytest

from anabranch.base.disk import DirectDisk
from anabranch.base.errors import NotFound, TooLarge
from anabranch.log.cleaner import make_view_job
from anabranch.log.compacted import new_folder
from anabranch.log.compaction_view import write_view
from anabranch.log.config_broker import CleanerConfig
from anabranch.log.local_log import LocalLog
from anabranch.log.paths import COMPACTED
from tests.support.compaction import keyed, view_now
from tests.support.crashing_disk import Crash, CrashingDisk
from tests.support.logs import crash, marker, open_log_in, put, records


def seen(log: LocalLog) -> dict[str, str | None]:
    """What a reader of the view and the log behind it has in the end."""
    state: dict[str, str | None] = {}
    found = [] if log.view is None else keyed(log.view.log)
    horizon = 0 if log.view is None else log.view.horizon
    found += [each for each in keyed(log) if each[0] >= horizon]
    for _, key, value in found:
        state[key] = value
        if value is None:
            del state[key]
    return state


@pytest.fixture
def log(tmp_path: Path) -> LocalLog:
    log = open_log_in(tmp_path, segment_bytes=400)
    for i in range(20):
        put(log, records(str(i), keys=[str(i % 3)]))
    return log


def test_the_last_of_every_key_of_the_active_segment_too(log: LocalLog) -> None:
    made = view_now(log)
    assert log.view is not None
    assert keyed(log.view.log) == [(17, "2", "17"), (18, "0", "18"), (19, "1", "19")]
    assert (made.horizon, made.entries, made.last_offset, made.removed) == (20, 3, 19, 17)
    assert len(keyed(log)) == 20
    header, _ = log.view.last_batch() or pytest.fail("it has messages")
    assert header.last_offset == 19


def test_the_next_one_is_made_from_it_and_what_came_since(log: LocalLog) -> None:
    view_now(log)
    put(log, records("new", "gone", keys=["1", "3"]))
    put(log, records(None, None, keys=["3", "0"]))
    made = view_now(log)
    assert log.view is not None
    assert keyed(log.view.log) == [(17, "2", "17"), (20, "1", "new")]
    assert made.horizon == 24


def test_it_has_what_the_log_dropped(log: LocalLog) -> None:
    view_now(log)
    log.drop(log.segments[:-1])
    log.advance_start(log.segments[0].base_offset)
    put(log, records("new", keys=["1"]))
    view_now(log)
    assert seen(log) == {"0": "18", "1": "new", "2": "17"}


def test_aborted_transactions_are_not_in_it_and_open_ones_end_it(log: LocalLog) -> None:
    fields = {"producer_id": 7, "producer_epoch": 0, "transactional": True, "base_sequence": 0}
    put(log, records("aborted", keys=["1"], **fields))
    put(log, marker(7, commit=False))
    fields["producer_id"] = 8
    put(log, records("committed", keys=["2"], **fields))
    put(log, marker(8, commit=True))
    fields["producer_id"] = 9
    put(log, records("undecided", keys=["0"], **fields))
    put(log, records("behind", keys=["0"]))
    made = view_now(log)
    assert made.horizon == 24
    assert log.view is not None
    assert [value for _, _, value in keyed(log.view.log)] == ["18", "19", "committed"]


@pytest.mark.parametrize("keyless", [False, True])
def test_messages_without_a_key(log: LocalLog, keyless: bool) -> None:
    put(log, records("nobody's", keys=[None]))
    made = view_now(log, keyless=keyless)
    assert made.entries == 3 + keyless


def test_nothing_left(tmp_path: Path) -> None:
    log = open_log_in(tmp_path)
    put(log, records("1", None, keys=["a", "a"]))
    assert view_now(log).last_offset == -1
    assert log.view is not None
    assert keyed(log.view.log) == []
    assert log.view.last_batch() is None
    assert log.view.log.read(0, 1 << 20, log.view.horizon, whole_first=True) is None
    put(log, records("2", keys=["a"]))
    view_now(log)
    assert seen(log) == {"a": "2"}


def test_in_several_rounds_when_the_table_of_keys_is_small(tmp_path: Path) -> None:
    log = open_log_in(tmp_path, segment_bytes=1000)
    for i in range(300):
        put(log, records(str(i), keys=[str(i % 100)]))
    horizons = []
    while not horizons or horizons[-1] < 300:
        horizons.append(view_now(log, end=300, dedupe_bytes=64 * 24).horizon)
    assert len(horizons) > 2
    assert horizons == sorted(set(horizons))
    assert log.view is not None
    assert sorted(int(value or "") for _, _, value in keyed(log.view.log)) == list(range(200, 300))


def test_a_batch_with_more_keys_than_the_table_is_said(tmp_path: Path) -> None:
    log = open_log_in(tmp_path)
    put(log, records(*["v"] * 100, keys=[str(i) for i in range(100)]))
    with pytest.raises(TooLarge, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        view_now(log, dedupe_bytes=64 * 24)


def test_segments_of_a_view(tmp_path: Path) -> None:
    log = open_log_in(tmp_path, segment_bytes=400)
    for i in range(40):
        put(log, records(str(i), keys=[str(i)]))
    view_now(log)
    assert log.view is not None
    assert len(log.view.bases) > 3
    assert [offset for offset, *_ in keyed(log.view.log)] == list(range(40))
    log.close()
    again = open_log_in(tmp_path, segment_bytes=400)
    assert again.view is not None
    assert [offset for offset, *_ in keyed(again.view.log)] == list(range(40))


def test_a_segment_that_is_gone_is_said(log: LocalLog) -> None:
    target = new_folder(DirectDisk(), log.folder)
    job = make_view_job(log, None, target, log.log_end, CleanerConfig(), keeps_keyless=False)
    log.drop(log.segments[:1])
    with pytest.raises(NotFound):
        write_view(DirectDisk(), job, lambda size: None)


# --- after a crash, and with things that are not what they were


def test_cut_off_at_every_step(tmp_path: Path) -> None:
    original = open_log_in(tmp_path / "original", segment_bytes=400)
    for i in range(10):
        put(original, records(str(i), keys=[str(i % 3)]))
    view_now(original)
    for i in range(10, 20):
        put(original, records(str(i), keys=[str(i % 4)]))
    put(original, records(None, keys=["0"]))
    expected = seen(original)
    original.close()
    horizons = set()
    for steps in itertools.count():
        folder = tmp_path / str(steps)
        shutil.copytree(tmp_path / "original", folder)
        disk = CrashingDisk()
        log = open_log_in(folder, segment_bytes=400, disk=disk)
        disk.arm(steps)
        finished = True
        try:
            view_now(log, disk)
        except Crash:
            finished = False
        crash(log)
        log = open_log_in(folder, segment_bytes=400, clean=False)
        assert seen(log) == expected
        assert log.view is not None
        horizons.add(log.view.horizon)
        assert len(list((folder / COMPACTED).iterdir())) == 2, "the view that counts, and which one it is"
        log.close()
        shutil.rmtree(folder)
        if finished:
            break
    assert horizons == {10, 21}


def test_a_view_ahead_of_its_log_is_given_up(log: LocalLog, tmp_path: Path) -> None:
    view_now(log)
    log.close()
    for path in tmp_path.glob("*.*"):
        path.unlink()
    again = open_log_in(tmp_path, clean=False)
    assert again.view is None
    assert list((tmp_path / COMPACTED).iterdir()) == []


@pytest.mark.parametrize("damage", ["current", "file", "gone"])
def test_a_damaged_view_is_given_up(log: LocalLog, tmp_path: Path, damage: str) -> None:
    view_now(log)
    log.close()
    current = tmp_path / COMPACTED / "current"
    (segment,) = (tmp_path / COMPACTED).glob("*/*.log")
    if damage == "current":
        current.write_bytes(b"{nonsense")
    elif damage == "file":
        segment.write_bytes(b"short")
    else:
        segment.unlink()
    again = open_log_in(tmp_path)
    assert again.view is None
    assert len(keyed(again)) == 20
    view_now(again)
    assert seen(again) == {"0": "18", "1": "19", "2": "17"}


def test_against_a_dictionary(tmp_path: Path) -> None:
    chance = random.Random(11)
    log = open_log_in(tmp_path, segment_bytes=500)
    state: dict[str, str | None] = {}
    for step in range(300):
        if chance.random() < 0.06:
            view_now(log, dedupe_bytes=chance.choice((64 * 24, 1 << 20)))
        elif chance.random() < 0.05 and log.view is not None and len(log.segments) > 1:
            if log.segments[0].end_offset <= log.view.horizon:
                log.advance_start(log.segments[0].end_offset)
                log.drop(log.segments[:1])
        else:
            keys = [str(chance.randrange(60)) for _ in range(chance.randint(1, 4))]
            values = [None if chance.random() < 0.2 else f"{step}" for _ in keys]
            put(log, records(*values, keys=keys))
            for key, value in zip(keys, values, strict=True):
                state[key] = value
        assert seen(log) == {key: value for key, value in state.items() if value is not None}
