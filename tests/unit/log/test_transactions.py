"""The index of aborted transactions: Kafka's bytes, torn entries, and a full disk."""

from pathlib import Path

from anabranch.base.disk import DirectDisk
from anabranch.log import transactions
from anabranch.log.paths import segment_file
from anabranch.log.transactions import AbortedTransaction
from tests.support.crashing_disk import FailingDisk
from tests.support.logs import marker, open_log_in, put, records

ENTRY = AbortedTransaction(7, 1, 5, 6)


def test_the_bytes_are_kafkas(tmp_path: Path) -> None:
    transactions.AbortedTransactions(DirectDisk(), tmp_path, 0).add(ENTRY)
    expected = bytes.fromhex("0000 0000000000000007 0000000000000001 0000000000000005 0000000000000006")
    assert segment_file(tmp_path, 0, ".txnindex").read_bytes() == expected == transactions.encode([ENTRY])


def test_a_torn_entry_is_none(tmp_path: Path) -> None:
    whole = transactions.encode([ENTRY, ENTRY])
    for size in range(len(whole)):
        segment_file(tmp_path, 0, ".txnindex").write_bytes(whole[:size])
        assert transactions.read(DirectDisk(), tmp_path, 0) == [ENTRY] * (size // 34)


def test_on_a_full_disk_an_abort_is_remembered_and_saved_later(tmp_path: Path) -> None:
    disk = FailingDisk()
    log = open_log_in(tmp_path, disk=disk)
    batch = records("x", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    put(log, batch)
    end = marker(7, commit=False)
    disk.room_bytes = len(end)
    put(log, end)
    expected = [AbortedTransaction(7, 0, 1, 2)]
    assert log.aborted_between(0, 2) == expected
    assert transactions.read(disk, tmp_path, 0) == []
    disk.room_bytes = 1 << 20
    log.roll()
    assert transactions.read(disk, tmp_path, 0) == expected


def test_truncation_takes_the_entries_along(tmp_path: Path) -> None:
    log = open_log_in(tmp_path)
    for sequence in range(2):
        put(
            log,
            records("x", producer_id=7, producer_epoch=0, base_sequence=sequence, transactional=True),
        )
        put(log, marker(7, commit=False))
    place = log.active.find(2)
    assert place is not None
    log.active.truncate(place.position, 2)
    assert transactions.read(DirectDisk(), tmp_path, 0) == [AbortedTransaction(7, 0, 1, 2)]
