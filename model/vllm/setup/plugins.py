"""Files of the user's that register parsers with vLLM: `option.tool_parser_plugin`, `option.reasoning_parser_plugin`.

vLLM's own import of them (ToolParserManager.import_tool_parser) logs what a file raises and goes on without it. Here it
fails the start.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
import traceback
from pathlib import Path

from ...errors import OptionError, refuse
from ...options import Settings
from ...options.advice.parsers import unknown_parsers
from ..library.parts import part
from ..library.version import vllm_version

__all__ = ["import_plugins", "registered"]

log = logging.getLogger(__name__)

OPTIONS = ("tool_parser_plugin", "reasoning_parser_plugin")


def import_plugins(settings: Settings) -> list[str]:
    """Executes the files, one that both options name once, and returns their paths; raises OptionError for one that
    fails, with its line, and for a parser that the options name and that nobody has registered.
    """
    done: list[str] = []
    for option in OPTIONS:
        path: str | None = getattr(settings, option)
        if path is not None and path not in done:
            done.append(path)
            _execute(option, path)
    if not settings.pools and (settings.tool_call_parser or settings.reasoning_parser):
        refuse(unknown_parsers(settings, registered(), f"vLLM {vllm_version()}"))
    return done


def registered() -> dict[str, list[str]]:
    """The names of vLLM's parsers and of those that files have registered, by the option that names one."""
    return {
        "tool_call_parser": part("vllm.tool_parsers:ToolParserManager.list_registered")(),
        "reasoning_parser": part("vllm.reasoning:ReasoningParserManager.list_registered")(),
    }


def _execute(option: str, path: str) -> None:
    # A name that no other module has: vLLM takes the file's own, and json.py would then be what others import as json.
    name = f"lmi_plugin_{Path(path).stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise OptionError.of(option, f"{path}: expected a Python file (*.py)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        log.exception("option.%s: %s failed", option, path)
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
        where = f", line {lines[-1]}" if lines else ""
        raise OptionError.of(option, f"{path}{where}: {type(error).__name__}: {error}") from error
