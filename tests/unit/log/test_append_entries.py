"""Entries of Pulsar's transactions in a log: they open the transaction there, and recovery finds it open."""

from pathlib import Path

from anabranch.log.append_entries import append_entries
from anabranch.records.batch import PULSAR_ENTRY, TRANSACTIONAL
from tests.support.logs import batches, crash, marker, open_log_in, put, release_all
from tests.support.topics import send

PRODUCER = (17, 3)


def test_they_carry_the_producer_of_their_transaction(tmp_path: Path) -> None:
    log = open_log_in(tmp_path)
    append_entries(log, [send(0)], 0, 1)
    assert append_entries(log, [send(1, messages=3), send(4)], 0, 1, PRODUCER) == [1, 4]
    append_entries(log, [send(5)], 0, 1)
    headers = [header for header, _ in batches(log)]
    assert [(h.producer_id, h.producer_epoch) for h in headers] == [(-1, -1), PRODUCER, PRODUCER, (-1, -1)]
    assert [bool(h.attributes & TRANSACTIONAL) for h in headers] == [False, True, True, False]
    assert all(h.attributes & PULSAR_ENTRY for h in headers)
    assert log.producers.first_open_transaction == 1
    assert log.producers.has_open_transaction(*PRODUCER)
    release_all()


def test_recovery_finds_them_open_and_their_end_closes_them(tmp_path: Path) -> None:
    log = open_log_in(tmp_path)
    append_entries(log, [send(0)], 0, 1)
    append_entries(log, [send(1)], 0, 1, PRODUCER)
    crash(log)
    log = open_log_in(tmp_path, clean=False)
    assert log.producers.first_open_transaction == 1
    put(log, marker(PRODUCER[0], epoch=PRODUCER[1], commit=False))
    assert log.producers.first_open_transaction is None
    assert [(one.producer_id, one.first_offset) for one in log.aborted_between(0, 10)] == [(17, 1)]
    assert (log.producers.committed, log.producers.aborted, log.producers.open_transactions) == (0, 1, 0)
    release_all()
