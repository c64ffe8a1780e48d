"""Records of offsets and groups: as Kafka writes them, and read at every version."""

from uuid import UUID

import pytest

from anabranch.base.errors import Corrupt, TooLarge
from anabranch.groups.records import (
    CommittedOffset,
    GroupMetadata,
    MemberMetadata,
    OffsetKey,
    read_group,
    read_group_key,
    read_offset,
    read_offset_key,
    write_group,
    write_group_key,
    write_offset,
    write_offset_key,
)

MEMBER = MemberMetadata("m-1", "i-1", "app", "/127.0.0.1", 300_000, 45_000, b"\x00\x01sub", b"asg")
GROUP = GroupMetadata("consumer", 7, "range", "m-1", 1_700_000_000_000, (MEMBER,))

# Found in the log of an Apache Kafka 4.3.1 after commits and a join by real clients.
KAFKA_KEY = bytes.fromhex("0001 0006 67312d706179 0009 67312d6f7264657273 00000003")
KAFKA_OFFSET = bytes.fromhex(
    "0004 0000000000000005 00000002 02 6d 000001a1e09872cd 01 00 10 29b13ffa6a9b49719c41a6c20e652811"
)
KAFKA_OFFSET_WITH_RETENTION = bytes.fromhex("0001 0000000000000006 0001 6d 000001a1e09872da 000001a1e5beceda")
KAFKA_GROUP_KEY = bytes.fromhex("0002 0006 67312d677270")
KAFKA_NEW_GROUP = bytes.fromhex("0003 0000 00000000 ffff ffff 000001a1e098ab51 00000000")
KAFKA_GROUP = bytes.fromhex(
    "0003 0008 636f6e73756d6572 00000001 0005 72616e6765"
    "0028 692d312d32633864313438662d336163352d343832392d613761392d663663653436386532333461 000001a1e098b710"
    "00000001 0028 692d312d32633864313438662d336163352d343832392d613761392d663663653436386532333461"
    "0003 692d31 0003 617070 000a 2f3132372e302e302e31 000493e0 0000afc8"
    "0000001f 000300000001000967312d6f72646572730000000000000000ffffffff0000"
    "0000001d 000000000001000967312d6f7264657273000000010000000000000000"
)


def test_an_offset_as_kafka_writes_it() -> None:
    key = OffsetKey("g1-pay", "g1-orders", 3)
    topic_id = UUID("29b13ffa-6a9b-4971-9c41-a6c20e652811")
    value = CommittedOffset(5, 2, "m", 0x1A1E09872CD, topic_id=topic_id)
    assert read_offset_key(KAFKA_KEY) == key
    assert write_offset_key(key) == KAFKA_KEY
    assert read_offset(KAFKA_OFFSET) == value
    assert write_offset(value) == KAFKA_OFFSET


def test_an_offset_with_a_retention_as_kafka_writes_it() -> None:
    value = CommittedOffset(6, -1, "m", 0x1A1E09872DA, expires_ms=0x1A1E09872DA + 86_400_000)
    assert read_offset(KAFKA_OFFSET_WITH_RETENTION) == value
    assert write_offset(value) == KAFKA_OFFSET_WITH_RETENTION


def test_a_group_as_kafka_writes_it() -> None:
    group = read_group(KAFKA_GROUP)
    assert (group.protocol_type, group.generation, group.protocol) == ("consumer", 1, "range")
    (member,) = group.members
    assert member.member_id == group.leader
    assert (member.instance_id, member.client_id, member.client_host) == ("i-1", "app", "/127.0.0.1")
    assert (member.rebalance_timeout_ms, member.session_timeout_ms) == (300_000, 45_000)
    assert write_group(group) == KAFKA_GROUP
    assert write_group(read_group(KAFKA_NEW_GROUP)) == KAFKA_NEW_GROUP
    assert read_group_key(KAFKA_GROUP_KEY) == "g1-grp"
    assert write_group_key("g1-grp") == KAFKA_GROUP_KEY


def test_the_version_with_a_retention_has_no_leader_epoch() -> None:
    value = CommittedOffset(9, 4, "m", 10, expires_ms=20)
    assert read_offset(write_offset(value)) == value._replace(leader_epoch=-1)


@pytest.mark.parametrize(
    ("version", "data", "expected"),
    [
        (0, "0000000000000005 0001 6d 000000000000000a", CommittedOffset(5, -1, "m", 10)),
        (1, "0000000000000005 0001 6d 000000000000000a ffffffffffffffff", CommittedOffset(5, -1, "m", 10)),
        (2, "0000000000000005 0000 000000000000000a", CommittedOffset(5, -1, "", 10)),
        (3, "0000000000000005 00000002 0001 6d 000000000000000a", CommittedOffset(5, 2, "m", 10)),
        (4, "0000000000000005 00000002 02 6d 000000000000000a 00", CommittedOffset(5, 2, "m", 10)),
        (4, "0000000000000005 00000002 02 6d 000000000000000a 01 09 02 ffff", CommittedOffset(5, 2, "m", 10)),
    ],
)
def test_an_offset_of_every_version(version: int, data: str, expected: CommittedOffset) -> None:
    assert read_offset(version.to_bytes(2) + bytes.fromhex(data)) == expected


