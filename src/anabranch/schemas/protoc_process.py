"""A process that compiles one Protobuf file, and has but little time and memory for it.

    python -m anabranch.schemas.protoc_process <folder>     schema.proto, imports.bin -> schema.bin

The compiler is written in C++ and its input is anybody's, so it runs apart from the broker, which loses
nothing but the answer when it fails.  What is wrong with the file is on standard error.
"""

import sys
from pathlib import Path

SOURCE, IMPORTS, COMPILED = "schema.proto", "imports.bin", "schema.bin"
NOT_INSTALLED = 3

_CPU_S = 5
_MEMORY_BYTES = 1 << 30


def main(folder: str) -> int:
    _bound()
    try:
        from grpc_tools import protoc
    except ImportError:
        return NOT_INSTALLED
    return int(
        protoc.main(
            [
                "protoc",
                f"--descriptor_set_in={folder}/{IMPORTS}",
                f"-I{folder}",
                f"-I{Path(protoc.__file__).parent / '_proto'}",
                f"--descriptor_set_out={folder}/{COMPILED}",
                f"{folder}/{SOURCE}",
            ]
        )
    )


def _bound() -> None:
    try:
        import resource
    except ImportError:  # on Windows, where time is bounded by who waits
        return
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
