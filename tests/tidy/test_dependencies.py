"""What the package imports is what it depends on: nothing forgotten, nothing carried along."""

import ast
import re
import sys
import tomllib

from tests.tidy.tree import ROOT, parsed, source_files


def imported() -> set[str]:
    """The top-level names of what is neither ours nor Python's own."""
    names: set[str] = set()
    for path in source_files():
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.split(".")[0])
    return names - sys.stdlib_module_names - {"anabranch"}


IMPORTED_AS = {
    "grpcio-tools": "grpc_tools",
    "protobuf": "google",
    "pulsar-client": "pulsar",
    "pyyaml": "yaml",
}
HELD_BACK = {"pandas"}  # PySpark imports it, and would take a version that it warns of


def test_dependencies_are_what_is_imported() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {name: entries for name, entries in project["optional-dependencies"].items() if name != "dev"}
    entries = [*project["dependencies"], *(entry for more in extras.values() for entry in more)]
    names = [re.split(r"[^\w.-]", entry)[0] for entry in entries]
    assert imported() == {IMPORTED_AS.get(name, name).replace("-", "_") for name in names} - HELD_BACK
