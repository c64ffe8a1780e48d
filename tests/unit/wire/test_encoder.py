"""The encoder at its edges; that it agrees with kio is shown in tests/wire."""

import struct

import pytest

from anabranch.wire.kafka.encoder import encoder, uvarint

CREATE_TOPICS = 19


@pytest.mark.parametrize("text", ["x" * 40_000, "ü" * 20_000, "€" * 12_000, "x" * 32_767])
def test_a_message_that_does_not_fit_is_cut_between_characters(text: str) -> None:
    out = bytearray()
    topic = {"name": "t", "error_code": 17, "error_message": text}
    encoder(CREATE_TOPICS, 2)(out, {"topics": [topic]})
    at = 4 + 4 + 3 + 2  # throttle time, one topic, its name, its code
    (size,) = struct.unpack_from(">h", out, at)
    told = bytes(out[at + 2 : at + 2 + size]).decode()
    assert text.startswith(told)
    assert 32_764 < size <= 32_767
    assert at + 2 + size == len(out)


def test_what_is_missing_without_a_default_is_our_mistake() -> None:
    with pytest.raises(KeyError, match="name"):
        encoder(CREATE_TOPICS, 2)(bytearray(), {"topics": [{}]})


@pytest.mark.parametrize(
    ("number", "meant"), [(0, b"\0"), (127, b"\x7f"), (128, b"\x80\1"), (2**32 - 1, b"\xff\xff\xff\xff\x0f")]
)
def test_varints(number: int, meant: bytes) -> None:
    assert uvarint(number) == meant
