"""Compiles the .proto files under src: `make proto`.

The modules that protoc writes refuse a runtime older than protoc itself.  What ours use has been in protobuf
for years, so that check is taken out: pyproject.toml says which runtimes will do.
"""

import re
import sys
from pathlib import Path

import grpc_tools
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("anabranch/records/pulsar_metadata.proto", "anabranch/wire/pulsar/commands.proto")

_VERSION_CHECK = re.compile(
    r"^from google\.protobuf import runtime_version.*?\n"
    r"|^_runtime_version\.Validate.*?^\)\n"
    r"|^# Protobuf Python Version.*?\n",
    re.MULTILINE | re.DOTALL,
)


def compile_into(out: Path) -> list[Path]:
    """Write a module and its types for every source; which."""
    include = Path(grpc_tools.__file__).parent / "_proto"
    arguments = ["protoc", f"-I{ROOT / 'src'}", f"-I{include}", f"--python_out={out}", f"--pyi_out={out}"]
    if protoc.main([*arguments, *SOURCES]):
        sys.exit("protoc failed")
    written = []
    for source in SOURCES:
        module = (out / source).with_name(Path(source).stem + "_pb2.py")
        module.write_text(_VERSION_CHECK.sub("", module.read_text()))
        written += [module, module.with_suffix(".pyi")]
    return written


if __name__ == "__main__":
    for path in compile_into(ROOT / "src"):
        print(path.relative_to(ROOT))
