"""Protobuf files: what may follow what, text and descriptors, and texts that are meant to hurt."""

from base64 import b64encode

import pytest
from google.protobuf import descriptor_pb2

from anabranch.schemas import protobuf, protobuf_comparison
from anabranch.schemas.errors import InvalidSchema
from anabranch.schemas.protobuf_text import text_of

HEAD = 'syntax = "proto3"; package shop; '

RICH = """
syntax = "proto2";
package shop;
import "google/protobuf/timestamp.proto";
import "item.proto";
option java_package = "com.example.shop";
message Order {
  option deprecated = true;
  enum State { option allow_alias = true; NEW = 0; FRESH = 0; SENT = 5; reserved 7 to 9; reserved "OLD"; }
  message Line { required string sku = 1; optional int32 count = 2 [default = 1]; }
  required string id = 1 [json_name = "ID"];
  repeated Line lines = 2;
  optional State state = 3 [default = SENT];
  map<string, Line> by_sku = 4;
  oneof payment { string card = 5; bytes cash = 6; }
  optional google.protobuf.Timestamp at = 7;
  repeated int32 sizes = 8 [packed = true];
  optional Item item = 9;
  optional string note = 10 [default = "a \\"b\\""];
  optional double rate = 11 [default = 1.5];
  reserved 20, 30 to 40;
  reserved "gone";
  extensions 100 to max;
  repeated group Part = 12 { optional int32 n = 1; }
}
extend Order { optional string extra = 100; }
service Orders { rpc Place (Order) returns (stream Item); }
"""
ITEM = 'syntax = "proto3"; package shop; message Item { optional int32 n = 1; int64 old_name = 2; }'


@pytest.fixture(scope="module")
def rich() -> protobuf.Parsed:
    item = protobuf.parse(ITEM, {})
    return protobuf.parse(RICH, {"item.proto": item.file.SerializeToString()})


def test_text_and_descriptor_say_the_same(rich: protobuf.Parsed) -> None:
    imports = {name: file.SerializeToString() for name, file in rich.imports.items()}
    again = protobuf.parse(text_of(rich.file), imports)
    assert protobuf.identity(again.file) == protobuf.identity(rich.file)
    packed = b64encode(rich.file.SerializeToString()).decode()
    assert not protobuf.is_text(packed)
    assert protobuf.identity(protobuf.parse(packed, imports).file) == protobuf.identity(rich.file)
    item = rich.imports["item.proto"]
    assert "optional int32 n = 1;" in text_of(item)


def test_comments_and_white_space_mean_nothing() -> None:
    one = protobuf.parse(f"{HEAD} message M {{ int32 a = 1; }}", {})
    other = protobuf.parse(f"{HEAD}\n// of it\nmessage M {{\n  int32 a = 1; // a\n}}\n", {})
    assert protobuf.identity(one.file) == protobuf.identity(other.file)


FIELDS = {  # what M has before and after, and what that is called; the empty name is: fine
    "the same": ("int32 a = 1;", "int32 a = 1;", ""),
    "renamed": ("int32 a = 1;", "int32 b = 1;", ""),
    "one more": ("int32 a = 1;", "int32 a = 1; string b = 2;", ""),
    "one less": ("int32 a = 1; string b = 2;", "int32 a = 1;", ""),
    "of the same group": ("int32 a = 1;", "uint64 a = 1;", ""),
    "number to enum": ("int32 a = 1; enum E { Z = 0; }", "E a = 1; enum E { Z = 0; }", ""),
    "string to bytes": ("string a = 1;", "bytes a = 1;", ""),
    "number to string": ("int32 a = 1;", "string a = 1;", "FIELD_SCALAR_KIND_CHANGED"),
    "int32 to sint32": ("int32 a = 1;", "sint32 a = 1;", "FIELD_SCALAR_KIND_CHANGED"),
    "number to message": ("int32 a = 1; message N {}", "N a = 1; message N {}", "FIELD_KIND_CHANGED"),
    "numbers repeated": ("int32 a = 1;", "repeated int32 a = 1;", "FIELD_NUMERIC_LABEL_CHANGED"),
    "strings repeated": ("string a = 1;", "repeated string a = 1;", ""),
    "another message": (
        "N a = 1; message N {} message O {}",
        "O a = 1; message N {} message O {}",
        "FIELD_NAMED_TYPE_CHANGED",
    ),
    "a message inside differs": (
        "N a = 1; message N { int32 x = 1; }",
        "N a = 1; message N { string x = 1; }",
        "FIELD_SCALAR_KIND_CHANGED",
    ),
    "a message inside gone": ("message N {}", "", "MESSAGE_REMOVED"),
    "values of a map": (
        "map<string, int32> a = 1;",
        "map<string, string> a = 1;",
        "FIELD_SCALAR_KIND_CHANGED",
    ),
    "map to message": (
        "map<string, int32> a = 1; message N {}",
        "repeated N a = 1; message N {}",
        "FIELD_KIND_CHANGED",
    ),
    "one field into a oneof": ("int32 a = 1;", "oneof o { int32 a = 1; string b = 2; }", ""),
    "two fields into a oneof": (
        "int32 a = 1; string b = 2;",
        "oneof o { int32 a = 1; string b = 2; }",
        "MULTIPLE_FIELDS_MOVED_TO_ONEOF",
    ),
    "into a oneof that was there": (
        "int32 a = 1; oneof o { string b = 2; }",
        "oneof o { int32 a = 1; string b = 2; }",
        "FIELD_MOVED_TO_EXISTING_ONEOF",
    ),
    "out of a oneof": (
        "oneof o { int32 a = 1; string b = 2; }",
        "int32 a = 1; oneof o { string b = 2; }",
        "",
    ),
    "gone from a oneof": (
        "oneof o { int32 a = 1; string b = 2; }",
        "oneof o { int32 a = 1; }",
        "ONEOF_FIELD_REMOVED",
    ),
    "a oneof gone": ("int32 c = 3; oneof o { int32 a = 1; string b = 2; }", "int32 c = 3;", ""),
    "optional now": ("int32 a = 1;", "optional int32 a = 1;", ""),
}


