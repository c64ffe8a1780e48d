"""Protobuf schemas: a file's text, or its descriptor in base 64, as a descriptor that has been checked.

    text        -> compiled, in a process of its own (`schemas/protoc_process.py`)
    base 64     -> decoded, and built together with what it imports

What it imports comes as descriptors too, by the names that the file uses; google/protobuf/*.proto is always
there.  A descriptor is the same for what differs in comments, white space and the file's own name alone.
"""

import binascii
import subprocess
import sys
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from google.protobuf import descriptor_pb2 as pb
from google.protobuf import descriptor_pool
from google.protobuf.message import DecodeError

from anabranch.schemas.errors import InvalidSchema, LibraryMissing
from anabranch.schemas.protoc_process import COMPILED, IMPORTS, NOT_INSTALLED, SOURCE

FILE_NAME = "schema.proto"

_COMPILE_S = 15.0
_KNOWN = (
    *("any", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp"),
    *("wrappers", "type", "api"),  # the last two import others
)


class Parsed(NamedTuple):
    file: pb.FileDescriptorProto
    imports: dict[str, pb.FileDescriptorProto]


def parse(text: str, imports: Mapping[str, bytes]) -> Parsed:
    """InvalidSchema if it is none; `imports` are descriptors by the names that the file uses, those first
    that others of them need."""
    needed = {name: _descriptor(data, name) for name, data in imports.items()}
    file = _decoded(text)
    if file is None:
        packed = tuple((name, told.SerializeToString()) for name, told in needed.items())
        file = pb.FileDescriptorProto.FromString(_compiled(text, packed))
    file.name = FILE_NAME
    file.ClearField("source_code_info")
    if not file.message_type and not file.enum_type:
        raise InvalidSchema("this is no Protobuf schema: it has neither a message nor an enum")
    _build(file, needed)
    return Parsed(file, needed)


def identity(file: pb.FileDescriptorProto) -> bytes:
    """The same for what means the same: without the names that JSON would have anyway."""
    plain = pb.FileDescriptorProto()
    plain.CopyFrom(file)
    messages = list(plain.message_type)
    while messages:
        message = messages.pop()
        messages += message.nested_type
        for field in (*message.field, *message.extension):
            if field.json_name == _json_name(field.name):
                field.ClearField("json_name")
    return plain.SerializeToString(deterministic=True)


def is_text(schema: str) -> bool:
    """Whether it is a file's text, not a descriptor."""
    return _decoded(schema) is None


def serialized(file: bytes) -> str:
    """As Kafka's clients want it who ask for `format=serialized`."""
    return b64encode(file).decode()


def _json_name(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)


def _decoded(text: str) -> pb.FileDescriptorProto | None:
    """The descriptor that is in base 64; None if it is text."""
    try:
        data = b64decode(text.strip(), validate=True)
        return pb.FileDescriptorProto.FromString(data) if data else None
    except (binascii.Error, ValueError, DecodeError):
        return None


def _descriptor(data: bytes, name: str) -> pb.FileDescriptorProto:
    file = pb.FileDescriptorProto.FromString(data)
    file.name = name
    return file


def _build(file: pb.FileDescriptorProto, imports: Mapping[str, pb.FileDescriptorProto]) -> None:
    """InvalidSchema if names, numbers or types do not go together."""
    pool = descriptor_pool.DescriptorPool()
    try:
        for known in _well_known():
            if known.name not in imports:
                pool.Add(known)
        for needed in imports.values():
            pool.Add(needed)
        pool.Add(file)
        pool.FindFileByName(file.name)
    except (TypeError, KeyError, ValueError) as error:
        raise InvalidSchema(f"this is no Protobuf schema: {str(error)[:500]}") from error


@lru_cache(maxsize=1)
def _well_known() -> tuple[pb.FileDescriptorProto, ...]:
    from importlib import import_module

    files = []
    for name in _KNOWN:
        module = import_module(f"google.protobuf.{name}_pb2")
        files.append(pb.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb))
    return tuple(files)


@lru_cache(maxsize=16)
def _compiled(text: str, imports: tuple[tuple[str, bytes], ...]) -> bytes:
    """The descriptor of a file's text."""
    needed = pb.FileDescriptorSet(file=[_descriptor(data, name) for name, data in imports])
    with tempfile.TemporaryDirectory(prefix="anabranch-protobuf-") as folder:
        Path(folder, SOURCE).write_text(text, encoding="utf-8")
        Path(folder, IMPORTS).write_bytes(needed.SerializeToString())
        command = [sys.executable, "-m", "anabranch.schemas.protoc_process", folder]
        try:
            done = subprocess.run(command, capture_output=True, timeout=_COMPILE_S, check=False)
        except subprocess.TimeoutExpired:
            raise InvalidSchema("this Protobuf schema takes too long to compile") from None
        if done.returncode == NOT_INSTALLED:
            raise LibraryMissing("schemas of this type need grpcio-tools: pip install 'anabranch[schemas]'")
        if done.returncode:
            told = done.stderr.decode("utf-8", "replace").replace(f"{folder}/", "").strip()
            raise InvalidSchema(f"this is no Protobuf schema: {told[:500]}")
        compiled = pb.FileDescriptorSet.FromString(Path(folder, COMPILED).read_bytes())
    return compiled.file[0].SerializeToString()
