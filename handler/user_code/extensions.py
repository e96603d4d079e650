"""What of the user's takes part in serving a model, found once at start, and what it does with a request.

    request --input formatter--> payload --dialect--> ParsedRequest --filter of prompts that are text--> ParsedRequest
    event --filter of other prompts and of what is generated--> event --the dialect's reply, or the output formatter
    around it--> records

A request that none of it applies to is served as if there were none: see `applies_to`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from ...formatters import (
    NO_ADAPTERS,
    NO_CONTROL,
    AdapterNames,
    Control,
    Dialect,
    Hooks,
    NotReadyError,
    ParsedRequest,
    Request,
    Response,
    check_dialect,
    explicit_dialect,
    fallback,
    named_by_request,
    read_body,
    receive,
    take_names,
)
from ...formatters.base import Payload
from ...model.errors import AdapterError, OptionError, RequestError, UserCodeError
from ...model.options import Settings
from ...model.options.combined import TASK_NAMES
from ..model_code import entry_point_of, has_own_code
from ..threads.pool import Workers
from ..threads.prepared import Prepared
from .adapter_code import AdapterCode
from .content_filter import ContentFilter, FilteredEncoder
from .custom_handler import CustomHandler
from .dialect import UserDialect, dialect_of, looks_like_dialect
from .formatters.djl_formatters import InputFormatter, OutputFormatter
from .formatters.sagemaker_functions import FORMATTERS, formatters_of, label_of
from .loading import (
    custom_handle,
    entry_points,
    is_entry_point,
    kind_of,
    loaded_model_py,
    named,
    on_path,
    shown,
)

__all__ = ["CodedAdapters", "Extensions", "load_extensions"]

log = logging.getLogger(__name__)

HostFormatters = Mapping[str, Callable[..., Any]]
"""Functions that a host has found: `input_formatter`, `output_formatter`."""
NO_FORMATTERS: HostFormatters = {}


class CodedAdapters(AdapterNames, Protocol):
    """Adapters in whose folders user code may lie."""

    @property
    def has_code(self) -> bool:
        """Whether it does in one."""
        ...

    def code(self, name: str) -> AdapterCode | None:
        """What lies in this one's; raises what `key` raises."""
        ...


class Extensions:
    """The user's dialects, formatters and filter, and the threads that they run on."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        threads = settings.user_code_threads or settings.max_rolling_batch_size
        self.workers = Workers(threads, settings.limits.user_code_timeout)
        self.handler: CustomHandler | None = None
        self.dialects: tuple[UserDialect, ...] = ()
        self.input: InputFormatter | None = None
        self.output: OutputFormatter | None = None
        self.filter: ContentFilter | None = None
        self.adapters: CodedAdapters | None = None
        self.control: Control = NO_CONTROL
        self.any = False
        """Whether there is user code other than adapters', which may come and go."""

    def prepare(self) -> None:
        """Loads what takes long: to be called while the engine starts. Raises OptionError."""
        if self.input is not None:
            try:
                self.input.prepare()
            except Exception as error:
                log.exception("the tokenizer that the input formatter asks for could not be loaded")
                raise OptionError(
                    f"model.py: the tokenizer could not be loaded: {shown(error)}", "tokenizer"
                ) from error

    def applies_to(self, request: Request) -> bool:
        """Whether user code may run for a request."""
        if self.input or self.output or self.filter or (self.adapters and self.adapters.has_code):
            return True
        if not self.dialects:
            return False
        try:
            explicit = explicit_dialect(request, self.settings, self.dialects)
        except RequestError:
            # It names no dialect that there is.
            return False
        return explicit is None or isinstance(explicit, UserDialect)

    def receive(self, request: Request) -> Prepared | Response:
        """What a request asks for, or the answer that refuses it. Runs user code; raises nothing but NotReadyError."""
        hooks = _Hooks(self)
        try:
            call = receive(request, self.settings, self.dialects, hooks, self.adapters or NO_ADAPTERS, self.control)
        except NotReadyError:
            raise
        except Exception as error:
            log.exception("request %s: it could not be prepared", request.request_id)
            failure = UserCodeError(f"the request could not be prepared: {shown(error)}")
            return fallback(self.settings).refuse(failure, None, request, self.settings)
        return call if isinstance(call, Response) else Prepared(call, hooks.on_threads, hooks.filtered)


