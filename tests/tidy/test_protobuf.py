"""What protoc made is what the .proto files say."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from tests.tidy.tree import ROOT


def test_compiled_files_are_in_step(tmp_path: Path) -> None:
    spec = spec_from_file_location("protobuf", ROOT / "docs" / "protobuf.py")
    assert spec is not None
    assert spec.loader is not None
    compiler = module_from_spec(spec)
    spec.loader.exec_module(compiler)
    for made in compiler.compile_into(tmp_path):
        there = ROOT / "src" / made.relative_to(tmp_path)
        # protoc's releases differ in their remarks; what counts is the description itself.
        described = [line for line in made.read_text().splitlines() if "AddSerializedFile" in line]
        assert described == [
            line for line in there.read_text().splitlines() if "AddSerializedFile" in line
        ], f"{there.name} is out of step; run: make proto"
