"""What a model.py brings for requests and responses: what djl_python's decorators mark, or SageMaker's functions.

    input_fn(request_body: bytes, content_type: str) -> dict       in the place of an input formatter
    output_fn(prediction, accept: str)                             in the place of an output formatter: of a response

SageMaker's count where nothing is decorated (djl_python, custom_formatter_handling.py). Each may have a parameter
`session`, as formatters may. What stands in the engine's place is refused: model_fn and predict_fn, @init_handler and
@prediction_handler, a class of djl_python's VLLMHandler.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ....formatters import Request
from ....formatters.base import JSON, Payload
from ....model.errors import OptionError
from ....model.options import Settings
from ...threads.pool import Workers
from ..loading import Function, decorated
from .djl_formatters import Form, InputFormatter, OutputFormatter, as_json, session_of

__all__ = ["FORMATTERS", "formatters_of", "label_of"]


class InputFn(InputFormatter):
    """SageMaker's input_fn."""

    def __init__(self, function: Callable[..., Any], label: str, settings: Settings, workers: Workers) -> None:
        _check(function, label, "(request_body, content_type)")
        super().__init__(lambda _body: None, label, settings, workers)
        self._function = Function(function, label, workers)
        self._session = session_of(function)

    def read(self, request: Request) -> tuple[Payload, Any]:
        """As of any input formatter."""
        given = dict.fromkeys(self._session, request.session)
        payload = self._function(request.body, request.headers.get("content-type", JSON), **given)
        if not isinstance(payload, dict):
            raise self._function.refuse(payload, "a dict")
        return as_json(payload, self._function), None


class OutputFn(OutputFormatter):
    """SageMaker's output_fn."""

    def _form_of(self, function: Callable[..., Any], label: str) -> Form:
        _check(function, label, "(prediction, accept)")
        return "response"

    def _for(self, request: Request) -> Function:
        accept = request.headers.get("accept", "")
        return super()._for(request).ending_with(JSON if accept in ("", "*/*") else accept)


def _check(function: Callable[..., Any], label: str, form: str) -> None:
    try:
        inspect.signature(function).bind(None, None, **session_of(function))
    except TypeError:
        raise OptionError(f"{label}: expected {form}, got {inspect.signature(function)}", "model.py") from None


FORMATTERS: dict[str, Callable[..., Any]] = {
    "input_formatter": InputFormatter,
    "output_formatter": OutputFormatter,
    "input_fn": InputFn,
    "output_fn": OutputFn,
}


def formatters_of(module: ModuleType, *, sagemaker: bool = True) -> dict[str, Callable[..., Any]]:
    """The functions by their kinds, keys of FORMATTERS; SageMaker's only with `sagemaker`. Raises OptionError."""
    for mark in ("init_handler", "prediction_handler"):
        if (function := decorated(module, f"is_{mark}")) is not None:
            raise _replaces_engine(f"@{mark} {getattr(function, '__name__', repr(function))}")
    for value in vars(module).values():
        if isinstance(value, type) and any(_is_upstreams(base) for base in value.__mro__[1:]):
            raise _replaces_engine(f"class {value.__name__}({UPSTREAMS})")
    kinds = ("input_formatter", "output_formatter")
    found = {kind: function for kind in kinds if (function := decorated(module, f"is_{kind}")) is not None}
    if found or not sagemaker:
        return found
    for name in ("model_fn", "predict_fn"):
        if callable(getattr(module, name, None)):
            raise _replaces_engine(name)
    return {name: function for name in ("input_fn", "output_fn") if callable(function := getattr(module, name, None))}


UPSTREAMS = "VLLMHandler"
"""djl_python's handler of vLLM, of which a model.py may make a class of its own."""


def _is_upstreams(found: type) -> bool:
    # By its name: to import it takes vLLM.
    return found.__name__ == UPSTREAMS and found.__module__.startswith("djl_python.")


def label_of(kind: str, function: Callable[..., Any]) -> str:
    """What messages call it: `output formatter write_answer`, `output_fn`."""
    name = getattr(function, "__name__", repr(function))
    return kind if name == kind else f"{kind.replace('_', ' ')} {name}"


def _replaces_engine(name: str) -> OptionError:
    return OptionError(
        f"model.py: {name} stands in the place of the engine, which this handler drives: expected option.model_id for "
        "what loads a model, input_fn and output_fn, djl_python's formatters or handle for requests and responses, or "
        "option.backend=module:name for an engine of your own",
        "model.py",
    )
