"""User code, found once at start: what a model directory's model.py and the options name.

    model.py              functions that djl_python's decorators mark       input_formatter, output_formatter
    module:name           option.input_formatter, option.output_formatter (a dialect too), option.content_filter
    entry points          the group lmi.dialects

The model directory stands ahead on Python's path, as in DJL's worker. What cannot be loaded is an OptionError that
names the file or option and the cause.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from ...model.errors import OptionError, RequestError, UserCodeError
from ...model.log import current
from ..model_code import GROUP, is_of_hooks
from ..threads.pool import Abandoned, Workers

__all__ = [
    "Function",
    "custom_handle",
    "decorated",
    "entry_points",
    "imported",
    "is_entry_point",
    "kind_of",
    "loaded_model_py",
    "named",
    "on_path",
    "shown",
]

log = logging.getLogger(__name__)

MODEL = "model"
"""The name of the module model.py, as DJL imports it."""


def shown(error: BaseException) -> str:
    """An exception as part of a message, even if its `str` raises."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an exception of the user's may be anything
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class Function:
    """A user function. To call it raises UserCodeError, which names it, or a RequestError that it raised."""

    __slots__ = ("_function", "_workers", "name")

    def __init__(self, function: Callable[..., Any], name: str, workers: Workers) -> None:
        self._function = function
        self._workers = workers
        self.name = name
        """What messages call it: `model.py: output formatter mine`."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """What it returns; of a coroutine function, what that comes to."""
        try:
            return self._workers.run(self.name, self._function, *arguments, **named)
        except (RequestError, Abandoned):
            raise
        except BaseException as error:
            # A SystemExit too: it is not the user's to end the process.
            log.exception("request %s: %s failed", current(), self.name)
            raise UserCodeError(f"{self.name} raised {shown(error)}") from None

    def given(self, **named: Any) -> Function:
        """The same with arguments that each call has."""
        return Function(functools.partial(self._function, **named), self.name, self._workers)

    def ending_with(self, *more: Any) -> Function:
        """The same with arguments behind those of each call."""
        return Function(lambda *arguments: self._function(*arguments, *more), self.name, self._workers)

    def refuse(self, returned: object, expected: str) -> UserCodeError:
        """The error for what it may not return."""
        return UserCodeError(f"{self.name} returned {kind_of(returned)}, expected {expected}")


def kind_of(value: object) -> str:
    """A value's type, for messages."""
    return "None" if value is None else f"{_article(type(value).__name__)} {type(value).__name__}"


def _article(noun: str) -> str:
    return "an" if noun[:1].lower() in "aeiou" else "a"


def on_path(directory: Path) -> None:
    """Puts the model directory ahead on Python's path, unless it is there (DJL's worker has it there)."""
    text = str(directory)
    if text not in sys.path:
        sys.path.insert(0, text)
    importlib.invalidate_caches()


def loaded_model_py(directory: Path) -> ModuleType | None:
    """The module of the directory's model.py, executed if nobody has done so before; None where there is none."""
    path = directory / "model.py"
    if not path.is_file():
        return None
    if is_of_hooks(path):
        log.info("model.py has hooks of model-hosting-container-standards, which `lmi serve` alone calls")
        return None
    # A copy: another thread may import, and an adapter's code that nothing uses any more takes its module out.
    for module in sys.modules.copy().values():
        # Its name differs: DJL imports it as `model`, newer versions under a name of their own.
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith("model.py") and Path(file).is_file() and path.samefile(file):
            return module
    return _executed(path)


def _executed(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(MODEL, path)
    if spec is None or spec.loader is None:
        raise OptionError(f"{path}: is not a Python module", "model.py")
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(MODEL)
    sys.modules[MODEL] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        if before is None:
            del sys.modules[MODEL]
        else:
            sys.modules[MODEL] = before
        log.exception("model.py failed")
        raise OptionError(f"{path}: {shown(error)}{_hint(error)}", "model.py") from error
    return module


def _hint(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == "djl_python":
        return " (the container has it; elsewhere put the jar of DJL's Python engine, ai.djl.python, on PYTHONPATH)"
    return ""


def decorated(module: ModuleType, mark: str) -> Callable[..., Any] | None:
    """The function of `module` that has the attribute `mark`; of several the first by name, as in djl_python."""
    found = [value for name in dir(module) if callable(value := getattr(module, name)) and _marked(value, mark)]
    if len({id(function) for function in found}) > 1:
        names = ", ".join(getattr(function, "__name__", "?") for function in found)
        log.warning("model.py decorates several functions alike, the first is used: %s", names)
    return found[0] if found else None


def custom_handle(module: ModuleType, entry_point: str) -> Callable[..., Any] | None:
    """The `handle` of model.py that requests go to before ours, if there is one.

    Not where model.py is the entry point itself, or has ours: then it is called by DJL, and calls ours.
    """
    handle: Callable[..., Any] | None = getattr(module, "handle", None)
    if not callable(handle) or is_entry_point(entry_point):
        return None
    ours = sys.modules[OURS]
    if any(value is ours or value is ours.handle for value in vars(module).values()):
        log.warning("model.py: its handle is not called, for it serves by ours: option.entryPoint is %s", entry_point)
        return None
    return handle


def is_entry_point(entry_point: str) -> bool:
    """Whether model.py is what DJL calls: where nothing else is named, too."""
    return (entry_point or MODEL).removesuffix(".py").rpartition("/")[2] == MODEL


OURS = __name__.rpartition(".")[0].rpartition(".")[0]
"""The package with our handle."""


def _marked(value: Any, mark: str) -> bool:
    # Objects that answer to every name, as mocks do, are not marked.
    return getattr(value, mark, None) is True


def imported(option: str, module: str, text: str) -> ModuleType:
    """The module that an option names."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # The module itself, or one that it imports.
        if error.name and (module == error.name or module.startswith(error.name + ".")):
            place = "in the model directory or on Python's path"
            raise OptionError.of(option, f"{text!r}: there is no module {error.name} {place}") from None
        raise OptionError.of(option, f"{text!r}: {shown(error)}{_hint(error)}") from error
    except BaseException as error:
        log.exception("option.%s: %s failed", option, module)
        raise OptionError.of(option, f"{text!r}: {shown(error)}") from error


def named(option: str, text: str) -> Any:
    """What `module:name` names; `module` alone names the module."""
    name, colon, path = text.partition(":")
    module = imported(option, name, text)
    if not colon:
        return module
    try:
        return functools.reduce(getattr, path.split("."), cast(Any, module))
    except AttributeError:
        raise OptionError.of(option, f"{text!r}: {name} has no {path}") from None


def entry_points() -> list[tuple[str, Any]]:
    """What installed packages register as dialects: what to call it in messages, and the object."""
    found: list[tuple[str, Any]] = []
    for point in importlib.metadata.entry_points(group=GROUP):
        label = f"entry point {point.name} = {point.value} of {GROUP}"
        try:
            found.append((label, point.load()))
        except BaseException as error:
            raise OptionError(f"{label}: {shown(error)}", "dialect") from error
    return found
