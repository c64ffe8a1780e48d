"""docs/configuration.md says what the code declares."""

from importlib.util import module_from_spec, spec_from_file_location

from tests.tidy.tree import ROOT


def test_the_page_is_what_the_code_declares() -> None:
    spec = spec_from_file_location("configuration", ROOT / "docs" / "configuration.py")
    assert spec is not None
    assert spec.loader is not None
    generator = module_from_spec(spec)
    spec.loader.exec_module(generator)
    written = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert written == generator.page(), "docs/configuration.md is out of step; run: make docs"
