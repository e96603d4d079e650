"""The model.py of an adapter: formatters that go before the model's, for requests that name the adapter.

Each is a module of its own, so that two adapters share no globals.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import logging
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from ...model.errors import AdapterError, OptionError
from ...model.options import Settings
from ..threads.pool import Workers
from .formatters.djl_formatters import InputFormatter, OutputFormatter
from .formatters.sagemaker_functions import FORMATTERS, formatters_of, label_of
from .loading import shown

__all__ = ["AdapterCode", "load_adapter_code"]

log = logging.getLogger(__name__)

_numbers = itertools.count(1)


class AdapterCode:
    """What one adapter's model.py decorates. Its module is forgotten with it, when no request uses it any more."""

    def __init__(self, place: _Place) -> None:
        self._place = place
        self.input: InputFormatter | None = None
        self.output: OutputFormatter | None = None


class _Place:
    """A module's in sys.modules, where its functions may look for it: for as long as one of them is in use."""

    def __init__(self, module: ModuleType) -> None:
        self.free = weakref.finalize(self, sys.modules.pop, module.__name__, None)

    def kept_by(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, which keeps it."""

        @functools.wraps(function)
        def call(*given: Any, **named: Any) -> Any:
            return self._call(function, given, named)

        return call

    def _call(self, function: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        return function(*given, **named)


def load_adapter_code(settings: Settings, workers: Workers, name: str, folder: Path) -> AdapterCode | None:
    """The formatters in an adapter's folder, None where there is no model.py; raises AdapterError. Executes it."""
    path = folder / "model.py"
    if not path.is_file():
        return None
    module = _executed(path, name)
    place = _Place(module)
    try:
        code = AdapterCode(place)
        for kind, function in formatters_of(module).items():
            label = f"adapter {name}: {label_of(kind, function)}"
            made = FORMATTERS[kind](place.kept_by(function), label, settings, workers)
            if isinstance(made, InputFormatter):
                code.input = made
            else:
                code.output = made
        if code.input is not None:
            code.input.prepare()
        if code.output is not None and settings.pools:
            raise OptionError("an output formatter formats generated text, which this model does not make")
    except Exception as error:
        place.free()
        raise _failed(name, error) from error
    return code


def _executed(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"lmi_adapter_{next(_numbers)}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # What a module defines looks for it there (dataclasses).
    sys.modules[module.__name__] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        sys.modules.pop(module.__name__, None)
        log.exception("adapter %s: model.py failed", name)
        raise _failed(name, error) from error
    return module


def _failed(name: str, error: BaseException) -> AdapterError:
    # djl_python's words (lmi_vllm).
    return AdapterError(f"Failed to load custom code for adapter {name}: {shown(error)}")
