"""Strings of commands that are not UTF-8 are found wherever they are."""

import pytest

from anabranch.base.errors import Corrupt
from anabranch.wire.pulsar import commands_pb2 as pb
from anabranch.wire.pulsar.text import check_text, has_text


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(pb.Ack, False), (pb.Send, False), (pb.Flow, False), (pb.MessageId, False), (pb.Lookup, True),
     (pb.Subscribe, True), (pb.GetTopicsOfNamespace, True)],
)  # fmt: skip
def test_what_has_text(kind: type[pb.Ack], expected: bool) -> None:
    assert has_text(kind.DESCRIPTOR) is expected


def read(data: bytes) -> pb.Subscribe:
    said = pb.Subscribe(topic="t", subscription="s", type=0, consumer_id=1, request_id=1)
    return pb.Subscribe.FromString(said.SerializeToString() + data)


def test_text_is_let_through() -> None:
    check_text(read(b"\x32\x02\xc3\xa4" + b"\x52\x06\x0a\x01k\x12\x01v"))
    check_text(pb.WatchTopicListSuccess(request_id=1, watcher_id=1, topic=["a", "b"], topics_hash=""))


@pytest.mark.parametrize(
    "data",
    [
        b"\x32\x02\xff\xfe",  # consumer_name
        b"\x52\x06\x0a\x01\xff\x12\x01v",  # a key of metadata
        b"\x62\x08\x0a\x02\xc3\x28\x1a\x00\x20\x00",  # the name of a schema
    ],
)
def test_what_is_none_is_found(data: bytes) -> None:
    with pytest.raises(Corrupt, match="UTF-8"):
        check_text(read(data))


def test_also_among_many() -> None:
    data = b"\x08\x01\x12\x01a\x12\x01\xff\x22\x00"
    with pytest.raises(Corrupt, match="topics"):
        check_text(pb.GetTopicsOfNamespaceResponse.FromString(data))
