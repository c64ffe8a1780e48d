"""The table of routes as an OpenAPI document."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from anabranch import __version__
from anabranch.admin.routes import Route

_BLANK = re.compile(r"\{(\w+)\}")
_REFERENCE = "#/components/schemas/{name}"


def description(routes: Sequence[Route]) -> dict[str, Any]:
    types = [kind for route in routes for kind in (route.body, route.answer) if kind not in (None, Any)]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    known = {id(kind): schema for kind, schema in zip(types, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, known)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Anabranch",
            "version": __version__,
            "description": "Administration and look-up; paths and JSON are Apache Pulsar's.",
        },
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": components},
    }


def _operation(route: Route, known: dict[int, Any]) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": _path_schema(name)}
        for name in _BLANK.findall(route.path)
    ]
    parameters += [{"name": name, "in": "query", "schema": {"type": "string"}} for name in route.query]
    operation: dict[str, Any] = {
        "operationId": f"{route.part}.{route.handler.__name__}.{_identifier(route)}",
        "summary": route.summary,
        "tags": [route.part],
        "parameters": parameters,
        "responses": {
            "204" if route.answer is None else "200": _answer(route, known),
            "4XX": {"description": "What is wrong with the request, as `reason`."},
        },
    }
    if route.body is not None:
        operation["requestBody"] = {"content": {"application/json": {"schema": _schema(route.body, known)}}}
    return operation


def _identifier(route: Route) -> str:
    return re.sub(r"\W+", "_", f"{route.method.lower()}{route.path}").strip("_")


def _path_schema(name: str) -> dict[str, Any]:
    if name == "domain":
        return {"type": "string", "enum": ["persistent", "non-persistent"]}
    return {"type": "string"}


def _answer(route: Route, known: dict[int, Any]) -> dict[str, Any]:
    if route.answer is None:
        return {"description": "Done."}
    return {
        "description": "OK",
        "content": {"application/json": {"schema": _schema(route.answer, known)}},
    }


def _schema(kind: Any, known: dict[int, Any]) -> Any:
    return {} if kind is Any else known[id(kind)]
