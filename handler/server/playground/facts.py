"""/playground/setup.json: what the page must know of the model, and the requests that it offers.

    model       name, context, engine, media (how many of each kind a prompt may have), limits (of their bytes, by the
                options' names), adapters, sessions, tools, reasoning
    requests    one for each route of a dialect that makes something of a body: an Example with what is sent, and by
                which custom attributes this server (`here`) and an endpoint's /invocations know it

It needs the key, as everything that tells of the model does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ....formatters import DIALECTS, Dialect, Request, Route, detect
from ....formatters.dialect import UNDESCRIBED
from ....formatters.routing import INVOCATIONS, ROUTE
from ....model.engine import EngineInfo
from ....model.errors import RequestError
from ....model.options import Settings
from .examples import EXAMPLES, Example

__all__ = ["setup"]


def setup(settings: Settings, info: EngineInfo, user_dialects: Sequence[Dialect] = ()) -> dict[str, Any]:
    """The document."""
    return {
        "model": {
            "name": settings.model_name,
            "context": info.context,
            "engine": f"{info.engine} {info.version}",
            "media": {"image": info.images, "audio": info.audio, "video": info.video},
            "limits": {
                "max_body_bytes": settings.limits.max_body_bytes,
                "max_image_bytes": settings.media.max_bytes,
                "max_audio_bytes": settings.media.max_audio_bytes,
                "max_video_bytes": settings.media.max_video_bytes,
            },
            "lora": settings.adapters.enable_lora,
            "adapters": [adapter.name for adapter in info.adapters],
            "sessions": settings.sessions.enable_stateful_sessions,
            "tools": settings.tool_call_parser,
            "reasoning": settings.reasoning_parser,
        },
        "requests": [*_requests(settings, info, user_dialects)],
    }


def _requests(settings: Settings, info: EngineInfo, user_dialects: Sequence[Dialect]) -> Iterator[dict[str, Any]]:
    known = (*user_dialects, *(dialect for dialect in DIALECTS if _does(dialect, info)))
    named: dict[str, Dialect] = {dialect.name: dialect for dialect in reversed(known)}
    for example in EXAMPLES:
        dialect = named.get(example.dialect)
        if dialect and _serves(example, dialect, settings):
            yield _request(example, dialect, settings, user_dialects)
    told = {(example.dialect, path) for example in EXAMPLES for path in (example.path, example.stream_path)}
    for dialect in known:
        for route in dialect.routes:
            own = route.path not in (INVOCATIONS, "/") and _takes_a_body(route)
            if own and (dialect.name, route.path) not in told and (route.described or UNDESCRIBED).serves(settings):
                yield _request(_unknown(dialect, route), dialect, settings, user_dialects)
        if dialect in user_dialects and not any(map(_takes_a_body, dialect.routes)):
            example = Example(dialect.name, INVOCATIONS, dialect.name, lambda _: {})
            yield _request(example, dialect, settings, user_dialects)


def _does(dialect: Dialect, info: EngineInfo) -> bool:
    """Whether the model does what the dialect is for."""
    if dialect.read_file is not None:
        return info.transcribes
    return info.answers or dialect.name == "tokens"


def _takes_a_body(route: Route) -> bool:
    return "POST" in route.methods and route.page is None


def _serves(example: Example, dialect: Dialect, settings: Settings) -> bool:
    routes = [one for one in dialect.routes if one.path == example.path and _takes_a_body(one)]
    if example.serves is not None:
        return (example.path == INVOCATIONS or bool(routes)) and example.serves(settings)
    return any((route.described or UNDESCRIBED).serves(settings) for route in routes)


def _unknown(dialect: Dialect, route: Route) -> Example:
    """For a route without an entry."""
    title = (route.described.summary if route.described else "") or route.path
    return Example(dialect.name, route.path, title, lambda _: {}, query=f"{route.query}=" if route.query else "")


def _request(
    example: Example, dialect: Dialect, settings: Settings, user_dialects: Sequence[Dialect]
) -> dict[str, Any]:
    body = example.body(settings.model_name)
    by_body = example.by_body and _detected(body, settings, user_dialects) is dialect
    attributes = "" if by_body else _attributes(example, example.path)
    # option.dialect goes before the path.
    other = settings.dialect not in (None, example.dialect)
    here = attributes if example.path == INVOCATIONS else f"dialect={example.dialect}" if other else ""
    return {
        "dialect": example.dialect,
        "title": example.title,
        "path": example.path,
        "query": example.query,
        "headers": dict(example.headers),
        "here": here,
        "attributes": attributes,
        "body": body,
        "starts": example.starts,
        "texts": example.texts,
        "numbers": example.numbers,
        "switches": [
            {"title": "Offer a tool" if name == "tools" else name, "set": added}
            for name, added in example.switches.items()
            if name != "tools" or settings.tool_call_parser
        ],
        "stream": example.stream,
        "stream_path": example.stream_path,
        "stream_attributes": _attributes(example, example.stream_path) if example.stream_path else "",
        "media": example.media,
        "file": example.file,
        "client": example.client,
        "adapter": "model" if dialect.names_model else "adapters",
    }


def _detected(body: dict[str, Any], settings: Settings, user_dialects: Sequence[Dialect]) -> Dialect | None:
    try:
        return detect(body, Request(b"", path=INVOCATIONS), settings, user_dialects)
    except RequestError:
        return None


def _attributes(example: Example, path: str) -> str:
    """The custom attributes that lead a request on /invocations there."""
    if path == INVOCATIONS:
        return f"dialect={example.dialect}"
    return f"{ROUTE}={path}" + (f"?{example.query}" if example.query else "")
