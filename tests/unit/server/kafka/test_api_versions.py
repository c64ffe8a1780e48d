import struct

import pytest
from kio.serial import entity_reader

from anabranch.server.kafka.api_versions import unsupported_answer
from anabranch.server.kafka.registry import load_apis
from anabranch.wire.kafka.schema import ErrorCode, response_schema
from tests.unit.server.kafka.whole_broker import WholeBroker
from tests.wire.kafka_apis import SERVED

TELEMETRY = {71, 72}


@pytest.mark.parametrize("version", range(5))
async def test_what_is_registered_is_advertised(broker: WholeBroker, version: int) -> None:
    answer = await broker.ask(
        18, version, **({"client_software_name": "a", "client_software_version": "1"} if version > 2 else {})
    )
    assert answer.error_code == ErrorCode.none
    ranges = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    registered = {key: (api.advertised_min, api.max_version) for key, api in load_apis().items()}
    assert ranges == {key: versions for key, versions in registered.items() if key not in TELEMETRY}
    assert ranges.items() >= {key: v for key, v in SERVED.items() if key not in TELEMETRY | {0}}.items()
    # Served from 3, but librdkafka takes a broker without version 0 for an old one.
    assert ranges[0] == (0, 13)


async def test_telemetry_is_advertised_while_somebody_asks_for_metrics(broker: WholeBroker) -> None:
    await broker.services.cluster.replace_client_metrics("all", {"metrics": "*"})
    assert {api.api_key for api in (await broker.ask(18, 0)).api_keys} >= TELEMETRY
    await broker.services.cluster.replace_client_metrics("all", {})
    assert not {api.api_key for api in (await broker.ask(18, 0)).api_keys} & TELEMETRY


@pytest.mark.parametrize(
    ("name", "version", "legal"),
    [
        ("apache-kafka-java", "4.3.1", True),
        ("a", "1", True),
        ("librdkafka", "2.16.1-RC1", True),
        ("", "1", False),
        ("a", "", False),
        ("-a", "1", False),
        ("a", "1-", False),
        ("a b", "1", False),
        ("a\n", "1", False),
        ("ä", "1", False),
    ],
)
async def test_a_client_says_who_it_is(broker: WholeBroker, name: str, version: str, legal: bool) -> None:
    answer = await broker.ask(18, 3, client_software_name=name, client_software_version=version)
    if legal:
        assert answer.error_code == ErrorCode.none
        assert (broker.peer.software_name, broker.peer.software_version) == (name, version)
    else:
        assert (answer.error_code, answer.api_keys) == (ErrorCode.invalid_request, ())
        assert broker.peer.software_name is None


def test_an_unknown_version_is_answered_at_version_0() -> None:
    body = unsupported_answer(load_apis())
    read, size = entity_reader(response_schema(18, 0))(body, 0)
    assert size == len(body)
    assert read.error_code == ErrorCode.unsupported_version
    assert [(api.api_key, api.min_version, api.max_version) for api in read.api_keys] == [(18, 0, 4)]
    assert body == struct.pack(">hihhh", 35, 1, 18, 0, 4)
