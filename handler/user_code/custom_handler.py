"""`handle` in model.py beside our entry point: djl_python's custom handler (custom_handler_service.py, async handlers).

    Input --handle--> None                          the request is served as if there were no handle
                  --> Output                        a whole answer, or with stream content a stream
                  --> async generator of Outputs    a stream

It is called for every request, whatever its body and path, and once before the engine starts: with no content, and the
options as properties. An Output's content is a body, or the frame that djl_python.async_utils makes of one (`data`,
`last`, `error`, `code`); its properties are headers. One with a parameter `session` is given the request's, or None.
"""

from __future__ import annotations

import inspect
import logging
import operator
import struct
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from types import AsyncGeneratorType
from typing import Any, TypeVar

import msgspec

from ...formatters import ParsedRequest, Request, Response
from ...formatters.base import JSON, JSON_LINES, encode
from ...formatters.common.encoder import Encoder
from ...model.errors import LmiError, OptionError, RequestError, UserCodeError
from ...model.events import Failed
from ...model.log import current
from ...model.options import Settings
from .. import calls_custom_handler
from ..threads.pool import Workers
from .formatters.djl_formatters import input_of, request_io, session_of
from .loading import Function, kind_of, shown
from .safe_reply import plain_error_line

__all__ = ["CustomHandler", "Relayed"]

log = logging.getLogger(__name__)

T = TypeVar("T")

NAME = "model.py: handle"
ITS_OUTPUTS = "model.py: the generator of handle"
END: Any = object()
"""What comes after the last of a generator's."""


@dataclass(frozen=True, slots=True)
class Frame:
    """An Output of the user's, read."""

    body: bytes
    content_type: str
    headers: Mapping[str, str]
    status: int = 200
    last: bool = False
    error: str = ""

    def response(self) -> Response:
        """The answer that it is by itself."""
        failure = UserCodeError(self.error) if self.error else None
        return Response(self.body, self.status, self.content_type, self.headers, failure)


@dataclass(slots=True, kw_only=True)
class RelayedReply(Encoder):
    """The head of a stream that no engine makes; it is fed what ends it early."""

    begun: bool = True

    def _break_off(self, error: LmiError) -> list[bytes]:
        return plain_error_line(error)


@dataclass(frozen=True, slots=True)
class Relayed:
    """A stream of the user's."""

    call: ParsedRequest
    records: Generator[bytes]
    """Runs user code for each; what fails there becomes the last one."""


class CustomHandler:
    """The user's `handle`."""

    def __init__(self, function: Callable[..., Any], settings: Settings, workers: Workers) -> None:
        # Its argument is djl_python's.
        request_io(NAME)
        self._settings = settings
        self._workers = workers
        self._function = self._guarded(function, NAME)
        self._session = session_of(function)

    def _guarded(self, function: Callable[..., Any], name: str) -> Function:
        return Function(partial(_marked, function), name, self._workers)

    @property
    def takes_session(self) -> bool:
        """Whether it is given the request's session."""
        return bool(self._session)

    def start(self, options: Mapping[str, str]) -> None:
        """The call for the initialisation, with the options as they were given. Raises OptionError."""
        inputs = input_of(None)
        inputs.properties = {**options, "model_dir": self._settings.model_dir}
        try:
            returned = self._function(inputs, **self._session)
        except UserCodeError as error:
            raise OptionError(f"{error.message} at the initialisation", "model.py") from error
        if returned is not None:
            # djl_python's handler would start no engine then.
            raise OptionError(
                f"{NAME} returned {kind_of(returned)} at the initialisation (inputs.is_empty()), expected None: what "
                "it leaves is served by this handler's engine; one that has an engine of its own is served by "
                "option.entryPoint=model.py",
                "model.py",
            )

    def answer(self, request: Request) -> Response | Relayed | None:
        """What it makes of a request; what fails in it is djl_python's own answer, as no dialect is known yet. Raises
        RequestError.
        """
        try:
            returned = self._function(input_of(request), **dict.fromkeys(self._session, request.session))
            if returned is None:
                return None
            if isinstance(returned, AsyncGeneratorType):
                return _first_of(self._outputs(returned))
            if not _is_output(returned):
                raise self._function.refuse(returned, "None, an Output or an async generator of Outputs")
            if returned.stream_content is not None:
                return _first_of(self._pieces(returned))
            return _frame_of(returned, JSON).response()
        except RequestError:
            raise
        except Exception as error:  # noqa: BLE001 - what was raised is logged where the user's function is called
            failed = _failed(error)
            return Response(encode({"error": failed.message, "code": 424}), 424, JSON, failure=failed)

    def _outputs(self, outputs: AsyncGeneratorType[Any, Any]) -> Generator[Frame]:
        """Of a generator of Outputs."""

        async def following() -> Any:
            return await anext(outputs, END)

        step = self._guarded(following, ITS_OUTPUTS)
        try:
            while (output := step()) is not END:
                if not _is_output(output):
                    raise step.refuse(output, "Outputs")
                yield _frame_of(output, JSON_LINES)
        except GeneratorExit:
            # It has said that it was the last one, or its client has gone.
            with suppress(Exception):
                self._workers.finish(ITS_OUTPUTS, outputs.aclose)
            raise

    def _pieces(self, output: Any) -> Generator[Frame]:
        """Of an Output with stream content, formatted as `Output.send` of djl_python does."""
        head = _frame_of(output, JSON_LINES)

        def following() -> Any:
            piece = next(output.stream_content, END)
            return piece if piece is END or (form := output.stream_output_formatter) is None else form(piece)

        step = self._guarded(following, ITS_OUTPUTS)
        while (piece := step()) is not END:
            yield replace(head, body=_bytes_of(piece))


