"""Responses that are kept (option.response_store), to be continued, read and deleted by their ids.

    POST   /v1/responses {"previous_response_id"}    goes on after the items of that one and its output
    GET    /v1/responses/{id}                        the response as it was
    GET    /v1/responses/{id}/input_items            what it answered
    DELETE /v1/responses/{id}
    POST   /v1/responses/{id}/cancel, /compact       refused by name

Each is kept with all that led to it, so that it does not need those before it: they may be gone. Without the option
nothing is kept, which the response says (`store: false`), and what needs one that is kept is refused by name.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...model.engine import EngineInfo
from ...model.errors import Fault, NotFoundError, ParameterError, PreviousResponseError, UnsupportedError
from ...model.options import Settings
from ..base import Request, Response, encode
from ..common.kinds import Filled
from ..dialect import variable_part
from ..response_store import ResponseStore
from .bodies import Stored
from .items import listed

__all__ = [
    "CANCEL_PATH",
    "COMPACT_PATH",
    "ITEMS_PATH",
    "STORED_PATH",
    "Deleted",
    "ItemList",
    "answered_items",
    "cancel",
    "compact",
    "delete",
    "input_items",
    "previous_items",
    "retrieve",
    "with_references",
]

STORED_PATH = "/v1/responses/{id}"
ITEMS_PATH = f"{STORED_PATH}/input_items"
CANCEL_PATH = f"{STORED_PATH}/cancel"
COMPACT_PATH = "/v1/responses/compact"
OPTION = "option.response_store=true"
_decode = msgspec.json.Decoder(Stored).decode
_decode_items = msgspec.json.Decoder(list[msgspec.Raw]).decode


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
    # Long before the response's end, and not on the engine's thread. One by one, here and in `_items`: there may be any
    # number of them, and between two the other threads go on.
    items = b"[" + b",".join([encode(item) for item in (*previous, *listed(given))]) + b"]"
    if (size := len(items)) > store.max_bytes:
        raise ParameterError.because(
            Fault(
                "store",
                f"the input has {size} bytes, expected at most {store.max_bytes} (option.response_store_max_bytes)",
            )
        )
    return items


def previous_items(response_id: str | None, store: ResponseStore | None) -> list[dict[str, Any]]:
    """The items that led to a response, and those of its output; raises RequestError."""
    if response_id is None:
        return []
    if store is None:
        raise UnsupportedError.because(
            Fault("previous_response_id", f"not supported, responses are not kept here ({OPTION} is not set)")
        )
    kept = store.get(response_id)
    if kept is None:
        message = f"previous_response_id: Previous response with id {response_id[:128]!r} not found."
        raise PreviousResponseError(message, "previous_response_id")
    stored = _decode(kept)
    return [*_items(stored), *msgspec.json.decode(stored.response)["output"]]


def with_references(given: Any, store: ResponseStore | None) -> Any:
    """An input whose item references are the items that they name; raises RequestError."""
    if not isinstance(given, list):
        return given
    kept = _KeptItems(store)
    return [
        kept.item(one.get("id"), f"input[{index}]") if _is_reference(one) else one for index, one in enumerate(given)
    ]


def _is_reference(item: Any) -> bool:
    """Its type may be left out."""
    if not isinstance(item, dict):
        return False
    kind = item.get("type")
    return kind == "item_reference" or (kind is None and "id" in item and item.keys() <= {"id", "type"})


class _KeptItems:
    """Items of responses that are kept; of a response that has several of an input it is read once."""

    def __init__(self, store: ResponseStore | None) -> None:
        self._store = store
        self._read: dict[str, dict[str, dict[str, Any]]] = {}
        """Items by their ids, by the responses'."""
        self._bytes = 0
        self._given = set[str]()

    def item(self, item_id: Any, place: str) -> dict[str, Any]:
        """The item; raises RequestError."""
        Filled().read(f"{place}.id", item_id)
        if item_id in self._given:
            raise ParameterError.because(Fault(f"{place}.id", f"the item {item_id[:128]!r} is there already"))
        self._given.add(item_id)
        if self._store is None:
            told = (
                f"not supported, responses are not kept here ({OPTION} is not set): send the item itself, as clients do"
            )
            raise UnsupportedError.because(Fault(f"{place}.type", f"'item_reference' is {told} with store: false"))
        response_id = self._store.having(item_id)
        items = {} if response_id is None else self._items_of(response_id, self._store, place)
        if item_id not in items:
            told = "send the item itself, as clients do with store: false"
            raise NotFoundError.because(Fault(f"{place}.id", f"Item with id {item_id[:128]!r} not found: {told}"))
        return items[item_id]

    def _items_of(self, response_id: str, store: ResponseStore, place: str) -> dict[str, dict[str, Any]]:
        if response_id not in self._read:
            kept = store.get(response_id) or b""
            self._bytes += len(kept)
            if self._bytes > REFERRED:
                raise ParameterError.because(
                    Fault(place, expected=f"references to responses of {REFERRED} bytes at most")
                )
            output = msgspec.json.decode(_decode(kept).response)["output"] if kept else []
            self._read[response_id] = {one["id"]: one for one in output}
        return self._read[response_id]


REFERRED = 1 << 26
"""Bytes that are looked through for the items of one request: each response is kept with all that led to it."""


def _items(stored: Stored) -> list[dict[str, Any]]:
    return [msgspec.json.decode(item) for item in _decode_items(stored.input)]


def _found(store: ResponseStore | None, response_id: str) -> Stored:
    kept = None if store is None else store.get(response_id)
    if kept is None:
        raise _unknown(store, response_id)
    return _decode(kept)


def _unknown(store: ResponseStore | None, response_id: str) -> NotFoundError:
    why = f" (responses are not kept here: {OPTION} is not set)" if store is None else ""
    return NotFoundError.because(Fault("response_id", f"no response with the id {response_id[:128]!r} is there{why}"))


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
    """A response that is kept; raises RequestError."""
    stored = _found(request.responses, variable_part(STORED_PATH, request.path))
    if request.query.get("stream") == "true":
        raise UnsupportedError.because(Fault("stream", "a response that is kept is sent whole"))
    return Response(bytes(stored.response))


def cancel(request: Request, settings: Settings, info: EngineInfo) -> Response:
    """Raises UnsupportedError: a response that runs ends when its client leaves."""
    raise UnsupportedError.because(Fault("cancel", "not supported, no response runs in the background"))


def compact(request: Request, settings: Settings, info: EngineInfo) -> Response:
    """Raises UnsupportedError."""
    raise UnsupportedError.because(Fault("compact", "not supported, send a summary of your own as a message"))


def delete(request: Request, settings: Settings, info: EngineInfo) -> Response:
    """Forgets a response; raises NotFoundError."""
    response_id, store = variable_part(STORED_PATH, request.path), request.responses
    if store is None or not store.remove(response_id):
        raise _unknown(store, response_id)
    return Response(encode(Deleted(response_id)))


def input_items(request: Request, settings: Settings, info: EngineInfo) -> Response:
    """What a response answered, the latest first unless `order=asc`; raises NotFoundError."""
    items = _items(_found(request.responses, variable_part(ITEMS_PATH, request.path)))
    if request.query.get("order", "desc") != "asc":
        items = items[::-1]
    ids = [item["id"] for item in items]
    return Response(encode(ItemList(items, ids[0], ids[-1])))
