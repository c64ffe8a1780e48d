"""Whose a data folder is: claimed once, refused to everybody else."""

from pathlib import Path

import pytest

from anabranch.base.disk import DirectDisk
from anabranch.base.errors import Corrupt, Invalid
from anabranch.base.ids import BrokerId
from anabranch.partition.meta_properties import (
    META_PROPERTIES,
    MetaProperties,
    check_broker,
    claim_data_folder,
)

DISK = DirectDisk(4)
MINE = MetaProperties("the-cluster", BrokerId(1), "the-folder")
# As Apache Kafka's tools write it.
KAFKAS = b"#\n#Wed Nov 18 19:00:00 UTC 2026\nnode.id=1\ndirectory.id=d\nversion=1\ncluster.id=the-cluster\n"


def test_a_new_folder_is_claimed_and_stays_so(tmp_path: Path) -> None:
    check_broker(DISK, tmp_path, BrokerId(1))
    assert claim_data_folder(DISK, tmp_path, MINE) == MINE
    assert (tmp_path / META_PROPERTIES).read_text().splitlines() == [
        "version=1",
        "cluster.id=the-cluster",
        "node.id=1",
        "directory.id=the-folder",
        "anabranch.format=1",
    ]
    check_broker(DISK, tmp_path, BrokerId(1))
    assert claim_data_folder(DISK, tmp_path, MINE._replace(directory_id="not this")) == MINE


def test_another_broker_is_refused(tmp_path: Path) -> None:
    claim_data_folder(DISK, tmp_path, MINE)
    with pytest.raises(Invalid, match=f"{tmp_path} belongs to broker 1, and node.id is 2: set node.id=1"):
        check_broker(DISK, tmp_path, BrokerId(2))


def test_another_cluster_is_refused(tmp_path: Path) -> None:
    claim_data_folder(DISK, tmp_path, MINE)
    with pytest.raises(Invalid, match=r"belongs to cluster the-cluster, .* cluster another"):
        claim_data_folder(DISK, tmp_path, MINE._replace(cluster_id="another"))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (KAFKAS, "anabranch.format 'none'"),
        (KAFKAS.replace(b"version=1", b"version=0"), "version '0'"),
        (KAFKAS + b"anabranch.format=2\n", r"anabranch.format '2', this version of Anabranch uses 1"),
        (b"", "version 'none'"),
    ],
)
def test_another_format_is_refused(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / META_PROPERTIES
    path.write_bytes(content)
    with pytest.raises(Invalid, match=f"{path} says {sentence}"):
        check_broker(DISK, tmp_path, BrokerId(1))
    assert path.read_bytes() == content


def test_comments_and_other_properties_are_passed_over(tmp_path: Path) -> None:
    more = b"\n! more\n  anabranch.format = 1 \nlater: on\n"
    (tmp_path / META_PROPERTIES).write_bytes(KAFKAS + more)
    check_broker(DISK, tmp_path, BrokerId(1))
    assert claim_data_folder(DISK, tmp_path, MINE).directory_id == "d"


@pytest.mark.parametrize(
    "content",
    [
        KAFKAS.replace(b"node.id=1", b"node.id=one") + b"anabranch.format=1\n",
        KAFKAS.replace(b"cluster.id=", b"cluster=") + b"anabranch.format=1\n",
        KAFKAS + b"anabranch.format=1\ngarbage\n",
        b"\xff\xfe",
    ],
)
def test_damage_is_no_reason_to_go_on(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / META_PROPERTIES
    path.write_bytes(content)
    with pytest.raises(Corrupt, match=f"{path} .*backup"):
        check_broker(DISK, tmp_path, BrokerId(1))


def test_partitions_without_an_owner_are_refused(tmp_path: Path) -> None:
    (tmp_path / "topics").mkdir()
    with pytest.raises(Invalid, match=f"{tmp_path} has partitions but no meta.properties"):
        check_broker(DISK, tmp_path, BrokerId(1))