def _failed(error: Exception) -> LmiError:
    """What a request ends with. What is none of ours came of reading an Output: its parts may be of any type."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, UserCodeError):
        return UserCodeError(f"Custom handler failed: {error.message}")
    log.error("request %s: model.py: an Output of handle cannot be read", current(), exc_info=error)
    return UserCodeError(f"Custom handler failed: model.py: an Output of handle cannot be read: {shown(error)}")


def _marked(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """What it returns, while `lmi.handler.handle` knows where it is called."""
    before = calls_custom_handler.set(True)
    try:
        returned = function(*arguments, **named)
    finally:
        calls_custom_handler.reset(before)
    return _marked_awaitable(returned) if inspect.isawaitable(returned) else returned


async def _marked_awaitable(awaitable: Awaitable[T]) -> T:
    # In the context of a task of its own.
    calls_custom_handler.set(True)
    return await awaitable


def _first_of(frames: Generator[Frame]) -> Response | Relayed:
    """A stream, whose head its first frame has, or the answer where that is all of it."""
    first = next(frames, None)
    if first is None:
        return Response(b"", content_type=JSON_LINES)
    if first.last or first.error:
        frames.close()
        return first.response()
    reply = RelayedReply(status=first.status, content_type=first.content_type, headers=first.headers)
    return Relayed(ParsedRequest((), reply, stream=True), _records(first, frames, reply))


def _records(first: Frame, frames: Generator[Frame], reply: RelayedReply) -> Generator[bytes]:
    try:
        if first.body:
            yield first.body
        for frame in frames:
            if frame.error:
                yield from reply.feed(Failed.of(UserCodeError(frame.error)))
                return
            if frame.body:
                yield frame.body
            if frame.last:
                return
    except Exception as error:  # noqa: BLE001 - _failed logs it
        yield from reply.feed(Failed.of(_failed(error)))
    finally:
        frames.close()


def _is_output(returned: object) -> bool:
    return any(base.__name__ == "Output" for base in type(returned).__mro__)


def _frame_of(output: Any, content_type: str) -> Frame:
    """`content_type`: where it says none."""
    headers = {str(name): str(value) for name, value in output.properties.items()}
    named = next((name for name in headers if name.lower() == "content-type"), "")
    if named:
        content_type = headers.pop(named)
    keys, values = output.content.get_keys(), output.content.get_values()
    body = bytes(values[keys.index("data") if "data" in keys else 0]) if values else b""
    if (fields := _fields_of(body)) is not None:
        if error := fields.get("error", ""):
            code = int(given) if (given := fields.get("code", "")).isdecimal() else 424
            return Frame(encode({"error": error, "code": code}), JSON, headers, code, True, error)
        return Frame(fields["data"].encode(), content_type, headers, last=fields.get("last", "").lower() == "true")
    status = operator.index(output.code)
    error = _said_of_failure(body, output.message) if status >= 400 else ""
    return Frame(body, content_type, headers, status, error=error)


def _fields_of(item: bytes) -> dict[str, str] | None:
    """The fields of a frame (`Output.binary_encode`: a 16-bit count, then keys and values by 32-bit lengths)."""
    texts: list[str] = []
    try:
        (count,), at = struct.unpack_from(">h", item), 2
        for _ in range(2 * count):
            (length,) = struct.unpack_from(">i", item, at)
            at += 4 + length
            if length < 0 or at > len(item):
                return None
            texts.append(item[at - length : at].decode())
    except (struct.error, UnicodeDecodeError):
        return None
    fields = dict(zip(texts[::2], texts[1::2], strict=True))
    return fields if at == len(item) and {"data", "last"} <= fields.keys() else None


def _said_of_failure(body: bytes, message: object) -> str:
    """What hosts tell that write the body of an error themselves: what `Output.error` has, or the message."""
    with suppress(msgspec.DecodeError):
        document = msgspec.json.decode(body)
        if isinstance(document, dict) and isinstance(error := document.get("error"), str) and error:
            return error
    return str(message or "the request failed")


def _bytes_of(piece: Any) -> bytes:
    if isinstance(piece, str):
        return piece.encode()
    return bytes(piece) if isinstance(piece, bytes | bytearray) else msgspec.json.encode(piece)
