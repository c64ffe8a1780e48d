"""Records of share groups as Kafka 4.3.1 wrote them while offsets were set and a member joined and left."""

from uuid import UUID

import pytest

from anabranch.base.errors import Corrupt
from anabranch.groups import share_records as records
from anabranch.groups.epoch_records import Key
from anabranch.groups.share_records import ShareMember, ShareTopics, TopicShare

G = "a4-offsets"
T = UUID("b3e9cc6f-d747-4196-9f57-075af8d3fc84")
NAME = "a4-shared"
BOTH = TopicShare(NAME, frozenset({0, 1}))
SHARE_HEX = "b3e9cc6fd74741969f57075af8d3fc840a61342d736861726564030000000000000001"


def test_keys():
    assert records.key(records.TOPICS, G).hex() == "000f000a61342d6f666673657473"
    member = records.key(records.MEMBER, G, "m")
    assert member.hex() == "000a000a61342d6f66667365747300016d"
    assert records.read_key(member) == Key(records.MEMBER, G, "m")
    assert records.tombstone(records.EPOCH, G) == (bytes.fromhex("000b000a61342d6f666673657473"), None)


def test_a_member():
    value = "000000047261770b2f3132372e302e302e31020a61342d73686172656400"
    member = ShareMember(
        member_id="m", client_id="raw", client_host="/127.0.0.1", topic_names=frozenset({NAME})
    )
    assert records.read_member("m", bytes.fromhex(value)) == member
    assert records.member_record(G, member).value.hex() == value


def test_a_group_epoch():
    value = "000000000002c3769b3647ff013300"
    assert records.read_epoch(bytes.fromhex(value)) == (2, -4362128531623313101)
    assert records.epoch_record(G, 2, -4362128531623313101).value.hex() == value


def test_a_target_epoch():
    value = "000000000002010008000001a1e1bbcdaf"
    assert records.read_target_epoch(bytes.fromhex(value)) == (2, 0x1A1E1BBCDAF)
    assert records.target_epoch_record(G, 2, 0x1A1E1BBCDAF).value.hex() == value


def test_a_target():
    value = "000002b3e9cc6fd74741969f57075af8d3fc840300000000000000010000"
    assert records.read_target(bytes.fromhex(value)) == {T: {0, 1}}
    assert records.target_record(G, "m", {T: frozenset({1, 0})}).value.hex() == value


def test_what_a_member_has():
    value = "000000000003000000020002b3e9cc6fd74741969f57075af8d3fc84040000000000000001000000020000"
    member = records.read_current(ShareMember(member_id="m", rack_id="r"), bytes.fromhex(value))
    assert member == ShareMember(
        member_id="m", rack_id="r", epoch=3, previous_epoch=2, assigned={T: frozenset({0, 1, 2})}
    )
    assert records.current_record(G, member).value.hex() == value


@pytest.mark.parametrize(
    ("value", "topics"),
    [
        (f"000002{SHARE_HEX}00010100", ShareTopics({T: BOTH}, {}, {})),
        (f"00000102{SHARE_HEX}000100", ShareTopics({}, {T: BOTH}, {})),
        (
            "0000010102b3e9cc6fd74741969f57075af8d3fc840a61342d7368617265640000",
            ShareTopics({}, {}, {T: NAME}),
        ),
    ],
)
def test_share_partitions(value, topics):
    assert records.read_topics(bytes.fromhex(value)) == topics
    assert records.topics_record(G, topics).value.hex() == value


def test_what_is_cut_off_or_of_another_version_is_corrupt():
    value = records.topics_record(G, ShareTopics({T: BOTH}, {}, {})).value
    for end in range(2, len(value) - 1):
        with pytest.raises(Corrupt):
            records.read_topics(value[:end])
    with pytest.raises(Corrupt):
        records.read_member("m", b"\x00\x01\x00")
