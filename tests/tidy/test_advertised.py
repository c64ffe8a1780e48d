"""What ApiVersions advertises is what there is: one file per API, named by it."""

from anabranch.server.kafka.registry import load_apis
from tests.tidy.tree import PACKAGE

NOT_AN_API = {"__init__", "registry"}


def test_every_api_has_a_file_of_its_name() -> None:
    apis = load_apis()
    assert apis, "no API is registered"
    for key, api in apis.items():
        module = api.handler.__module__.rpartition(".")[2]
        assert module == api.name, f"API {key}, {api.name}, is registered by {module}.py"
        assert 0 <= api.min_version <= api.max_version


def test_every_handler_file_registers_its_api() -> None:
    registered = {api.name for api in load_apis().values()}
    for file in (PACKAGE / "server" / "kafka").glob("*.py"):
        if "@api(" in file.read_text(encoding="utf-8") and file.stem not in NOT_AN_API:
            assert file.stem in registered, f"{file.name} registers something of another name"
