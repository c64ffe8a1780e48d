"""Options: what is known, what is refused, and what a refusal says."""

import pytest

from anabranch.base.errors import Invalid
from anabranch.client.settings import Settings
from anabranch.spark.options import (
    BATCH_READ,
    BATCH_WRITE,
    STREAM_READ,
    Options,
    settings,
    write_options,
)

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def batch(**given: str) -> Options:
    return Options(
        {name.replace("__", "."): value for name, value in given.items()}, BATCH_READ, "a batch read"
    )


def test_names_are_not_case_sensitive() -> None:
    assert batch(STARTINGOFFSETS="latest").text("startingOffsets") == "latest"


def test_the_nearest_name_is_suggested() -> None:
    with pytest.raises(Invalid, match="no option subscrib for a batch read; did you mean subscribe"):
        batch(subscrib="orders")
    with pytest.raises(Invalid, match=r"did you mean kafka\.bootstrap\.servers"):
        batch(kafka__bootstrap__server="h:1")
    with pytest.raises(Invalid, match="there are: assign, "):
        batch(zzz="1")


def test_an_option_of_another_use_is_named_as_such() -> None:
    with pytest.raises(Invalid, match="endingOffsets has no meaning for a streaming read"):
        Options({"endingOffsets": "latest"}, STREAM_READ, "a streaming read")
    with pytest.raises(Invalid, match="maxOffsetsPerTrigger has no meaning for a batch read"):
        batch(maxOffsetsPerTrigger="5")


def test_what_spark_adds_for_itself_is_let_through() -> None:
    Options({"checkpointLocation": "/c", "path": "x"}, STREAM_READ, "a streaming read")


@pytest.mark.parametrize("value", ["0", "-1", "many", "1.5", "", "9" * 30])
def test_numbers(value: str) -> None:
    assert batch(minPartitions="12").whole("minPartitions") == 12
    with pytest.raises(Invalid, match="minPartitions"):
        batch(minPartitions=value).whole("minPartitions")


def test_flags_choices_and_times() -> None:
    assert batch(failOnDataLoss="FALSE").flag("failOnDataLoss", True) is False
    with pytest.raises(Invalid, match="not true or false"):
        batch(failOnDataLoss="no").flag("failOnDataLoss", True)
    with pytest.raises(Invalid, match="not one of a, b"):
        batch(assign="c").choice("assign", ("a", "b"), "a")
    times = {"15m": 900.0, "500ms": 0.5, "20": 0.02, "2h": 7200.0, " 3 s ": 3.0}
    for text, seconds in times.items():
        assert batch(assign=text).duration_s("assign", 1) == seconds
    with pytest.raises(Invalid, match="not a time"):
        batch(assign="soon").duration_s("assign", 1)


def test_how_the_cluster_is_reached() -> None:
    given = {**SERVERS, "kafka.request.timeout.ms": "5000", "kafka.client.id": "me"}
    assert settings(Options(given, BATCH_READ, "")) == Settings("127.0.0.1:9092", "me", 5.0)
    with pytest.raises(Invalid, match=r"bootstrap\.servers is missing"):
        settings(Options({}, BATCH_READ, ""))
    with pytest.raises(Invalid, match="only PLAINTEXT"):
        settings(Options({**SERVERS, "kafka.security.protocol": "SASL_SSL"}, BATCH_READ, ""))


def test_writing_exactly_once_needs_all_replicas() -> None:
    with pytest.raises(Invalid, match="acks must be all"):
        write_options(Options({**SERVERS, "kafka.acks": "1"}, BATCH_WRITE, ""))
    how = write_options(Options({**SERVERS, "kafka.acks": "1", "exactlyOnce": "false"}, BATCH_WRITE, ""))
    assert (how.acks, how.exactly_once, how.codec) == (1, False, 0)
    with pytest.raises(Invalid, match="not one of none, gzip"):
        write_options(Options({**SERVERS, "kafka.compression.type": "zip"}, BATCH_WRITE, ""))
