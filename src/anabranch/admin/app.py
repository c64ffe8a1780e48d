"""HTTP requests to handlers and back: an ASGI application over the table of routes.

Paths are matched before they are decoded, since a name may hold what would end a part of the path; a space is
`+` or `%20`, as Pulsar's clients write it.  Answers are Pulsar's: JSON without what is not set, 204 where
there is nothing to say, `{"reason": ...}` with the status of an error.
"""

import asyncio
import logging
from typing import Any
from urllib.parse import unquote_plus

import msgspec
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route as Matched
from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from anabranch.admin.call import Accepted, Call, Message, Text
from anabranch.admin.errors import Refused, reason_of, status_of
from anabranch.admin.openapi import description
from anabranch.admin.routes import Manner, Route, load_routes
from anabranch.admin.services import AdminServices
from anabranch.base.errors import AnabranchError, TooLarge

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 1 << 20
_BODY_S = 30.0


class _Domain(Convertor[str]):
    regex = "persistent|non-persistent"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("domain", _Domain())


class _Endpoint(Matched):
    """A route that says in JSON, as all refusals are, that it does not know a method."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        known = sorted(self.methods or ())
        if scope["method"] in known:
            await super().handle(scope, receive, send)
            return
        reason = f"there is no {scope['method'][:20]} of {scope['path'][:1000]}"
        answer = JSONResponse({"reason": reason}, status_code=405, headers={"Allow": ", ".join(known)})
        await answer(scope, receive, send)


class App:
    """The application: everything under one callable."""

    def __init__(self, services: AdminServices) -> None:
        self._services = services
        self._routes = load_routes()
        matched = [self._matched(route) for route in self._routes]
        matched.append(Matched("/openapi.json", self._describe, methods=["GET"]))
        self._router = Router(matched, redirect_slashes=False, default=_not_found)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            raw: bytes = scope.get("raw_path") or scope["path"].encode()
            scope = {**scope, "path": raw.decode("latin-1").rstrip("/") or "/"}
            await self._router(scope, receive, send)

    def _matched(self, route: Route) -> Matched:
        async def endpoint(request: Request) -> Response:
            return await self._answer(route, request)

        path = route.path.replace("{domain}", "{domain:domain}")
        matched = _Endpoint(path, endpoint, methods=[route.method])
        matched.methods = {route.method}  # a HEAD is none of ours
        return matched

    async def _answer(self, route: Route, request: Request) -> Response:
        try:
            body = await _body_of(route, request)
            path = {name: unquote_plus(text, errors="strict") for name, text in request.path_params.items()}
            result = await route.handler(Call(self._services, path, request.query_params, body))
        except (AnabranchError, OSError) as error:
            return _refusal(error, route.manner)
        except UnicodeDecodeError:
            return _refusal(Refused(400, "the path is not UTF-8"), route.manner)
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception as error:
            log.exception("%s %s failed", route.method, route.path)
            return _refusal(error, route.manner)
        return _response(result, "application/json" if route.manner is None else route.manner.media)

    async def _describe(self, request: Request) -> Response:
        return JSONResponse(description(self._routes))


async def _body_of(route: Route, request: Request) -> Any:
    """What the body says, in the type that the route names."""
    parts, size = [], 0
    try:
        async with asyncio.timeout(_BODY_S):
            async for part in request.stream():
                size += len(part)
                if size > MAX_BODY_BYTES:
                    raise TooLarge(f"the body is larger than {MAX_BODY_BYTES} bytes")
                parts.append(part)
    except TimeoutError:
        raise Refused(408, f"the body did not come within {_BODY_S:.0f} s") from None
    if route.body is None:
        return None
    text = b"".join(parts)
    try:
        body = msgspec.json.decode(text or b"null", type=route.body, strict=False)
        if route.manner is None:
            msgspec.msgpack.encode(body)  # which has numbers of 64 bits, as Pulsar: no larger one is kept
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise Refused(400, f"the body is not what it should be: {error}") from None
    return body


def _response(result: object, media: str) -> Response:
    if result is None:
        return Response(status_code=204)
    if isinstance(result, Text):
        return PlainTextResponse(result.text, media_type=result.media)
    if isinstance(result, Message):
        return Response(result.payload, media_type="application/octet-stream", headers=dict(result.headers))
    status = 200
    if isinstance(result, Accepted):
        status, result = 202, result.value
    told = msgspec.json.encode(without_nulls(result))
    return Response(told, status_code=status, media_type=media)


def without_nulls(value: object) -> object:
    """`value` in JSON's own types, nothing in it that is not set."""
    return _pruned(msgspec.to_builtins(_whole(value), str_keys=True))


def _whole(value: object) -> object:
    """A structure with all its fields: those that have their default are left out of documents only."""
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(value)
        return {field.encode_name: _whole(getattr(value, field.name)) for field in fields}
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_whole(item) for item in value]
    return value


def _pruned(value: object) -> object:
    if isinstance(value, dict):
        return {key: _pruned(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_pruned(item) for item in value]
    return value


def _refusal(error: BaseException, manner: Manner | None) -> Response:
    if manner is None:
        return JSONResponse({"reason": reason_of(error)}, status_code=status_of(error))
    status, told = manner.refusal(error)
    return JSONResponse(told, status_code=status, media_type=manner.media)


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    reason = f"there is nothing at {scope['path'][:1000]}; /openapi.json lists what there is"
    await JSONResponse({"reason": reason}, status_code=404)(scope, receive, send)
