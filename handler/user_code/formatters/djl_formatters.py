"""djl_python's custom formatters, in every form that users' model.py files have (djl_python 0.34 to 0.36).

    request --InputFormatter.read--> payload --a dialect's parse--> ParsedRequest
    ParsedRequest --OutputFormatter.around--> ParsedRequest, whose encoder calls the function

    f(decoded_payload: dict, tokenizer=None, **kwargs) -> dict          async handlers
    f(input_item: Input, **kwargs) -> RequestInput                      rolling batch
    g(response) -> dict | str | object of pydantic's                    async handlers         custom_response.py
    g(request_output: TextGenerationOutput) -> str                      rolling batch          custom_tokens.py
    g(token, first_token, last_token, details, generated_text, request_id) -> str              the oldest

A function's form is determined by its signature, and all of them are served on every host. One with a parameter
`session` is given the request's (formatters/sessions.py), or None; djl_python gives formatters none. An input formatter
with a parameter `request` is given lmi.handler.api's Request too: its headers and attributes.
"""

from __future__ import annotations

import inspect
import itertools
import typing
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Literal, cast

import msgspec

from ....formatters import Dialect, ParsedRequest, Request, Response, read_body
from ....formatters.base import Payload
from ....model.errors import Fault, LmiError, OptionError, UnsupportedError
from ....model.generation import Generation
from ....model.options import Settings
from ...threads.pool import Workers
from ..loading import Function
from .response_formatter import FormattedChunksEncoder, FormattedEncoder
from .token_formatter import FormattedTokensEncoder
from .tokenizer import Tokenizer

__all__ = ["InputFormatter", "OutputFormatter", "as_json", "input_of", "request_io", "session_of"]

OUTPUTS = {"RequestOutput", "TextGenerationOutput"}
INPUTS = {"RequestInput", "TextInput"}
SESSION = "session"
"""The parameter for the request's session."""


def request_io(label: str) -> Any:
    """djl_python's module of formatters' objects; raises OptionError, naming who needs it, where it is not there."""
    try:
        import djl_python.request_io
    except ImportError as error:
        raise OptionError(f"{label} needs djl_python, which cannot be imported here: {error}", "model.py") from error
    return djl_python.request_io


def input_of(request: Request | None) -> Any:
    """djl_python's Input of a request, which is alone in it; None: an empty one."""
    from djl_python import Input

    item: Any = Input()
    if request is not None:
        given = {**request.headers, **request.attributes}
        # djl_python takes it for the size of a batch, however large it is (Input.get_batches).
        item.properties = {name: value for name, value in given.items() if name.lower() != "batch_size"}
        item.properties["requestId"] = request.request_id
        item.content.add(key="data", value=bytearray(request.body))
        for name, value in request.query.items():
            item.content.add(key=name, value=bytearray(value.encode()))
    return item


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


def session_of(function: Callable[..., Any]) -> dict[str, None]:
    """The argument for the session, without one, if the function takes it."""
    return {name: None for name in (SESSION,) if name in inspect.signature(function).parameters}


def _hint_names(function: Callable[..., Any]) -> dict[str, set[str]]:
    """The names of the classes that each annotation means, bases included."""
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # noqa: BLE001 - names that are not there when it runs, and whatever else annotations may hold
        hints = getattr(function, "__annotations__", {})
    return {
        name: {base.__name__ for base in hint.__mro__} if isinstance(hint, type) else {str(hint).rpartition(".")[2]}
        for name, hint in hints.items()
    }


def as_json(payload: dict[str, Any], function: Function) -> Payload:
    """A payload that `function` returned, as if it had come in; raises UserCodeError.

    Dialects look at JSON's types only, and the engine's process gets no others.
    """
    try:
        return cast(Payload, msgspec.json.decode(msgspec.json.encode(payload)))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise function.refuse(payload, f"what is JSON ({error})") from None


