"""DJL's Input becomes requests, frames and answers become its Output.

Facts of the host: DJL Serving 0.36.0 and ai.djl.python 0.34.0 (PyPredictor, RequestParser, djl_python.inputs/outputs).

A client's headers and custom attributes are properties of its Input, its query parameters and form fields are content
items, each by the name that the client gives it. Java's own names are its own only where it makes a new Input: of a
rolling batch's step, and of a dynamic batch of several. Of a request on its own nothing is read but what is a client's
to say, and in async mode `request_tracking_id`, which Java puts over the client's (AsyncRequestManager.addInput).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from djl_python import Input, Output

from ...formatters import Request
from ...formatters.base import JSON, attributes_of, request_id_of
from ...formatters.common.json_body import FORM
from .adapters import AdapterCall
from .frames import Frame, message_of_batch
from .modes.call_limit import NextCall
from .modes.dynamic_batch import Chunks, Whole
from .modes.last_chunk import LastChunkApart

__all__ = [
    "BatchOutput",
    "RawOutput",
    "adapter_call_of",
    "is_start",
    "output_of_adapter_call",
    "output_of_response",
    "output_of_responses",
    "request_of",
    "requests_of_batch",
    "requests_of_dynamic_batch",
]

REQUEST_ID = "requestid"
CONTENT_TYPE = "content-type"
ITEM = re.compile(r"batch_([0-9]{3,5})\.(.*)", re.DOTALL)
"""What Java calls the properties and contents of a batch's items (PyPredictor.batchPredict, RollingBatch.run)."""


def is_start(inputs: Input) -> bool:
    """Whether it is Java's call to start the engine, whose properties are options and which has no content.

    A client's form without fields has no content either, but an id (InferenceRequestHandler), in whatever case.
    """
    return inputs.is_empty() and not any(name.lower() == REQUEST_ID for name in inputs.get_properties())


def request_of(inputs: Input) -> Request:
    """A request on its own: the body is the last content item `data`, which Java adds behind the query's parameters, or
    else the first one; the others are query parameters. Of a form all items are parts, and the body is empty.
    """
    keys = inputs.content.get_keys()
    values = inputs.content.get_values()
    properties = inputs.get_properties()
    if _is_form(properties):
        return _form(properties, zip(keys, values, strict=True))
    at = max((position for position, key in enumerate(keys) if key == "data"), default=0)
    query = {
        key: bytes(value).decode(errors="replace")
        for position, (key, value) in enumerate(zip(keys, values, strict=True))
        if position != at and key is not None
    }
    return _request(bytes(values[at]) if values else b"", properties, query)


def _is_form(properties: Mapping[str, Any]) -> bool:
    """Whether Java has taken a form apart (RequestParser.parseRequest): it has one item for each part."""
    kind = next((value for name, value in properties.items() if name.lower() == CONTENT_TYPE), "")
    return str(kind).lower().startswith(FORM)


def _form(properties: Mapping[str, Any], items: Iterable[tuple[str | None, Any]]) -> Request:
    parts = tuple((key or "", bytes(value)) for key, value in items)
    return replace(_request(b"", properties, {}), form=parts)


def adapter_call_of(inputs: Input) -> AdapterCall:
    """What Java asks about an adapter."""
    properties = inputs.get_properties()
    items = zip(inputs.content.get_keys(), inputs.content.get_values(), strict=True)
    options = {key: bytes(value).decode(errors="replace") for key, value in items if key is not None}
    return AdapterCall(
        str(properties.get("handler")),
        str(properties.get("name") or ""),
        properties.get("alias") or None,
        str(properties.get("src") or ""),
        options,
    )


def output_of_adapter_call(code: int, message: str) -> Output:
    """The answer to it."""
    return Output().error(message, code=code, message=message) if code >= 300 else Output(code, message)


def requests_of_batch(inputs: Input) -> list[Request | None]:
    """The items of a rolling batch in Java's order; None for one that runs already: it has no properties, no data."""
    properties: dict[int, dict[str, str]] = {}
    for key, value in inputs.get_properties().items():
        prefix, dot, name = key.partition(".")
        if dot and prefix.startswith("batch_"):
            properties.setdefault(int(prefix[6:]), {})[name] = value
    values = inputs.content.get_values()
    if not properties and not any(values):
        # Most calls: nothing is new.
        return [None] * len(values)
    items: list[Request | None] = []
    for key, value in zip(inputs.content.get_keys(), values, strict=True):
        if not key.endswith(".data"):
            continue
        own = properties.get(len(items))
        items.append(None if own is None and not value else _request(bytes(value), own or {}, {}))
    return items


