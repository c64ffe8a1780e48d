"""A listener for brokers alone: what the cluster is told of it."""

from pathlib import Path

from anabranch import __version__
from anabranch.base.ids import BrokerId
from anabranch.client.destinations import Address
from tests.support.memory_network import Wire
from tests.support.worlds import a_node, a_world

_TWO = {
    "listeners": "PLAINTEXT://a:9092,INTERNAL://a:9093",
    "inter_broker_listener_name": "INTERNAL",
    "brokerServicePort": "-1",
}


async def test_brokers_are_told_another_address(tmp_path: Path) -> None:
    settings = {**_TWO, "advertised_listeners": "PLAINTEXT://outside:1,INTERNAL://inside:0"}
    async with a_node(tmp_path, a_world(network=Wire().host("a")), host_id="m", **settings) as node:
        registered = node.parts.cluster.image.brokers[BrokerId(1)]
        assert (registered.host, registered.port) == ("outside", 1)
        assert registered.for_brokers == Address("inside", 9093)
        assert (registered.host_id, registered.version) == ("m", __version__)
        assert registered.pulsar is registered.http is None
        assert len(registered.instance) == len(registered.directory) == 22


async def test_a_restart_is_another_instance_of_the_same_folder(tmp_path: Path) -> None:
    seen = []
    for _ in range(2):
        async with a_node(tmp_path, a_world(network=Wire().host("a"), seed=len(seen)), **_TWO) as node:
            seen.append(node.parts.cluster.image.brokers[BrokerId(1)])
    assert seen[0].directory == seen[1].directory
    assert seen[0].instance != seen[1].instance
    assert seen[0].epoch < seen[1].epoch