def test_a_group_there_and_back() -> None:
    written = write_group(GROUP)
    assert written[:2] == b"\x00\x03"
    assert read_group(written) == GROUP
    assert read_group_key(write_group_key("pay")) == "pay"
    empty = GroupMetadata("consumer", 8, None, None, 5, ())
    assert read_group(write_group(empty)) == empty


def _old_group(version: int) -> bytes:
    text = lambda word: len(word).to_bytes(2) + word  # noqa: E731
    blob = lambda data: len(data).to_bytes(4) + data  # noqa: E731
    head = version.to_bytes(2) + text(b"consumer") + (7).to_bytes(4) + text(b"range") + text(b"m-1")
    since = GROUP.state_ms.to_bytes(8) if version >= 2 else b""
    member = text(b"m-1") + text(b"app") + text(b"/127.0.0.1")
    rebalance = (300_000).to_bytes(4) if version >= 1 else b""
    rest = (45_000).to_bytes(4) + blob(MEMBER.subscription) + blob(MEMBER.assignment)
    return head + since + (1).to_bytes(4) + member + rebalance + rest


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_group_of_older_versions(version: int) -> None:
    rebalance_ms = 300_000 if version >= 1 else -1
    member = MEMBER._replace(instance_id=None, rebalance_timeout_ms=rebalance_ms)
    expected = GROUP._replace(state_ms=GROUP.state_ms if version >= 2 else -1, members=(member,))
    assert read_group(_old_group(version)) == expected


def test_a_group_of_the_flexible_version() -> None:
    text = lambda word: bytes([len(word) + 1]) + word  # noqa: E731
    data = b"".join(
        (
            b"\x00\x04" + text(b"consumer") + (7).to_bytes(4) + text(b"range") + text(b"m-1"),
            GROUP.state_ms.to_bytes(8) + b"\x02",
            text(b"m-1") + text(b"i-1") + text(b"app") + text(b"/127.0.0.1"),
            (300_000).to_bytes(4) + (45_000).to_bytes(4),
            text(MEMBER.subscription) + text(MEMBER.assignment),
            b"\x00\x00",
        )
    )
    assert read_group(data) == GROUP


@pytest.mark.parametrize(
    "data",
    [
        *(KAFKA_KEY[:cut] for cut in range(2, len(KAFKA_KEY))),
        bytes.fromhex("0001 ffff 0001 61 00000000"),
        bytes.fromhex("0001 0001 61 ffff 00000000"),
        bytes.fromhex("0001 8000 0001 61 00000000"),
        bytes.fromhex("0001 0001 ff 0001 61 00000000"),
    ],
)
def test_what_is_no_key_is_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt):
        read_offset_key(data)


def test_a_long_metadata_there_and_back() -> None:
    for size in (0, 1, 125, 126, 127, 128, 4096):
        value = CommittedOffset(5, 2, "ü" * size, 10)
        assert read_offset(write_offset(value)) == value


@pytest.mark.parametrize("cut", range(2, len(KAFKA_OFFSET)))
def test_an_offset_that_is_cut_short_is_corrupt(cut: int) -> None:
    with pytest.raises(Corrupt):
        read_offset(KAFKA_OFFSET[:cut])


@pytest.mark.parametrize("cut", range(len(write_group(GROUP)) - 1))
def test_a_group_that_is_cut_short_is_corrupt(cut: int) -> None:
    with pytest.raises(Corrupt):
        read_group(write_group(GROUP)[:cut])


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x05" + KAFKA_OFFSET[2:],
        b"\xff\xff" + KAFKA_OFFSET[2:],
        bytes.fromhex("0000 0000000000000005 ffff 000000000000000a"),
        bytes.fromhex("0000 0000000000000005 0001 ff 000000000000000a"),
        bytes.fromhex("0004 0000000000000005 ffffffff ffffffffffff 6d"),
        bytes.fromhex("0004 0000000000000005 ffffffff 02 6d 000000000000000a 01 00 02 a148"),
    ],
    ids=["newer", "negative", "null metadata", "no text", "endless number", "short id"],
)
def test_what_is_no_offset_is_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt):
        read_offset(data)


def test_a_group_that_claims_more_members_than_there_are_bytes_is_corrupt() -> None:
    data = bytearray(write_group(GROUP._replace(members=())))
    data[-4:] = b"\x7f\xff\xff\xff"
    with pytest.raises(Corrupt):
        read_group(bytes(data))


def test_a_name_that_no_record_can_hold() -> None:
    with pytest.raises(TooLarge):
        write_offset_key(OffsetKey("g" * 40_000, "orders", 0))
