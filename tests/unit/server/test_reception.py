"""Who may come in, over all listeners."""

from anabranch.server.config import DynamicConfig
from anabranch.server.config_file import load
from anabranch.server.reception import Reception


def reception(room: int = 100, **settings: str) -> Reception:
    overrides = {name.replace("_", "."): value for name, value in settings.items()}
    return Reception(DynamicConfig(load(None, {}, overrides)), room)


def test_an_address_has_its_own_limit() -> None:
    desk = reception(max_connections_per_ip="2")
    assert [desk.enter(f"203.0.113.1:{port}") for port in (1, 2, 3)] == [True, True, False]
    assert desk.enter("203.0.113.2:1")
    desk.leave("203.0.113.1:1")
    assert desk.enter("203.0.113.1:4")


def test_an_address_of_the_sixth_version_is_one_address() -> None:
    desk = reception(max_connections_per_ip="1")
    assert desk.enter("[2001:db8::1]:1000")
    assert not desk.enter("[2001:db8::1]:1001")


def test_descriptors_limit_what_the_configuration_allows() -> None:
    desk = reception(room=1, max_connections="5")
    assert desk.enter("203.0.113.1:1")
    assert not desk.enter("203.0.113.2:1")


def test_who_is_refused_counts_for_nothing() -> None:
    desk = reception(max_connections="1")
    assert desk.enter("203.0.113.1:1")
    assert not desk.enter("203.0.113.2:1")
    desk.leave("203.0.113.1:1")
    assert desk.is_empty
