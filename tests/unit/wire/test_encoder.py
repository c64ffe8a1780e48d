"""The encoder at its edges; that it agrees with kio is shown in tests/wire."""

import os
import struct
import subprocess
import sys
from typing import Any

import pytest

from anabranch.wire.kafka.encoder import STRICT, encoder, item_encoder, request_encoder, uvarint
from anabranch.wire.kafka.schema import response_schema, versions_of

METADATA, CREATE_TOPICS, ALTER_PARTITION = 3, 19, 56


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


@pytest.mark.parametrize(
    ("answer", "where"),
    [
        ({"topics": [], "eror_code": 17}, "CreateTopicsResponse has no eror_code"),
        ({"topics": [{"name": "a"}, {"name": "b", "eror_code": 17}]}, r"has no topics\[\]\.eror_code"),
        (
            {"topics": [{"name": "a", "configs": [{"name": "x", "valeu": "y"}]}]},
            r"has no topics\[\]\.configs\[\]\.valeu",
        ),
        ({"topics": [], "throttle_time": {"ms": 3}}, r"has no throttle_time\.ms"),
        ({"topics": [{"eror": 1}, {"eror": 2}], "more": 2}, r"has no topics\[\]\.eror, more"),
    ],
)
@pytest.mark.parametrize("version", [2, 7])
def test_what_no_version_knows_is_our_mistake(answer: dict[str, Any], where: str, version: int) -> None:
    out = bytearray()
    with pytest.raises(KeyError, match=where):
        encoder(CREATE_TOPICS, version)(out, answer)
    assert not out


def test_what_only_other_versions_know_is_left_out() -> None:
    plain, more = bytearray(), bytearray()
    topic = {"name": "t", "error_code": 17}
    newer = {"topic_id": None, "topic_config_error_code": 29, "configs": [{"name": "x"}]}
    encoder(CREATE_TOPICS, 2)(plain, {"topics": [topic]})
    encoder(CREATE_TOPICS, 2)(more, {"topics": [topic | newer]})
    assert plain == more


def test_a_kept_item_and_a_request_are_looked_at_too() -> None:
    item = {"name": "t", "topic_id": None, "partitions": []}
    written = bytearray()
    item_encoder(METADATA, 12, "topics")(written, item | {"error_code": 3})
    encoder(METADATA, 12)(bytearray(), {"brokers": [], "topics": [bytes(written)]})
    with pytest.raises(KeyError, match="MetadataResponseTopic has no eror_code"):
        item_encoder(METADATA, 12, "topics")(bytearray(), item | {"eror_code": 3})
    with pytest.raises(KeyError, match=r"MetadataRequest has no topics\[\]\.nam"):
        request_encoder(METADATA, 12)(bytearray(), {"topics": [{"nam": "t"}]})


def test_an_older_version_alone_does_not_load_the_others() -> None:
    """They take a quarter of a second for Metadata, and every broker of the tests would wait for that."""
    version = versions_of(ALTER_PARTITION)[0]
    encoder.cache_clear()  # another test may have had this one
    response_schema.cache_clear()
    encoder(ALTER_PARTITION, version)(bytearray(), {"topics": []})
    assert response_schema.cache_info().currsize == 1


@pytest.mark.parametrize(
    ("options", "variable", "told"),
    [([], None, "sent"), ([], "0", "sent"), ([], "1", "refused"), (["-X", "dev"], None, "refused")],
)
def test_only_tests_and_debug_runs_look(options: list[str], variable: str | None, told: str) -> None:
    program = (
        "from anabranch.wire.kafka.encoder import encoder\n"
        "try:\n    encoder(19, 2)(bytearray(), {'topics': [], 'eror_code': 17})\n    print('sent')\n"
        "except KeyError:\n    print('refused')"
    )
    environment = {name: text for name, text in os.environ.items() if name != STRICT}
    environment |= {} if variable is None else {STRICT: variable}
    command = [sys.executable, "-W", "ignore", *options, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == told
