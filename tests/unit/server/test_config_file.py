from pathlib import Path

import pytest

from anabranch.base.errors import InvalidConfig
from anabranch.server.config import BrokerConfig, Layers
from anabranch.server.config_file import load
from anabranch.server.config_sections import Endpoint


def test_nothing_said_is_the_defaults() -> None:
    config = load(None, {}, {})
    assert config == BrokerConfig.build(Layers({}, {}, {}))
    assert config.node.node_id == 1
    assert config.sockets.bind == Endpoint("127.0.0.1", 9092)


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=1\nnode.id=2\nbroker.rack=a\n")
    environ = {"ANABRANCH_NODE_ID": "3", "ANABRANCH_BROKER_RACK": "b", "PATH": "/bin"}
    config = load(file, environ, {"broker.rack": "c"})
    assert (config.topics.num_partitions, config.node.node_id, config.node.rack) == (1, 3, "c")
    assert config.layers.static == {"num.partitions": "1", "node.id": "3", "broker.rack": "c"}


def test_toml(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(
        'node.id = 4\nlisteners = ["PLAINTEXT://127.0.0.1:0"]\n[log]\nretention.hours = 1\n'
        "preallocate = true\n[log.cleaner]\nmin.cleanable.ratio = 0.25\n"
    )
    config = load(file, {}, {})
    assert config.node.node_id == 4
    assert config.sockets.bind.port == 0
    assert config.log.retention_ms == 3_600_000
    assert config.log.preallocate
    assert config.log.min_cleanable_dirty_ratio == 0.25


def test_an_option_of_our_own_is_named_once_in_the_environment() -> None:
    assert load(None, {"ANABRANCH_MAX_OPEN_FILES": "100"}, {}).node.max_open_files == 100


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        (
            "a.properties",
            "log.segments.bytes=1",
            r"unknown option log\.segments\.bytes; did you mean log\.segment\.bytes",
        ),
        (
            "a.properties",
            "num.partitions=0",
            r"Invalid value 0 for configuration num\.partitions: Value must be at least 1",
        ),
        ("a.properties", "node.id=1\nnode.id=2", "line 2: node.id is set twice"),
        ("a.toml", "x = [", "a.toml: "),
        ("a.toml", "node.id = 1979-05-27", "is neither a string, a number"),
    ],
)
def test_a_mistake_in_a_file_is_named_with_the_file(
    tmp_path: Path, name: str, content: str, complaint: str
) -> None:
    file = tmp_path / name
    file.write_text(content)
    with pytest.raises(InvalidConfig, match=complaint) as caught:
        load(file, {}, {})
    assert name in str(caught.value)


def test_a_file_that_is_not_there_or_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"cannot read .*No such file"):
        load(tmp_path / "none.properties", {}, {})
    (tmp_path / "b.properties").write_bytes(b"a=\xff\xfe")
    with pytest.raises(InvalidConfig, match=r"b\.properties"):
        load(tmp_path / "b.properties", {}, {})


def test_an_unknown_flag() -> None:
    with pytest.raises(
        InvalidConfig, match=r"the command line: unknown option num\.partition; did you mean num\.part"
    ):
        load(None, {}, {"num.partition": "3"})


def test_variables_that_tell_commands_where_a_cluster_is_are_no_near_misses() -> None:
    told = {"CLUSTER": "here", "BOOTSTRAP": "b:9092", "HTTP": "h:8080", "SERVICE": "pulsar://p:6650"}
    load(None, {f"ANABRANCH_{name}": value for name, value in told.items()}, {})


def test_a_near_miss_in_the_environment_is_a_mistake_and_a_strangers_variable_is_not() -> None:
    with pytest.raises(InvalidConfig, match="ANABRANCH_NUM_PARTITION; did you mean NUM_PARTITIONS"):
        load(None, {"ANABRANCH_NUM_PARTITION": "3"}, {})
    for stranger in (
        "ANABRANCH_PORT",
        "ANABRANCH_SERVICE_HOST",
        "ANABRANCH_PORT_9092_TCP_ADDR",
        "ANABRANCH_BOOTSTRAP",
    ):
        load(None, {stranger: "tcp://127.0.0.1:9092"}, {})
    with pytest.raises(
        InvalidConfig, match=r"the environment: Invalid value x for configuration num\.partitions"
    ):
        load(None, {"ANABRANCH_NUM_PARTITIONS": "x"}, {})
