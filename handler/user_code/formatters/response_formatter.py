"""djl_python's formatters of responses: `@output_formatter def g(response)`, the form of its async handlers.

    whole     the dialect's body --Response--> g --> a body
    stream    each of the dialect's records, "data: {...}" --> g --> a record

What g returns is a dict, a string or an object of pydantic's. To an `inputs` request djl_python gives vLLM's text
completion: that is what `response.choices` is, while as a mapping the response is LMI's documented answer, which is
what is sent of a response that is returned, unless g has changed the completion. A Response (lmi.handler.api), or the
pair (body, content type) of SageMaker's output_fn, has headers or a type of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

import msgspec

from ....formatters import Response
from ....formatters.base import JSON, JSON_LINES, ResponseEncoder
from ....model.errors import LmiError, UserCodeError
from ....model.events import Event
from ..loading import Function
from ..safe_reply import GuardedEncoder

__all__ = ["FormattedChunksEncoder", "FormattedEncoder", "FormatterResponse"]

EXPECTED = "a dict, a str, bytes, a Response or an object with model_dump_json"


class FormatterResponse(dict[str, Any]):
    """A JSON object whose members are attributes too, as those of vLLM's responses; the same for all within it."""

    __slots__ = ("_completion", "_original")

    def __init__(self, members: Mapping[str, Any], completion: Mapping[str, Any] | None = None) -> None:
        super().__init__({key: _wrapped(value) for key, value in members.items()})
        object.__setattr__(self, "_original", completion)
        object.__setattr__(self, "_completion", None if completion is None else FormatterResponse(completion))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self:
            return self[name]
        completion = self._completion
        if completion is None or name not in completion:
            raise AttributeError(f"the response has no {name}; it has {', '.join(completion or self)}")
        return completion[name]

    def __setattr__(self, name: str, value: Any) -> None:
        completion = self._completion
        target = completion if completion is not None and name in completion and name not in self else self
        target[name] = value

    def changed_completion(self) -> dict[str, Any] | None:
        """The completion, where it has been changed."""
        completion = self._completion
        plain: dict[str, Any] | None = None if completion is None else _plain(completion)
        return None if plain == self._original else plain

    def model_dump(self, **_: Any) -> dict[str, Any]:
        """As of pydantic's objects: a plain dict, also of what is within."""
        return self.changed_completion() or cast("dict[str, Any]", _plain(self))

    def model_dump_json(self, **_: Any) -> str:
        """As of pydantic's objects."""
        return msgspec.json.encode(self.model_dump()).decode()


def _wrapped(value: Any) -> Any:
    if isinstance(value, dict):
        return FormatterResponse(cast("dict[str, Any]", value))
    return [_wrapped(inner) for inner in value] if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in cast("dict[str, Any]", value).items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def _models(value: Any) -> Any:
    """Objects of pydantic's within a dict."""
    if hasattr(value, "model_dump"):
        return value.model_dump()
    raise TypeError(f"a {type(value).__name__} is no JSON")


def response_of(returned: object, function: Function) -> Response:
    """What the function returned, as a body with headers of its own, if any; raises UserCodeError."""
    if isinstance(returned, Response):
        body: Any = returned.body
        texts: list[Any] = [returned.content_type, *returned.headers, *returned.headers.values()]
        if returned.status != 200 or not isinstance(body, bytes) or not all(isinstance(text, str) for text in texts):
            expected = "one of status 200, with a body of bytes and headers of texts (to refuse, raise a RequestError)"
            raise UserCodeError(f"{function.name} returned a wrong Response, expected {expected}")
        return returned
    if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], str):
        return replace(response_of(returned[0], function), content_type=returned[1])
    if isinstance(returned, bytes | bytearray):
        return Response(bytes(returned))
    return Response(text_of(returned, function).encode())


def text_of(returned: object, function: Function) -> str:
    """What the function returned as text; raises UserCodeError."""
    try:
        if isinstance(returned, str):
            return returned
        if isinstance(returned, FormatterResponse):
            returned = returned.model_dump()
        if isinstance(returned, dict | list):
            return msgspec.json.encode(returned, enc_hook=_models).decode()
        if callable(dump := getattr(returned, "model_dump_json", None)) and isinstance(text := dump(), str):
            return text
        if callable(dump := getattr(returned, "model_dump", None)):
            return msgspec.json.encode(dump(), enc_hook=_models).decode()
    except Exception as error:  # noqa: BLE001 - whatever the user's objects do
        raise function.refuse(returned, f"{EXPECTED} ({error})") from None
    raise function.refuse(returned, EXPECTED)


class FormattedEncoder(GuardedEncoder):
    """The answer to a request that is not streamed."""

    def __init__(
        self,
        inner: ResponseEncoder,
        refuse: Callable[[LmiError], Response],
        function: Function,
        completion: ResponseEncoder | None,
    ) -> None:
        super().__init__(inner, refuse)
        self._function = function
        self._completion = completion

    def _records(self, event: Event, prompt: int) -> Iterator[bytes]:
        inner = self._inner
        records = inner.feed(event, prompt)
        other = self._completion.feed(event, prompt) if self._completion is not None else []
        if not inner.finished:
            return
        self.finished = True
        if inner.failure is not None:
            raise inner.failure
        body: Any = msgspec.json.decode(b"".join(records))
        completion = msgspec.json.decode(b"".join(other)) if other else None
        # TGI's body is a list of one.
        within = isinstance(body, list) and len(body) == 1
        given = _given(body[0] if within else body, completion)
        returned = self._function(given)
        if within and returned is given and not (isinstance(given, FormatterResponse) and given.changed_completion()):
            returned = [given]
        answer = response_of(returned, self._function)
        self.status, self.content_type = inner.status, answer.content_type
        self.headers = {**inner.headers, **answer.headers}
        yield answer.body


def _given(body: Any, completion: Mapping[str, Any] | None) -> Any:
    return FormatterResponse(cast("dict[str, Any]", body), completion) if isinstance(body, dict) else _wrapped(body)


class FormattedChunksEncoder(GuardedEncoder):
    """The answer to a request that is streamed."""

    def __init__(self, inner: ResponseEncoder, refuse: Callable[[LmiError], Response], function: Function) -> None:
        super().__init__(inner, refuse)
        self._function = function
        self._headed = False
        """Whether content type and headers are settled."""

    def _records(self, event: Event, prompt: int) -> Iterator[bytes]:
        inner = self._inner
        records = inner.feed(event, prompt)
        if inner.failure is not None:
            raise inner.failure
        self.status = inner.status
        for record in records:
            answer = response_of(self._function(record.decode()), self._function)
            if answer.body:
                self._take_head(answer)
                yield answer.body if answer.body.endswith(b"\n") else answer.body + b"\n"
        self.finished = inner.finished

    def _take_head(self, answer: Response) -> None:
        """Of the first that is sent."""
        if self._headed:
            return
        self._headed = True
        self.headers = {**self._inner.headers, **answer.headers}
        if answer.content_type != JSON:
            self.content_type = answer.content_type
        else:
            # djl_python says JSON lines of whatever it is; events that are passed on are events.
            self.content_type = self._inner.content_type if answer.body.startswith(b"data:") else JSON_LINES
