"""Protobuf schemas: a file's text, or its descriptor in base 64, as a descriptor that has been checked.

    text        -> compiled, in a process of its own (`schemas/protoc_process.py`)
    base 64     -> decoded, and built together with what it imports

What it imports comes as descriptors too, by the names that the file uses; google/protobuf/*.proto is always
there, google/type/*.proto if googleapis-common-protos is installed.  A descriptor is the same for what
differs in comments, white space and the file's own name alone.
"""

import binascii
import re
import subprocess
import sys
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from google.protobuf import descriptor_pb2 as pb
from google.protobuf import descriptor_pool
from google.protobuf.message import DecodeError

from anabranch.schemas.errors import InvalidSchema, LibraryMissing
from anabranch.schemas.protoc_process import COMPILED, IMPORTS, NOT_INSTALLED, SOURCE

FILE_NAME = "schema.proto"

_COMPILE_S = 15.0
_KNOWN = re.compile(r"google/(?:protobuf|type)/[a-z_]+\.proto")


class Parsed(NamedTuple):
    file: pb.FileDescriptorProto
    imports: dict[str, pb.FileDescriptorProto]


def parse(text: str, imports: Mapping[str, bytes]) -> Parsed:
    """InvalidSchema if it is none.

    `imports` are descriptors by the names that the file uses, those first that others of them need.
    """
    needed = {name: _descriptor(data, name) for name, data in imports.items()}
    if is_text(text):
        packed = tuple((name, told.SerializeToString()) for name, told in needed.items())
        file = pb.FileDescriptorProto.FromString(_compiled(text, packed))
    else:
        file = _decoded(text)
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
        # Where the messages stand that maps are made of depends on who made them.
        message.nested_type.sort(key=lambda nested: nested.options.map_entry)
        messages += message.nested_type
        for field in (*message.field, *message.extension):
            if field.json_name == _json_name(field.name):
                field.ClearField("json_name")
    return plain.SerializeToString(deterministic=True)


def is_text(schema: str) -> bool:
    """Whether it is a file's text, not a descriptor: a file has characters that base 64 has not."""
    try:
        return not b64decode(schema.strip(), validate=True)
    except (binascii.Error, ValueError):
        return True


def serialized(file: bytes) -> str:
    """As Kafka's clients want it who ask for `format=serialized`."""
    return b64encode(file).decode()


def _json_name(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)


def _decoded(packed: str) -> pb.FileDescriptorProto:
    try:
        return pb.FileDescriptorProto.FromString(b64decode(packed.strip()))
    except DecodeError as error:
        raise InvalidSchema(f"this is no Protobuf schema: {error}") from error


def _descriptor(data: bytes, name: str) -> pb.FileDescriptorProto:
    file = pb.FileDescriptorProto.FromString(data)
    file.name = name
    return file


def _build(file: pb.FileDescriptorProto, imports: Mapping[str, pb.FileDescriptorProto]) -> None:
    """InvalidSchema if names, numbers or types do not go together."""
    pool = descriptor_pool.DescriptorPool()
    try:
        for needed in (*imports.values(), file):
            for name in needed.dependency:
                if name not in imports:
                    _add_known(pool, name, set())
            pool.Add(needed)
        pool.FindFileByName(file.name)
    except (TypeError, KeyError, ValueError) as error:
        raise InvalidSchema(f"this is no Protobuf schema: {str(error)[:500]}") from error


def _add_known(pool: descriptor_pool.DescriptorPool, name: str, added: set[str]) -> None:
    """One of the files that everybody has, and those that it imports."""
    known = None if name in added else well_known(name)
    if known is not None:
        added.add(name)
        for other in known.dependency:
            _add_known(pool, other, added)
        pool.Add(known)


@lru_cache(maxsize=64)
def well_known(name: str) -> pb.FileDescriptorProto | None:
    """A file that everybody has, whether it is given or not; None if it is none."""
    if not _KNOWN.fullmatch(name):
        return None
    try:
        module = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    except ImportError:
        return None
    return pb.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)


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
            lines = done.stderr.decode("utf-8", "replace").replace(f"{folder}/", "").splitlines()
            told = "; ".join(line for line in lines if line.startswith(SOURCE)) or f"exit {done.returncode}"
            raise InvalidSchema(f"this is no Protobuf schema: {told[:500]}")
        compiled = pb.FileDescriptorSet.FromString(Path(folder, COMPILED).read_bytes())
    return compiled.file[0].SerializeToString()
