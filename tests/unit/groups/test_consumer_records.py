"""Records as Kafka 4.3.1 wrote them while a confluent-kafka consumer joined, shared and left a group."""

from uuid import UUID

import pytest

from anabranch.base.errors import Corrupt
from anabranch.groups import consumer_records as records
from anabranch.groups.consumer_member import ClassicMember, ClassicProtocol, Member, MemberState
from anabranch.groups.consumer_records import Resolved
from anabranch.groups.epoch_records import Key

G = "g3-grp-1794768419"
A, B = "lcFKoSpnRJ+BspSKOb7f9w", "d+Fs5yI+RYuwToIam9WI1Q"
T = UUID("ed490d60-da5a-4945-bb41-a9ad97db8095")
U = UUID("9b19ed22-2f29-4236-b93d-87835b45bb28")
GROUP_HEX = "001167332d6772702d31373934373638343139"


def written(record):
    return record.value.hex()


def test_keys():
    member = records.key(records.HELD, G, A)
    assert member.hex() == "0008" + GROUP_HEX + "00166c63464b6f53706e524a2b427370534b4f6237663977"
    assert records.read_key(member) == Key(records.HELD, G, A)
    assert records.key(records.EPOCH, G).hex() == "0003" + GROUP_HEX
    regex = records.key(records.REGEX, G, "(^g3-.*)")
    assert regex.hex() == "0010" + GROUP_HEX + "0008285e67332d2e2a29"


def test_a_group_epoch():
    value = "000000000002010008ab405904ba3eeaea"
    assert records.read_epoch(bytes.fromhex(value)) == (2, -6106783217874965782)
    assert written(records.epoch_record(G, 2, -6106783217874965782)) == value


def test_a_target_epoch():
    value = "000000000002010008000001a1e088bb79"
    assert records.read_target_epoch(bytes.fromhex(value)) == (2, 1794768419705)
    assert written(records.target_epoch_record(G, 2, 1794768419705)) == value


def test_members():
    plain = "000000000872646b61666b610b2f3132372e302e302e31030567332d610567332d6201000493e00001000100"
    member = records.read_member(A, bytes.fromhex(plain))
    assert member == Member(
        member_id=A,
        client_id="rdkafka",
        client_host="/127.0.0.1",
        topic_names=frozenset({"g3-a", "g3-b"}),
        topic_regex="",
        rebalance_timeout_ms=300_000,
    )
    assert written(records.member_record(G, member)) == plain
    static = (
        "000006696e7374320372310872646b61666b610b2f3132372e302e302e310109285e67332d2e2a29000493e0"
        "0672616e676501000100"
    )
    member = records.read_member(B, bytes.fromhex(static))
    assert (member.instance_id, member.rack_id, member.assignor) == ("inst2", "r1", "range")
    assert member.topic_regex == "(^g3-.*)"
    assert written(records.member_record(G, member)) == static


def test_a_member_of_the_classic_protocol():
    classic = ClassicMember(45_000, (ClassicProtocol("range", b"\0\1x"), ClassicProtocol("sticky", b"")))
    member = Member(member_id=A, classic=classic, rebalance_timeout_ms=1)
    assert records.read_member(A, records.member_record(G, member).value) == member


def test_a_target():
    value = "000002ed490d60da5a4945bb41a9ad97db8095030000000000000001" + "0000"
    assert records.read_target(bytes.fromhex(value)) == {T: frozenset({0, 1})}
    assert written(records.target_record(G, A, {T: frozenset({0, 1})})) == value


def test_what_a_member_holds():
    value = (
        "000000000002000000020102ed490d60da5a4945bb41a9ad97db809502000000020100050200000002"
        "029b19ed222f294236b93d87835b45bb2803000000000000000101000903000000020000000200"
    )
    member = records.read_held(Member(member_id=A), bytes.fromhex(value))
    assert member == Member(
        member_id=A,
        epoch=2,
        previous_epoch=2,
        state=MemberState.UNREVOKED,
        assigned={T: {2: 2}},
        revoking={U: {0: 2, 1: 2}},
    )
    assert written(records.held_record(G, member)) == value


def test_before_4_3_partitions_had_no_epochs():
    value = "000000000002000000020002ed490d60da5a4945bb41a9ad97db80950300000000000000010001" + "00"
    assert records.read_held(Member(member_id=A), bytes.fromhex(value)).assigned == {T: {0: 0, 1: 0}}


def test_a_state_to_come_is_unknown():
    value = bytearray(records.held_record(G, Member(member_id=A)).value)
    value[10] = 9
    assert records.read_held(Member(member_id=A), bytes(value)).state is MemberState.UNKNOWN


def test_a_regex():
    value = "0000030567332d610567332d620000000000002b2f000001a1e088d6c500"
    resolved = Resolved(frozenset({"g3-a", "g3-b"}), 11055, 1794768426693)
    assert records.read_regex(bytes.fromhex(value)) == resolved
    assert written(records.regex_record(G, "(^g3-.*)", resolved)) == value


@pytest.mark.parametrize("read", [records.read_epoch, records.read_target, records.read_regex])
def test_what_is_cut_or_newer_is_corrupt(read):
    with pytest.raises(Corrupt):
        read(b"\0\0\xff")
    with pytest.raises(Corrupt):
        read(b"\0\1" + bytes(20))
