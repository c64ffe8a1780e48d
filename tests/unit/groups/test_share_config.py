"""What share groups can be told, in the words of Apache Kafka 4.3.1 where that is refused."""

import pytest

from anabranch.base.errors import InvalidConfig
from anabranch.groups.config import GroupConfig
from anabranch.groups.group_options import check_group_options, config_for_group
from anabranch.groups.share_config import reset_duration_ms


@pytest.mark.parametrize(
    ("reset", "duration_ms"),
    [
        ("by_duration:PT1H", 3_600_000),
        ("by_duration:P1DT2H3M4.5S", 93_784_500),
        ("by_duration:pt0.0019s", 1),
        ("by_duration:+P1D", 86_400_000),
        ("by_duration:P", None),
        ("by_duration:P1DT", None),
        ("by_duration:-PT1H", None),
        ("by_duration:PT-1H", None),
        ("by_duration:1h", None),
        ("by_duration:PT1H and more", None),
        ("earliest", None),
    ],
)
def test_durations(reset, duration_ms):
    assert reset_duration_ms(reset) == duration_ms


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("share.auto.offset.reset", "x", "either 'earliest', 'latest' or of the format 'by_duration:"),
        (
            "share.isolation.level",
            "READ_COMMITTED",
            "String must be one of: read_committed, read_uncommitted",
        ),
        ("share.record.lock.duration.ms", "999", "Value must be at least 1000"),
        ("share.record.lock.duration.ms", "14999", "equal to group.share.min.record.lock.duration.ms"),
        ("share.delivery.count.limit", "1", "Value must be at least 2"),
        ("share.delivery.count.limit", "11", "equal to group.share.max.delivery.count.limit"),
        ("share.partition.max.record.locks", "4001", "equal to group.share.max.partition.max.record.locks"),
        ("share.renew.acknowledge.enable", "maybe", "Expected value to be either true or false"),
        ("share.unheard.of", "1", "Unknown group config name: share.unheard.of"),
    ],
)
def test_what_a_group_cannot_be_told(name, value, why):
    with pytest.raises(InvalidConfig, match=why):
        check_group_options({name: value}, GroupConfig())


def test_what_a_group_is_told_holds_for_it():
    told = {
        "share.auto.offset.reset": "by_duration:PT1H",
        "share.isolation.level": "read_committed",
        "share.renew.acknowledge.enable": "false",
        "share.delivery.count.limit": "7",
        "share.record.lock.duration.ms": "1",  # nothing that is legal here
        "share.session.timeout.ms": "3600000",  # legal once, with other bounds
    }
    config = config_for_group(GroupConfig(), told)
    assert (config.share_auto_offset_reset, config.share_isolation_level) == (
        "by_duration:PT1H",
        "read_committed",
    )
    assert config.share_renew_acknowledge_enable is False
    assert config.share_delivery_count_limit == 7
    assert config.share_record_lock_duration_ms == GroupConfig().share_record_lock_duration_ms
    assert config.share_session_timeout_ms == 60_000