class _Hooks(Hooks):
    """One request's way through user code."""

    def __init__(self, extensions: Extensions) -> None:
        self._extensions = extensions
        self._input = extensions.input
        self._output = extensions.output
        self._made: Any = None
        """The RequestInput that the input formatter made."""
        self.on_threads = True
        self.filtered: FilteredEncoder | None = None

    def read(self, request: Request) -> Payload:
        in_body = self._use_adapters(request)
        if self._input is None:
            return read_body(request)
        payload, self._made = self._input.read(request)
        # It chose the formatter, which need not know of it.
        return {"adapters": in_body, **payload} if in_body else payload

    def _use_adapters(self, request: Request) -> str | Sequence[str]:
        """Takes the formatters of the adapter that the request names; gives what the body names. Raises as `code`."""
        adapters = self._extensions.adapters
        if adapters is None or not (adapters.has_code or self._input):
            return ""
        beside, in_body = named_by_request(request), _named_in_body(request)
        names = {in_body} if isinstance(in_body, str) else set(in_body)
        if beside:
            self._use(adapters.code(beside))
        elif in_body and len(names) == 1:
            # Of what is no adapter its dialect knows whether it was to be one.
            with suppress(RequestError, AdapterError):
                self._use(adapters.code(names.pop()))
        return in_body

    def _use(self, code: AdapterCode | None) -> None:
        """Each of an adapter's functions goes before the model's."""
        if code is not None:
            self._input, self._output = code.input or self._input, code.output or self._output

    def ready(
        self, call: ParsedRequest, dialect: Dialect, payload: Payload, request: Request, settings: Settings
    ) -> ParsedRequest:
        extensions = self._extensions
        if all(generation.tokenize for generation in call.generations):
            # There is no text to format, and none that the model gets to see.
            self.on_threads = isinstance(dialect, UserDialect)
            return call
        if self._output is not None:
            call = self._output.around(call, dialect, payload, request, settings, self._made)
        if extensions.filter is not None:
            call, self.filtered = extensions.filter.around(call)
        self.on_threads = bool(self._output or extensions.filter) or isinstance(dialect, UserDialect)
        return call


def _named_in_body(request: Request) -> str | Sequence[str]:
    """What the body names, if it is one that can be read."""
    with suppress(RequestError):
        return take_names(read_body(request))[0] or ""
    return ""


def load_extensions(settings: Settings, host_formatters: HostFormatters = NO_FORMATTERS) -> Extensions:
    """What the model directory and the options name, and what a host has found in model.py.

    Executes user code. Raises OptionError for what cannot be loaded, and for an `option.dialect` that names
    no dialect.
    """
    extensions = Extensions(settings)
    directory = Path(settings.model_dir)
    if has_own_code(settings):
        on_path(directory)
    _model_py(extensions, directory, host_formatters)
    _options(extensions)
    if settings.pools and extensions.output is not None:
        task = TASK_NAMES[settings.task]
        why = f"an output formatter formats generated text, expected none with option.task={task}"
        raise OptionError.of("output_formatter", why)
    for label, found in entry_points():
        extensions.dialects = (*extensions.dialects, dialect_of(found, label, extensions.workers, extensions.dialects))
    check_dialect(settings, extensions.dialects)
    extensions.any = bool(extensions.input or extensions.output or extensions.filter or extensions.dialects)
    return extensions


def _model_py(extensions: Extensions, directory: Path, host_formatters: HostFormatters) -> None:
    """The functions that model.py decorates, and its handle."""
    module = loaded_model_py(directory)
    settings, workers = extensions.settings, extensions.workers
    entry_point = entry_point_of(settings, os.environ)
    found = dict(host_formatters)
    if module is not None:
        if (handle := custom_handle(module, entry_point)) is not None:
            extensions.handler = CustomHandler(handle, settings, workers)
        # What is the entry point itself may have such functions for its own use.
        found |= formatters_of(module, sagemaker=not is_entry_point(entry_point))
    for kind, function in found.items():
        made = FORMATTERS[kind](function, f"model.py: {label_of(kind, function)}", settings, workers)
        if isinstance(made, InputFormatter):
            extensions.input = made
        else:
            extensions.output = made


def _options(extensions: Extensions) -> None:
    """What the options name."""
    settings, workers = extensions.settings, extensions.workers
    if text := settings.input_formatter:
        _only(extensions.input, "input_formatter")
        extensions.input = InputFormatter(
            _function("input_formatter", text), f"input formatter {text}", settings, workers
        )
    if text := settings.custom_formatter:
        found = named("output_formatter", text)
        if looks_like_dialect(found):
            extensions.dialects = (dialect_of(found, f"option.output_formatter: {text!r}", workers),)
        else:
            _only(extensions.output, "output_formatter")
            function = _function("output_formatter", text)
            extensions.output = OutputFormatter(function, f"output formatter {text}", settings, workers)
    if text := settings.content_filter:
        extensions.filter = ContentFilter(named("content_filter", text), text, workers)


def _only(other: object, option: str) -> None:
    if other is not None:
        raise OptionError.of(option, f"model.py decorates an {option} too; keep only one of them")


def _function(option: str, text: str) -> Callable[..., Any]:
    found = named(option, text)
    if not callable(found):
        expected = "a function or a dialect" if option == "output_formatter" else "a function"
        raise OptionError.of(option, f"{text!r}: expected {expected}, got {kind_of(found)}")
    return found  # type: ignore[no-any-return]
