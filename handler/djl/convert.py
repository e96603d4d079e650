"""DJL's Input becomes requests, frames and answers become its Output.

Facts of the host: DJL Serving 0.36.0 and ai.djl.python 0.34.0 (PyPredictor, RequestParser, djl_python.inputs/outputs).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from djl_python import Input, Output

from ...formatters import Request
from ...formatters.base import JSON
from ..headers import attributes_of, request_id_of
from .adapters import AdapterCall
from .call_limit import NextCall
from .dynamic_batch import Chunks, Whole
from .frames import Frame, message_of_batch
from .last_chunk import LastChunkApart

__all__ = [
    "BatchOutput",
    "RawOutput",
    "adapter_call_of",
    "initialises",
    "is_dynamic_batch",
    "output_of_adapter_call",
    "output_of_response",
    "output_of_responses",
    "request_of",
    "requests_of_batch",
    "requests_of_dynamic_batch",
]

REQUEST_ID = "requestId"
OF_THE_BATCH = {"batch_size", "handler"}
"""Properties that Java gives a dynamic batch as a whole."""
NUMBERED = re.compile(r"batch_\d{3}\.")


def request_of(inputs: Input) -> Request:
    """A request on its own: the body is the content item `data` or the first one, the others are query parameters."""
    if inputs.is_empty():
        # A form without fields.
        return _request(b"", inputs.get_properties(), {})
    keys = inputs.content.get_keys()
    values = inputs.content.get_values()
    at = keys.index("data") if "data" in keys else 0
    query = {
        key: bytes(value).decode(errors="replace")
        for position, (key, value) in enumerate(zip(keys, values, strict=True))
        if position != at and key is not None
    }
    return _request(bytes(values[at]), inputs.get_properties(), query)


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
    items: list[Request | None] = []
    for key, value in zip(inputs.content.get_keys(), inputs.content.get_values(), strict=True):
        if not key.endswith(".data"):
            continue
        own = properties.get(len(items))
        items.append(None if own is None and not value else _request(bytes(value), own or {}, {}))
    return items


def initialises(inputs: Input) -> bool:
    """Whether it is the one that starts the engine. A client's request may have no content either, as a form without
    fields, but has an id.
    """
    return inputs.is_empty() and REQUEST_ID not in inputs.get_properties()


def is_dynamic_batch(inputs: Input) -> bool:
    """Whether it holds several requests of a dynamic batch, and not one by itself.

    Java numbers every name of theirs, and leaves the names of a request by itself as they are: those of its headers,
    attributes and query parameters, which a client may call `batch_size`, and its `requestId`, which is always there
    (PyPredictor.batchPredict, InferenceRequestHandler).
    """
    names = [*inputs.get_properties(), *inputs.content.get_keys()]
    return "batch_size" in names and all(name in OF_THE_BATCH or NUMBERED.match(name or "") for name in names)


def requests_of_dynamic_batch(inputs: Input) -> list[Request]:
    """The items of a dynamic batch: content and properties of item 7 are named `batch_007.<name>`."""
    size = int(inputs.get_properties()["batch_size"])
    properties: list[dict[str, str]] = [{} for _ in range(size)]
    contents: list[dict[str, bytes]] = [{} for _ in range(size)]
    for key, value in inputs.get_properties().items():
        if key != "batch_size" and key.startswith("batch_"):
            properties[int(key[6:9])][key[10:]] = value
    for key, value in zip(inputs.content.get_keys(), inputs.content.get_values(), strict=True):
        contents[int(key[6:9])].setdefault(key[10:], bytes(value))
    return [
        _request(
            content.pop("data", b""),
            own,
            {name: value.decode(errors="replace") for name, value in content.items()},
        )
        for own, content in zip(properties, contents, strict=True)
    ]


def _request(body: bytes, properties: Mapping[str, Any], query: dict[str, str]) -> Request:
    headers = {name.lower(): value for name, value in properties.items()}
    return Request(
        body=body,
        headers=headers,
        query=query,
        # djl_python adds numbers and functions of its own.
        attributes=attributes_of((name, value) for name, value in properties.items() if isinstance(value, str)),
        request_id=request_id_of(properties.get(REQUEST_ID)),
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
