"""Types of schemas: how the binary protocol numbers what REST and the registry call by name."""

from anabranch.schemas.errors import InvalidSchema
from anabranch.wire.pulsar import commands_pb2 as pb

_NAMES: dict[pb.Schema.Type, str] = {
    pb.Schema.String: "STRING",
    pb.Schema.Json: "JSON",
    pb.Schema.Protobuf: "PROTOBUF",
    pb.Schema.Avro: "AVRO",
    pb.Schema.Bool: "BOOLEAN",
    pb.Schema.Int8: "INT8",
    pb.Schema.Int16: "INT16",
    pb.Schema.Int32: "INT32",
    pb.Schema.Int64: "INT64",
    pb.Schema.Float: "FLOAT",
    pb.Schema.Double: "DOUBLE",
    pb.Schema.Date: "DATE",
    pb.Schema.Time: "TIME",
    pb.Schema.Timestamp: "TIMESTAMP",
    pb.Schema.KeyValue: "KEY_VALUE",
    pb.Schema.Instant: "INSTANT",
    pb.Schema.LocalDate: "LOCAL_DATE",
    pb.Schema.LocalTime: "LOCAL_TIME",
    pb.Schema.LocalDateTime: "LOCAL_DATE_TIME",
    pb.Schema.ProtobufNative: "PROTOBUF_NATIVE",
    pb.Schema.External: "EXTERNAL",
}
_TYPES = {name: number for number, name in _NAMES.items()}


def name_of_type(type: pb.Schema.Type) -> str:
    """InvalidSchema if it is the type of none."""
    name = _NAMES.get(type)
    if name is None:
        raise InvalidSchema(f"no schema is of type {type}")
    return name


def type_of_name(name: str) -> pb.Schema.Type:
    type = _TYPES.get(name)
    if type is None:
        raise InvalidSchema(f"no schema is of type {name[:100]!r}")
    return type
