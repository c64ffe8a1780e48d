"""Small files, functions that fit a screen, modules that open with their idea."""

import ast
from pathlib import Path

import pytest

from tests.tidy.tree import parsed, relative, source_files

LONG_FILE_LINES = 400
LONG_FILES_SHARE = 0.10
FUNCTION_LINES = 60


def lines_of(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_few_lines_live_in_long_files() -> None:
    sizes = {path: lines_of(path) for path in source_files()}
    long = {relative(path): size for path, size in sizes.items() if size > LONG_FILE_LINES}
    assert sum(long.values()) < LONG_FILES_SHARE * sum(sizes.values()), f"too much code in long files: {long}"


@pytest.mark.parametrize("path", source_files(), ids=relative)
def test_functions_fit_a_screen(path: Path) -> None:
    functions = (n for n in ast.walk(parsed(path)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    long = {f.name: f.end_lineno - f.lineno + 1 for f in functions if f.end_lineno is not None}
    long = {name: lines for name, lines in long.items() if lines > FUNCTION_LINES}
    assert not long, f"{relative(path)}: longer than {FUNCTION_LINES} lines: {long}"


@pytest.mark.parametrize("path", source_files(), ids=relative)
def test_a_module_opens_with_its_idea(path: Path) -> None:
    module = parsed(path)
    assert not module.body or ast.get_docstring(module), f"{relative(path)} has no docstring"
