import pytest

from anabranch.base.errors import Invalid, InvalidConfig
from anabranch.server.config_client_metrics import ClientMetricsConfig


def test_defaults() -> None:
    assert ClientMetricsConfig.build({}) == ClientMetricsConfig(metrics=(), interval_ms=300_000, match=())


def test_patterns() -> None:
    config = ClientMetricsConfig.build(
        {"match": "client_id = a.*,client_software_version=3\\..*,client_id=b"}
    )
    patterns = config.patterns()
    assert set(patterns) == {"client_id", "client_software_version"}
    assert patterns["client_id"].fullmatch("b")
    assert patterns["client_software_version"].fullmatch("3.7")


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        ({"foo": "x"}, "Unknown client metrics configuration: foo"),
        (
            {"interval.ms": "99"},
            r"Invalid value 99 for interval\.ms, interval must be between 100 and 3600000",
        ),
        ({"interval.ms": "3600001"}, "must be between"),
    ],
)
def test_the_request_is_at_fault(overrides: dict[str, str], complaint: str) -> None:
    with pytest.raises(Invalid, match=complaint) as caught:
        ClientMetricsConfig.build(overrides)
    assert not isinstance(caught.value, InvalidConfig)


@pytest.mark.parametrize("pattern", ["foo=bar", "client_id", "client_id=", "client_id=a[", "client_id=a=b"])
def test_patterns_that_are_none(pattern: str) -> None:
    with pytest.raises(InvalidConfig, match="Illegal client matching pattern"):
        ClientMetricsConfig.build({"match": pattern})


def test_a_value_that_is_none() -> None:
    with pytest.raises(
        InvalidConfig, match=r"Invalid value x for configuration interval\.ms: Not a number of type INT"
    ):
        ClientMetricsConfig.build({"interval.ms": "x"})
