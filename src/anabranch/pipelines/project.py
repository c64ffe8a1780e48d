"""A pipeline's project: a folder with Spark's own spec, definition files, and what runs leave behind.

    shop/
      spark-pipeline.yml     name, storage, which files, settings; `spark-pipelines run` reads it as well
      transformations/       definitions, Python or SQL
      storage/
        _checkpoints/        Spark's: how far every flow is
        _anabranch/          ours: the last run, the tables that there are, Spark's log
        tables/              the tables, a folder each

The storage may be elsewhere: a path, which is taken from where the spec is, or an address such as s3a://….
What is ours is kept beside the spec then.
"""

import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from anabranch.base.disk import DirectDisk
from anabranch.base.errors import Corrupt, Exists, Invalid, NotFound

SPEC_NAMES = ("spark-pipeline.yml", "spark-pipeline.yaml")
_FIELDS = ("name", "storage", "catalog", "database", "schema", "configuration", "libraries")
_OURS = "_anabranch"


class Project(NamedTuple):
    spec: Path
    name: str
    storage: str
    """An address, with its scheme."""
    catalog: str | None
    database: str | None
    configuration: dict[str, str]
    globs: tuple[str, ...]

    @property
    def folder(self) -> Path:
        return self.spec.parent

    @property
    def local_storage(self) -> Path | None:
        address = urlsplit(self.storage)
        return Path(unquote(address.path)) if address.scheme == "file" else None

    @property
    def notes(self) -> Path:
        """Where what we note about runs is."""
        return (self.local_storage or self.folder) / _OURS

    @property
    def tables(self) -> str:
        """Where tables are, unless the configuration says otherwise."""
        return f"{self.storage.rstrip('/')}/tables"

    def files(self) -> list[Path]:
        """The definition files, in order."""
        found: set[Path] = set()
        for glob in self.globs:
            if glob.endswith("/**"):
                glob += "/*"
            found.update(path for path in self.folder.glob(glob) if path.is_file())
        return sorted(path for path in found if "__pycache__" not in path.parts)


def find_spec(named: Path | None, here: Path) -> Path:
    """The spec: the one that is named (a file, or its folder), else that of this folder or one above it."""
    if named is not None and named.is_file():
        return named.resolve()
    folders = [named] if named is not None else [here, *here.resolve().parents]
    for folder in folders:
        for name in SPEC_NAMES:
            if (folder / name).is_file():
                return (folder / name).resolve()
    raise NotFound(f"there is no {SPEC_NAMES[0]} in {named or f'{here} or above it'}")


def load(spec: Path) -> Project:
    """The project of a spec.  Invalid says what is wrong with it."""
    import yaml

    try:
        document = yaml.safe_load(spec.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise Invalid(f"{spec} is not YAML: {' '.join(str(error).split())}") from None
    return unpack(spec, document)


def unpack(spec: Path, document: Any) -> Project:
    if not isinstance(document, dict):
        raise Invalid(f"{spec} has no fields; it needs at least name and storage")
    for field in document:
        if field not in _FIELDS:
            near = difflib.get_close_matches(str(field), _FIELDS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(_FIELDS)}"
            raise Invalid(f"{spec.name} has a field {field!r}, which there is not; {hint}")
    for field in ("name", "storage"):
        if not isinstance(document.get(field), str) or not document[field].strip():
            raise Invalid(f"{spec.name} needs a {field}")
    for field in ("catalog", "database", "schema"):
        if not isinstance(document.get(field) or "", str):
            raise Invalid(f"the {field} in {spec.name} must be text")
    globs = _globs(spec, document.get("libraries"))
    return Project(
        spec,
        document["name"],
        _address(document["storage"], spec.parent),
        document.get("catalog"),
        document.get("database", document.get("schema")),
        _configuration(spec, document.get("configuration") or {}),
        globs,
    )


def _address(storage: str, folder: Path) -> str:
    if urlsplit(storage).scheme:
        return storage
    return (folder / storage).resolve().as_uri()


def _configuration(spec: Path, given: Any) -> dict[str, str]:
    if not isinstance(given, Mapping):
        raise Invalid(f"the configuration of {spec.name} is not a list of NAME: VALUE")
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise Invalid(f"the setting {name} in {spec.name} must be text: write it in quotes")
    return dict(given)


def _globs(spec: Path, libraries: Any) -> tuple[str, ...]:
    try:
        globs = tuple(entry["glob"]["include"] for entry in libraries or ())
    except (TypeError, KeyError):
        raise Invalid(f"a library in {spec.name} is not `glob: {{include: PATH}}`") from None
    if not globs:
        raise Invalid(f"{spec.name} names no definitions: it needs libraries, `- glob: {{include: PATH}}`")
    for glob in globs:
        if not isinstance(glob, str) or not glob.strip():
            raise Invalid(f"{glob!r} in {spec.name} is not a path")
        if Path(glob).is_absolute():
            raise Invalid(f"{glob} in {spec.name} must be named from the folder of {spec.name}")
        # What Spark's own command takes, so that a project works with both.
        if any(sign in glob.removesuffix("/**") for sign in "*?["):
            raise Invalid(f"{glob} in {spec.name} must be a file, or a folder with /** after it")
    return globs


def create(folder: Path, *, example: bool) -> Project:
    """A new project.  Exists if there is something of that name."""
    from importlib.resources import files

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Exists(f"{folder} is there already")
    template = files("anabranch.pipelines") / ("example" if example else "starter")
    words = {"name": folder.name, "storage": (folder.resolve() / "storage").as_uri()}
    _copy(template, folder, words)
    return load(folder / SPEC_NAMES[0])


def _copy(template: Any, folder: Path, words: Mapping[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for entry in template.iterdir():
        if entry.is_dir():
            if entry.name != "__pycache__":
                _copy(entry, folder / entry.name, words)
            continue
        text = entry.read_text(encoding="utf-8")
        if not entry.name.endswith((".py", ".sql")):  # which have braces of their own
            text = text.format(**words)
        (folder / entry.name).write_text(text, encoding="utf-8")


def write_whole(path: Path, text: str) -> None:
    """Readers find the old text or the new one, never half of it, and find it after a power cut as well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    DirectDisk().write_whole(path, text.encode())


def read_json(path: Path) -> Any:
    """What is in a file of `write_whole`.  Corrupt if that is no JSON."""
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise Corrupt(f"{path} is damaged: {error}") from None
