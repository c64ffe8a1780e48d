"""The table of APIs: what is registered, and that it is what kio's schemas know."""

import inspect

import pytest

from anabranch.server.kafka import registry
from anabranch.server.kafka.registry import Api, api, load_apis
from anabranch.wire.kafka.schema import api_name, request_schema, response_schema


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> dict[int, Api]:
    empty: dict[int, Api] = {}
    monkeypatch.setattr(registry, "_APIS", empty)
    return empty


def test_a_handler_is_registered_by_its_decorator(table: dict[int, Api]) -> None:
    @api(32, versions=(1, 4))
    async def describe_configs(request: object, ctx: object) -> dict[str, object]:
        return {}

    @api(0, versions=(3, 13), raw=True, advertise_from=0)
    def produce(frame: object, at: int, ctx: object) -> None: ...

    assert table[32] == Api(32, "describe_configs", 1, 4, 1, describe_configs, False, True)
    assert table[0] == Api(0, "produce", 3, 13, 0, produce, True, False)


def test_two_handlers_of_one_api_are_a_mistake(table: dict[int, Api]) -> None:
    def first(request: object, ctx: object) -> None: ...

    def second(request: object, ctx: object) -> None: ...

    second.__module__ = "somewhere.else"
    api(3, versions=(0, 1))(first)
    with pytest.raises(AssertionError):
        api(3, versions=(0, 1))(second)


@pytest.mark.parametrize("served", load_apis().values(), ids=lambda served: served.name)
def test_every_version_that_is_served_has_its_schemas(served: Api) -> None:
    assert served.name == api_name(served.key)
    assert served.advertised_min <= served.min_version <= served.max_version
    for version in range(served.min_version, served.max_version + 1):
        assert request_schema(served.key, version) is not None
        assert response_schema(served.key, version) is not None
    assert served.waits == inspect.iscoroutinefunction(served.handler)
    assert not (served.raw and served.waits)