class InputFormatter:
    """A user function that makes a payload of a request."""

    def __init__(self, function: Callable[..., Any], label: str, settings: Settings, workers: Workers) -> None:
        parameters = _parameters(function)
        hints = _hint_names(function)
        first = parameters[0].name if parameters else ""
        self.item = (
            "Input" in hints.get(first, ()) or first == "input_item" or bool(INPUTS & hints.get("return", set()))
        )
        """Whether it takes djl_python's Input, and not the decoded body."""
        self._objects = request_io(label) if self.item else None
        self.tokenizer = Tokenizer(settings)
        named = {parameter.name for parameter in parameters}
        self.wants_tokenizer = "tokenizer" in named
        self._request = dict.fromkeys(named & {"request"} - {first})
        """The argument for the request, if the function takes it."""
        anything = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
        self._session = session_of(function)
        offered: dict[str, Any] = {"tokenizer": self.tokenizer}
        if self.item:
            offered |= {"configs": _configs(settings), "is_rolling_batch": True}
        self._named = {name: value for name, value in offered.items() if anything or name in named}
        try:
            inspect.signature(function).bind(None, **self._named, **self._request, **self._session)
        except TypeError:
            forms = "(decoded_payload: dict, tokenizer=None, **kwargs) or (input_item: Input, **kwargs)"
            raise OptionError(
                f"{label}: expected {forms}, got {inspect.signature(function)}", "input_formatter"
            ) from None
        self._function = Function(function, label, workers)
        self._settings = settings
        self._ids = itertools.count()

    def prepare(self) -> None:
        """Loads what the function's signature asks for by name."""
        if self.wants_tokenizer:
            self._named["tokenizer"] = self.tokenizer.load()

    def read(self, request: Request) -> tuple[Payload, Any]:
        """The payload, and the RequestInput that it was made of, if it was; raises RequestError or UserCodeError."""
        argument = input_of(request) if self.item else read_body(request)
        given = {**dict.fromkeys(self._request, request), **dict.fromkeys(self._session, request.session)}
        returned = self._function(argument, **self._named, **given)
        made = returned if self._is_request_input(returned) else None
        payload = returned if made is None else self._adopt(made, request)
        if not isinstance(payload, dict):
            raise self._function.refuse(returned, "a RequestInput" if self.item else "a dict")
        return as_json(payload, self._function), made

    def _is_request_input(self, returned: object) -> bool:
        return any(base.__name__ == "RequestInput" for base in type(returned).__mro__)

    def _adopt(self, made: Any, request: Request) -> dict[str, Any]:
        made.request_id = next(self._ids)
        made.client_request_id = request.request_id
        made.tokenizer = self.tokenizer
        made.tgi_compat = self._settings.tgi_compat
        parameters = dict(made.server_parameters or made.parameters or {})
        # What it says of the output: an endpoint has one output formatter.
        parameters.pop("output_formatter", None)
        stream = parameters.pop("stream", None)
        payload = {"inputs": getattr(made, "input_text", None), "parameters": parameters, "stream": stream}
        adapters = getattr(made, "adapters", None)
        return {**payload, "adapters": adapters} if adapters else payload


def _configs(settings: Settings) -> SimpleNamespace:
    """What djl_python's own properties are called there, as far as formatters look at them."""
    return SimpleNamespace(
        model_id_or_path=settings.model_id,
        model_dir=settings.model_dir,
        rolling_batch=settings.rolling_batch,
        max_rolling_batch_size=settings.max_rolling_batch_size,
        output_formatter=settings.output_formatter,
        tgi_compat=settings.tgi_compat,
        bedrock_compat=False,
        enable_lora=settings.adapters.enable_lora,
        trust_remote_code=settings.trust_remote_code,
        revision=settings.revision,
        dtype=settings.dtype,
    )


Form = Literal["response", "output", "oldest"]