def requests_of_dynamic_batch(inputs: Input) -> list[Request] | None:
    """The items of a dynamic batch of several: content and properties of item 7 are named `batch_007.<name>`.

    None for a request that has come alone, whatever names its client uses: its body is the item `data`, unless it is a
    form, which has a Content-Type (RequestParser.parseRequest). A batch has neither by these names, and has all of its
    items.
    """
    given: Mapping[str, Any] = inputs.get_properties()
    if any(name.lower() == CONTENT_TYPE for name in given):
        return None
    items: defaultdict[int, tuple[dict[str, str], dict[str, bytes]]] = defaultdict(lambda: ({}, {}))
    for name, value in given.items():
        if found := ITEM.fullmatch(name):
            items[int(found[1])][0][found[2]] = value
    for key, content in zip(inputs.content.get_keys(), inputs.content.get_values(), strict=True):
        found = ITEM.fullmatch(key or "")
        if found is None:
            return None
        items[int(found[1])][1][found[2]] = bytes(content)
    if given.get("batch_size") != str(len(items)) or items.keys() != set(range(len(items))):
        return None
    return [_item(properties, contents) for _, (properties, contents) in sorted(items.items())]


def _item(properties: Mapping[str, Any], contents: dict[str, bytes]) -> Request:
    if _is_form(properties):
        return _form(properties, contents.items())
    body = contents.pop("data", b"")
    return _request(body, properties, {name: value.decode(errors="replace") for name, value in contents.items()})


def _request(body: bytes, properties: Mapping[str, Any], query: dict[str, str]) -> Request:
    # djl_python adds numbers and functions of its own.
    texts = {name: value for name, value in properties.items() if isinstance(value, str)}
    headers = {name.lower(): value for name, value in texts.items()}
    return Request(
        body=body,
        headers=headers,
        query=query,
        attributes=attributes_of(texts.items()),
        request_id=request_id_of(headers.get(REQUEST_ID)),
    )


class RawOutput:
    """A message of AsyncBatcher's, with what djl_python's async engine asks of an Output."""

    def __init__(self, message: bytes, sent: Callable[[], None]) -> None:
        """`sent` is called once it has been written."""
        self._message = message
        self._sent = sent

    def add_property(self, name: str, value: str) -> None:
        """Nothing: the message is whole, each frame in it with its request's id."""

    def send(self, cl_socket: Any) -> None:
        """On djl_python's sending thread."""
        cl_socket.sendall(self._message)
        self._sent()


class BatchOutput(Output):  # type: ignore[misc]  # djl_python has no types
    """All frames of a step (rolling batch)."""

    def __init__(self, frames: Sequence[Frame]) -> None:
        super().__init__()
        self._message = message_of_batch(frames)

    def send(self, cl_socket: Any) -> None:
        """In one write."""
        cl_socket.sendall(self._message)


class StreamedOutput(Output):  # type: ignore[misc]  # djl_python has no types
    """An Output with stream content."""

    def __init__(self, next_call: NextCall) -> None:
        """`next_call`: what may come meanwhile."""
        super().__init__()
        self._next_call = next_call

    def send(self, cl_socket: Any) -> None:
        """Returns once the stream has ended."""
        self._next_call.watch(cl_socket)
        super().send(LastChunkApart(cl_socket))


def output_of_response(answer: Whole | Chunks, next_call: NextCall) -> Output:
    """An answer on its own (a dynamic batch of one)."""
    if isinstance(answer, Whole):
        return _output_of_whole(answer)
    output = StreamedOutput(next_call)
    output.add_stream_content(answer.records, output_formatter=None)
    output.set_code(answer.status)
    output.properties.update(answer.headers)
    return output


def _output_of_whole(answer: Whole) -> Output:
    output = Output()
    output.content.add(value=answer.body)
    output.set_code(answer.status)
    output.properties.update(answer.headers)
    return output


def output_of_responses(answers: list[Whole]) -> Output:
    """The answers of a dynamic batch. They share status and headers: errors among them show in their bodies.

    What is wrong with all of them alike, such as an engine that is down, has its own status.
    """
    first = answers[0]
    if first.status >= 300 and all(answer == first for answer in answers):
        return _output_of_whole(first)
    output = Output()
    types = {answer.headers["Content-Type"] for answer in answers}
    output.properties["Content-Type"] = types.pop() if len(types) == 1 else JSON
    for index, answer in enumerate(answers):
        output.content.add(key=f"batch_{index}.data", value=answer.body)
    return output
