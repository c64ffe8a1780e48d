"""Every API of a single broker at every version Kafka advertises: one request, one answer, written out.

What differs between two good brokers by nature (see transcript.py) is replaced by what it is: an id, a
time, a place.
"""

import datetime
import time
import uuid
from dataclasses import fields
from typing import Any

import raw
from transcript import Transcript, arguments

# What Kafka 4.3 advertises of the APIs that a broker without groups, transactions and security
# has.  Telemetry (71, 72) is left out: stock Kafka has it only with a metrics plugin.
SERVED = {
    raw.PRODUCE: range(3, 14),  # 0 to 2 are advertised for old clients' sake, and refused
    raw.FETCH: range(4, 19),
    raw.LIST_OFFSETS: range(1, 12),
    raw.METADATA: range(14),
    raw.API_VERSIONS: range(5),
    raw.CREATE_TOPICS: range(2, 8),
    raw.DELETE_TOPICS: range(1, 7),
    raw.DELETE_RECORDS: range(3),
    raw.INIT_PRODUCER_ID: range(6),
    raw.OFFSET_FOR_LEADER_EPOCH: range(2, 5),
    raw.DESCRIBE_CONFIGS: range(1, 5),
    raw.ALTER_CONFIGS: range(3),
    raw.DESCRIBE_LOG_DIRS: range(1, 6),
    raw.CREATE_PARTITIONS: range(4),
    raw.INCREMENTAL_ALTER_CONFIGS: range(2),
    raw.DESCRIBE_CLUSTER: range(3),
    raw.DESCRIBE_PRODUCERS: range(1),
    raw.LIST_CONFIG_RESOURCES: range(2),
    raw.DESCRIBE_TOPIC_PARTITIONS: range(1),
}
PLACES = {"host", "port", "log_dir", "cluster_id"}
NODES = {"controller_id", "leader_id", "node_id", "broker_id"}
NODE_LISTS = {"replica_nodes", "isr_nodes", "replicas", "isr"}
COUNTERS = {"producer_id", "session_id", "total_bytes", "usable_bytes", "documentation"}
# KRaft's features, and the messages in the broker's own words.
LEFT_OUT = {
    "error_message",
    "batch_index_error_message",
    "throttle_time",
    "supported_features",
    "finalized_features",
    "finalized_features_epoch",
    "zk_migration_ready",
    "node_endpoints",
    "__type__",
}


def shown(value: Any, name: str = "") -> Any:
    """An answer as plain values, without what differs between two good brokers."""
    if hasattr(value, "__flexible__"):
        return {
            f.name: shown(getattr(value, f.name), f.name) for f in fields(value) if f.name not in LEFT_OUT
        }
    if name in NODE_LISTS:
        return len(value)
    if isinstance(value, tuple):
        return [
            shown(item, name) for item in sorted(value, key=lambda item: getattr(item, "partition_index", 0))
        ]
    if name in PLACES:
        return "some" if value else value
    if name in NODES:
        return "node" if value >= 0 else value
    if name == "timestamp" and abs(value - time.time() * 1000) < 120_000:
        return "now"
    if name == "resource_name" and value.isdigit():
        return "node"
    if name in COUNTERS:
        return "some" if value and value not in (-1, 0) else value
    if isinstance(value, uuid.UUID):
        return "some" if value.int else "zero"
    if isinstance(value, datetime.datetime):
        return "some time"
    if isinstance(value, datetime.timedelta):
        return int(value.total_seconds() * 1000)
    if isinstance(value, bytes):
        return raw.batches(value)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def requests(say: Transcript, topic: str, ident: Any, node: int) -> dict[int, dict[str, Any]]:
    """A request of every API; fields that a version does not have are left out."""
    one = raw.batch([b"value"])
    partition = {"partition": 0, "partition_index": 0, "timestamp": -1, "max_num_offsets": 1}
    resource = {"resource_type": 2, "resource_name": topic}
    setting = {"name": "retention.ms", "value": "3600000", "config_operation": 0}
    offset = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 100_000}
    epochs = [{"partition": 0, "leader_epoch": 0, "current_leader_epoch": -1}]
    produced = {"name": topic, "topic_id": ident, "partition_data": [{"index": 0, "records": one}]}
    fetched = {"topic": topic, "topic_id": ident, "partitions": [offset]}
    return {
        raw.PRODUCE: {"acks": -1, "timeout": 5000, "topic_data": [produced]},
        raw.FETCH: {
            "replica_id": -1,
            "max_wait": 100,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "topics": [fetched],
        },
        raw.LIST_OFFSETS: {"replica_id": -1, "topics": [{"name": topic, "partitions": [partition]}]},
        raw.METADATA: {"topics": [{"name": topic}], "allow_auto_topic_creation": False},
        raw.API_VERSIONS: {"client_software_name": "raw", "client_software_version": "1"},
        raw.CREATE_TOPICS: {"timeout": 5000},
        raw.DELETE_TOPICS: {"timeout": 5000},
        raw.DELETE_RECORDS: {
            "timeout": 5000,
            "topics": [{"name": topic, "partitions": [{"partition_index": 0, "offset": 1}]}],
        },
        raw.INIT_PRODUCER_ID: {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1},
        raw.OFFSET_FOR_LEADER_EPOCH: {"replica_id": -1, "topics": [{"topic": topic, "partitions": epochs}]},
        raw.DESCRIBE_CONFIGS: {
            "resources": [resource | {"configuration_keys": ["retention.ms", "cleanup.policy"]}],
            "include_synonyms": True,
        },
        raw.ALTER_CONFIGS: {"resources": [resource | {"configs": [setting]}]},
        raw.DESCRIBE_LOG_DIRS: {"topics": [{"topic": topic, "partitions": [0]}]},
        raw.CREATE_PARTITIONS: {
            "topics": [{"name": topic, "count": 9}],
            "timeout": 5000,
            "validate_only": True,
        },
        raw.INCREMENTAL_ALTER_CONFIGS: {"resources": [resource | {"configs": [setting]}]},
        raw.DESCRIBE_CLUSTER: {"include_cluster_authorized_operations": True, "endpoint_type": 1},
        raw.DESCRIBE_PRODUCERS: {"topics": [{"name": topic, "partition_indexes": [0, 7]}]},
        raw.LIST_CONFIG_RESOURCES: {"resource_types": [4]},
        raw.DESCRIBE_TOPIC_PARTITIONS: {"topics": [{"name": topic}], "response_partition_limit": 10},
    }