def _form(function: Callable[..., Any], label: str) -> Form:
    """By the annotation, as in djl_python, then by how many arguments it takes."""
    parameters = _parameters(function)
    if parameters and OUTPUTS & _hint_names(function).get(parameters[0].name, set()):
        return "output"
    for count, form in ((1, "response"), (6, "oldest")):
        try:
            inspect.signature(function).bind(*range(count), **session_of(function))
        except TypeError:
            continue
        return cast(Form, form)
    forms = (
        "(response), (request_output: RequestOutput) or "
        "(token, first_token, last_token, details, generated_text, request_id)"
    )
    raise OptionError(f"{label}: expected {forms}, got {inspect.signature(function)}", "output_formatter")


class OutputFormatter:
    """A user function that makes the answer."""

    def __init__(self, function: Callable[..., Any], label: str, settings: Settings, workers: Workers) -> None:
        self.form: Form = self._form_of(function, label)
        self._objects = None if self.form == "response" else request_io(label)
        self._function = Function(function, label, workers)
        self._session = session_of(function)
        self._tokenizer = Tokenizer(settings)
        self._ids = itertools.count()

    def _form_of(self, function: Callable[..., Any], label: str) -> Form:
        return _form(function, label)

    def around(
        self,
        call: ParsedRequest,
        dialect: Dialect,
        payload: Payload,
        request: Request,
        settings: Settings,
        made: Any,
    ) -> ParsedRequest:
        """The call whose answer the function makes. `made` is the RequestInput that the payload comes from, or None."""

        def refuse(error: LmiError) -> Response:
            return dialect.refuse(error, payload, request, settings)

        generation = call.generations[0]
        if self.form != "response":
            return self._of_tokens(call, payload, request, settings, made, refuse)
        function = self._for(request)
        completion = dialect.for_formatters(generation, settings)
        if generation.stream:
            return replace(call, reply=FormattedChunksEncoder(completion or call.reply, refuse, function))
        return replace(call, reply=FormattedEncoder(call.reply, refuse, function, completion))

    def _for(self, request: Request) -> Function:
        """The function as it is called for a request."""
        return self._function.given(session=request.session) if self._session else self._function

    def _of_tokens(
        self,
        call: ParsedRequest,
        payload: Payload,
        request: Request,
        settings: Settings,
        made: Any,
        refuse: Callable[[LmiError], Response],
    ) -> ParsedRequest:
        generation = call.generations[0]
        if len(call.generations) > 1 or generation.sampling.n > 1:
            field = call.fields.name("prompt").partition("[")[0] if len(call.generations) > 1 else "n"
            raise UnsupportedError.because(
                Fault(field, expected=f"one sequence, {self._function.name} supports no more")
            )
        shown = isinstance(generation.prompt, str)
        sampling = generation.sampling
        if sampling.logprobs is None:
            sampling = msgspec.structs.replace(sampling, logprobs=0)
        # The prompt's text is asked for where the request has none, for `input_text`.
        generation = msgspec.structs.replace(generation, tokens=True, sampling=sampling, echo=not shown)
        reply = FormattedTokensEncoder(
            call.reply,
            refuse,
            self._for(request),
            self._output(generation, payload, request, settings, made),
            self._objects,
            streams=generation.stream,
            oldest=self.form == "oldest",
        )
        return replace(call, generations=(generation,), reply=reply)

    def _output(self, generation: Generation, payload: Payload, request: Request, settings: Settings, made: Any) -> Any:
        objects: Any = self._objects
        if made is None:
            given = payload.get("parameters")
            parameters: dict[str, Any] = dict(cast("dict[str, Any]", given if isinstance(given, dict) else payload))
            made = objects.TextInput(
                request_id=next(self._ids),
                client_request_id=request.request_id,
                parameters=parameters,
                server_parameters=dict(parameters),
                tgi_compat=settings.tgi_compat,
                input_text=generation.prompt if isinstance(generation.prompt, str) else None,
                tokenizer=self._tokenizer,
            )
        made.output_formatter = self._function
        made.parameters.setdefault("stream", generation.stream)
        return objects.TextGenerationOutput(request_id=made.request_id, input=made)
