"""Responses that are kept (option.response_store), to be continued, read and deleted by their ids.

    POST   /v1/responses {"previous_response_id"}    goes on after the items of that one and its output
    GET    /v1/responses/{id}                        the response as it was
    GET    /v1/responses/{id}/input_items            what it answered
    DELETE /v1/responses/{id}

Each is kept with all that led to it, so that it does not need those before it: they may be gone. Without the option
nothing is kept, which the response says (`store: false`), and what needs one that is kept is refused by name.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...model.engine import EngineInfo
from ...model.errors import NotFoundError, ParameterError, PreviousResponseError, UnsupportedError
from ...model.options import Settings
from ..base import Request, Response, encode, variable_part
from ..response_store import ResponseStore
from .bodies import Stored
from .items import listed

__all__ = [
    "STORED_PATH",
    "Deleted",
    "ItemList",
    "answered_items",
    "delete",
    "previous_items",
    "retrieve",
]

STORED_PATH = "/v1/responses/{id}"
OPTION = "option.response_store=true"
_decode = msgspec.json.Decoder(Stored).decode


def answered_items(
    wanted: bool | None, previous: list[dict[str, Any]], given: Any, store: ResponseStore | None
) -> bytes | None:
    """The items that a response answers, as JSON, if it is to be kept; else None. They have been read; raises
    RequestError.

    wanted: `store`. Where responses are kept, one that does not say is kept, as at OpenAI's; where they are not, the
    response says so.
    """
    if store is None or wanted is False:
        return None
    # Long before the response's end, and not on the engine's thread.
    items = encode([*previous, *listed(given)])
    if (size := len(items)) > store.max_bytes:
        raise ParameterError(
            f"store: the input has {size} bytes, expected at most {store.max_bytes} (option.response_store_max_bytes)",
            "store",
        )
    return items


def previous_items(response_id: str | None, store: ResponseStore | None) -> list[dict[str, Any]]:
    """The items that led to a response, and those of its output; raises RequestError."""
    if response_id is None:
        return []
    if store is None:
        raise UnsupportedError(
            f"previous_response_id: not supported, responses are not kept here ({OPTION} is not set)",
            "previous_response_id",
        )
    kept = store.get(response_id)
    if kept is None:
        message = f"previous_response_id: Previous response with id {response_id[:128]!r} not found."
        raise PreviousResponseError(message, "previous_response_id")
    stored = _decode(kept)
    return [*_items(stored), *msgspec.json.decode(stored.response)["output"]]


def _items(stored: Stored) -> list[dict[str, Any]]:
    return msgspec.json.decode(stored.input, type=list[dict[str, Any]])


def _found(store: ResponseStore | None, response_id: str) -> Stored:
    kept = None if store is None else store.get(response_id)
    if kept is None:
        raise _unknown(store, response_id)
    return _decode(kept)


def _unknown(store: ResponseStore | None, response_id: str) -> NotFoundError:
    why = f" (responses are not kept here: {OPTION} is not set)" if store is None else ""
    return NotFoundError(f"response_id: no response with the id {response_id[:128]!r} is there{why}", "response_id")


class Deleted(msgspec.Struct, frozen=True):
    """What is said of a response that is kept no longer."""

    id: str
    object: str = "response"
    deleted: bool = True


class ItemList(msgspec.Struct, frozen=True):
    """Items, all of them."""

    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool = False
    object: str = "list"


def retrieve(request: Request, settings: Settings, info: EngineInfo) -> Response:
    """A response that is kept, or what it answered; raises RequestError."""
    response_id, slash, what = variable_part(STORED_PATH, request.path).partition("/")
    stored = _found(request.responses, response_id)
    if slash:
        return _input_items(stored, what, request)
    if request.query.get("stream") == "true":
        raise UnsupportedError("stream: a response that is kept is sent whole", "stream")
    return Response(bytes(stored.response))


def delete(request: Request, settings: Settings, info: EngineInfo) -> Response:
    """Forgets a response; raises NotFoundError."""
    response_id, store = variable_part(STORED_PATH, request.path), request.responses
    if store is None or not store.remove(response_id):
        raise _unknown(store, response_id)
    return Response(encode(Deleted(response_id)))


def _input_items(stored: Stored, what: str, request: Request) -> Response:
    """What a response answered, the latest first unless `order=asc`; raises NotFoundError."""
    if what != "input_items":
        raise NotFoundError.of("path", request.path, f"{STORED_PATH} or {STORED_PATH}/input_items")
    items = _items(stored)
    if request.query.get("order", "desc") != "asc":
        items = items[::-1]
    ids = [item["id"] for item in items]
    return Response(encode(ItemList(items, ids[0], ids[-1])))