def message(fields: str) -> protobuf.Parsed:
    return protobuf.parse(f"{HEAD} message M {{ {fields} }}", {})


@pytest.mark.parametrize(("old", "new", "kind"), FIELDS.values(), ids=FIELDS)
def test_what_may_follow(old: str, new: str, kind: str) -> None:
    found = protobuf_comparison.differences(message(new), message(old))
    assert {one.kind for one in found} == ({kind} if kind else set())


def test_packages_and_required_fields() -> None:
    def file(package: str, fields: str) -> protobuf.Parsed:
        return protobuf.parse(f'syntax = "proto2"; package {package}; message M {{ {fields} }}', {})

    plain, asking = file("a", ""), file("a", "required int32 x = 1;")
    assert [one.kind for one in protobuf_comparison.differences(file("b", ""), plain)] == ["PACKAGE_CHANGED"]
    assert [one.kind for one in protobuf_comparison.differences(asking, plain)] == ["REQUIRED_FIELD_ADDED"]
    assert [one.kind for one in protobuf_comparison.differences(plain, asking)] == ["REQUIRED_FIELD_REMOVED"]


def test_what_is_imported_counts() -> None:
    order = 'syntax = "proto3"; package shop; import "item.proto"; message Order { Item item = 1; }'
    other = ITEM.replace("int32 n", "string n")
    old, new = (
        protobuf.parse(order, {"item.proto": protobuf.parse(item, {}).file.SerializeToString()})
        for item in (ITEM, other)
    )
    assert protobuf_comparison.differences(old, old) == []
    assert [one.kind for one in protobuf_comparison.differences(new, old)] == ["FIELD_SCALAR_KIND_CHANGED"]


def test_messages_that_hold_themselves() -> None:
    tree = message("M left = 1; M right = 2; N n = 3; message N { M m = 1; }")
    assert protobuf_comparison.differences(tree, tree) == []


def packed(file: descriptor_pb2.FileDescriptorProto) -> str:
    return b64encode(file.SerializeToString()).decode()


def test_work_has_an_end() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="f", syntax="proto3")
    for n in range(500):
        field = file.message_type.add(name=f"M{n}").field.add(name="f", number=1, label=1, type=11)
        field.type_name = f".M{(n + 1) % 500}"
    chain = protobuf.parse(packed(file), {})
    with pytest.raises(InvalidSchema, match="intricate"):
        protobuf_comparison.differences(chain, chain)


def test_groups_and_oneofs_as_text() -> None:
    told = 'syntax = "proto2"; message M { optional group A = 1 { optional int32 n = 1; } '
    tree = protobuf.parse(told + "oneof one { string s = 2; group B = 3 { optional M m = 1; } } }", {})
    assert protobuf.identity(protobuf.parse(text_of(tree.file), {}).file) == protobuf.identity(tree.file)


def test_a_group_whose_message_is_elsewhere() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="f", syntax="proto2")
    file.message_type.add(name="G")
    file.message_type.add(name="M").field.add(name="g", number=1, label=1, type=10, type_name=".G")
    with pytest.raises(InvalidSchema, match="group"):
        text_of(protobuf.parse(packed(file), {}).file)


@pytest.mark.parametrize(
    "text",
    [
        "message {",
        "nothing at all",
        'syntax = "proto3"; message M { int32 a = 1; int32 b = 1; }',
        'syntax = "proto3"; message M { Unknown a = 1; }',
        'syntax = "proto3"; import "none.proto"; message M {}',
        'syntax = "proto3"; import "/etc/passwd"; message M {}',
        'syntax = "proto3";',
        "message M {" * 5000,
        packed(descriptor_pb2.FileDescriptorProto(name="f", dependency=["none.proto"])),
        packed(descriptor_pb2.FileDescriptorProto(name="f", dependency=["google/protobuf/../os.proto"])),
    ],
    ids=lambda text: text[:40],
)
def test_what_is_no_schema(text: str) -> None:
    with pytest.raises(InvalidSchema):
        protobuf.parse(text, {})