def every_version(say: Transcript, connection: raw.Connection) -> None:
    topic = say.topic("versions")
    ident = raw.create_topic(connection, topic, 2)
    say.settle()
    node = connection.call(raw.METADATA, 12, {"topics": []}).controller_id
    told = requests(say, topic, ident, node)
    for key, versions in SERVED.items():
        for version in versions:
            values = dict(told[key])
            if key in (raw.CREATE_TOPICS, raw.DELETE_TOPICS):
                name = say.topic(f"made-{version}")
                values["topics"] = [{"name": name, "num_partitions": 2, "replication_factor": 1}]
                values["topic_names"] = [name]
            answer = connection.call(key, version, values)
            if key == raw.API_VERSIONS:
                continue  # its own section
            plain = shown(answer)
            if key == raw.CREATE_TOPICS:  # the settings of a topic are in other transcripts
                for made in plain["topics"]:
                    made["configs"] = len(made.get("configs") or [])
            say.line(f"{type(answer).__name__} {version}", plain)


def api_versions(say: Transcript, connection: raw.Connection) -> None:
    for version in range(5):
        answer = connection.call(
            raw.API_VERSIONS, version, {"client_software_name": "a", "client_software_version": "1"}
        )
        known = {
            int(k.api_key): [k.min_version, k.max_version]
            for k in answer.api_keys
            if int(k.api_key) in SERVED
        }
        say.line(f"version {version}", [answer.error_code, known])
    # An unknown version is answered at version 0, with the list, and the connection goes on.
    connection.send_frame(bytes.fromhex("0012 0063 00000999 0003") + b"raw" + b"\0")
    frame = connection.receive_frame() or b""
    count = int.from_bytes(frame[6:10], "big")
    say.line("version 99", [frame[:6].hex(), count > 0, len(frame) == 10 + 6 * count])
    again = connection.call(
        raw.API_VERSIONS, 3, {"client_software_name": "a", "client_software_version": "1"}
    )
    say.line("and after it", again.error_code)
    bad = connection.call(
        raw.API_VERSIONS, 3, {"client_software_name": "-a b-", "client_software_version": "1"}
    )
    say.line("bad client name", bad.error_code)


def refused(say: Transcript, bootstrap: str) -> None:
    """What cannot be answered closes the connection."""
    frames = {
        "unknown API": bytes.fromhex("03e7 0000 00000001 0003") + b"raw",
        "Metadata version 99": bytes.fromhex("0003 0063 00000001 0003") + b"raw",
        "Metadata version -1": bytes.fromhex("0003 ffff 00000001 0003") + b"raw",
        "Produce version 1": bytes.fromhex("0000 0001 00000001 0003")
        + b"raw"
        + bytes.fromhex("0001 00001388 00000000"),
        "header cut short": bytes.fromhex("0003 00"),
        "body cut short": bytes.fromhex("0003 0004 00000001 0003") + b"raw" + bytes.fromhex("00000005"),
        "array of two thousand million": bytes.fromhex("0003 0004 00000001 0003")
        + b"raw"
        + bytes.fromhex("7fffffff"),
        "name longer than the frame": bytes.fromhex("0003 0004 00000001 7fff") + b"raw",
    }
    for label, frame in frames.items():
        with raw.Connection(bootstrap) as connection:
            connection.send_frame(frame)
            answer = connection.receive_frame()
            say.line(label, "closed" if answer is None else f"answered {answer.hex()[:24]}")
    for label, size in {"empty frame": 0, "negative size": -1, "frame of 200 MB": 200_000_000}.items():
        with raw.Connection(bootstrap) as connection:
            connection.send_bytes(size.to_bytes(4, "big", signed=True))
            answer = connection.receive_frame()
            say.line(label, "closed" if answer is None else "answered")


def main() -> None:
    args = arguments(__doc__)
    say = Transcript(args.prefix, args.settle_s)
    with raw.Connection(args.bootstrap) as connection:
        say.section("ApiVersions")
        api_versions(say, connection)
        say.section("every API at every version")
        every_version(say, connection)
        say.section("refused")
        refused(say, args.bootstrap)
        connection.call(raw.DELETE_TOPICS, 1, {"topic_names": [say.topic("versions")], "timeout": 5000})


if __name__ == "__main__":
    main()
