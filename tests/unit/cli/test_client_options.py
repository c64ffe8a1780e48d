import pytest

from anabranch.cli.client_options import (
    ConsumeSettings,
    ProduceSettings,
    consume_settings,
    produce_settings,
)
from anabranch.cli.failure import CommandError, Misuse


def test_settings_by_kafkas_names_and_librdkafkas() -> None:
    assert produce_settings([]) == ProduceSettings()
    assert consume_settings([]) == ConsumeSettings()
    for name in ("message.timeout.ms", "delivery.timeout.ms"):
        assert produce_settings([f"{name}=8000"]).timeout_ms == 8000
    given = ["batch.num.messages=500", "client.id=me"]
    assert produce_settings(given) == ProduceSettings(client_id="me", batch_records=500)
    assert consume_settings(["fetch.max.bytes=1000"]).fetch_bytes == 1000


def test_what_is_no_setting_is_said() -> None:
    with pytest.raises(CommandError, match=r'No such configuration property: "no\.such"'):
        produce_settings(["no.such=1"])
    with pytest.raises(CommandError, match="No such configuration property"):
        consume_settings(["batch.size=1"])
    for text in ("soon", "-1", "0", "99999999999"):
        with pytest.raises(Misuse, match="is not a number from 1 to"):
            produce_settings([f"batch.size={text}"])
    with pytest.raises(Misuse, match="is not NAME=VALUE"):
        produce_settings(["batch.size"])
