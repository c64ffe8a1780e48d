"""Led partitions: which of an internal topic this broker leads, and which of these nobody has written to."""

from pathlib import Path
from uuid import UUID

import pytest

from anabranch.base.errors import NotOwner, UnknownTopic
from anabranch.log.config import LogConfig
from anabranch.partition.led_partitions import LedPartitions
from tests.support.hosts import a_host
from tests.support.images import led_by, partition_image, topic_image

TOPIC = topic_image("__offsets", UUID(int=1), 3)


def test_one_that_was_unwritten_is_not_once_it_is_opened(tmp_path: Path) -> None:
    host = a_host(tmp_path)
    host.add_topic(TOPIC, LogConfig())
    led = LedPartitions(host, "__offsets")
    assert [led.is_unwritten(index) for index in range(3)] == [True] * 3
    led.partition(1)
    assert [led.is_unwritten(index) for index in range(3)] == [True, False, True]
    again = a_host(tmp_path)
    again.add_topic(TOPIC, LogConfig())
    led = LedPartitions(again, "__offsets")
    assert [led.is_unwritten(index) for index in range(3)] == [True, False, True], "its folder is there"


def test_one_that_another_broker_leads(tmp_path: Path) -> None:
    host = a_host(tmp_path)
    host.add_topic(led_by(TOPIC, 1, partition_image(1, leader=2, epoch=4, replicas=(2, 1))), LogConfig())
    led = LedPartitions(host, "__offsets")
    assert [led.is_led(index) for index in range(3)] == [True, False, True]
    assert led.led == [0, 2]
    for ask in (led.partition, led.is_unwritten):
        with pytest.raises(NotOwner) as refused:
            ask(1)
        assert (refused.value.leader, refused.value.epoch) == (2, 4)
    with pytest.raises(UnknownTopic):
        LedPartitions(host, "none").partition(0)
    assert LedPartitions(host, "none").led == ()
    host.change_topic(TOPIC)
    assert led.led == [0, 1, 2]
