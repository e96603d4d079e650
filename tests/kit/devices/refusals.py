"""What `lmi check` refuses, and what a start refuses before it reads weights, on devices that this machine does not
have: `python -m tests.kit.devices.refusals DEVICE < CASES`.

CASES is a list in JSON of objects with `name`, `directory` (a model directory), `options` and `environment`; one
without a name stands for a case of each argument of vLLM's that is no option, whose value is nonsense. Prints a line of
JSON for each: its name, then what check says and what the start says, each the option and the message, or null.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import os
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from .nvidia import DEVICES, pretend

NONSENSE = "nosuch"
"""What no argument takes that is not a text."""

Refusal = tuple[str | None, str]


class ReachedError(Exception):
    """The start has come to where it would read weights."""


def main() -> None:
    """Asks both of each case."""
    # vLLM asks several times a start what is installed.
    metadata: Any = importlib.metadata
    metadata.entry_points = cache(metadata.entry_points)
    _reach()
    for case in _cases(json.load(sys.stdin)):
        environment = {**os.environ, **case.get("environment", {})}
        directory, options = Path(case["directory"]), case.get("options", {})
        checked = _checked(directory, options, environment)
        served = _served(directory, options, environment)
        # In one piece: vLLM writes its lines to the same place.
        sys.stdout.write(json.dumps([case["name"], checked, served]) + "\n")
        sys.stdout.flush()


def _cases(given: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    from lmi.model.options.table import name_of_argument, option_named
    from lmi.model.vllm.library.internals import argument_actions

    for case in given:
        if "name" in case:
            yield case
            continue
        for argument in argument_actions():
            if not option_named(name_of_argument(argument)):
                yield {**case, "name": argument, "options": {argument: NONSENSE}}


def _reach() -> None:
    """Ends each start where its weights would be read: here, or on this host as one of several."""
    from lmi.model.vllm import engine, start
    from lmi.model.vllm.pooling import backend

    def reached(*_: Any) -> None:
        raise ReachedError

    for module, name in ((engine, "start"), (backend, "start"), (start, "run_workers")):
        setattr(module, name, reached)


def _checked(directory: Path, options: Mapping[str, str], environment: Mapping[str, str]) -> Refusal | None:
    from lmi.handler.commands.check import check
    from lmi.model.errors import StartError

    try:
        check(directory, options, environment=environment)
    except StartError as error:
        return error.param, error.message
    return None


def _served(directory: Path, options: Mapping[str, str], environment: Mapping[str, str]) -> Refusal | None:
    """As `lmi serve` and `lmi follow`, and what runs in the engine's process (engine_main.py)."""
    from lmi.handler.secure_mode import secure_mode
    from lmi.handler.service import Service
    from lmi.model.backend import load_backend, start_part
    from lmi.model.engine import EngineInfo
    from lmi.model.errors import StartError
    from lmi.model.options import Settings, load_settings
    from lmi.model.options.model_dir import check_model
    from lmi.model.process.client import EngineClient
    from lmi.model.process.ending.start_errors import start_error

    async def load(settings: Settings) -> None:
        load_backend(settings)

    def begin(settings: Settings) -> None:
        try:
            check_model(settings)
            if settings.parallel.follows:
                start_part(settings)
            else:
                asyncio.run(load(settings))
        except ReachedError:
            return
        except Exception as error:
            raise start_error(error, settings) from error

    class Unloaded(EngineClient):
        def start(self) -> EngineInfo:
            begin(self._settings)
            self.adapters.ready({})
            return EngineInfo(engine="vllm", version="", context=1)

    try:
        settings = load_settings(directory, environment=environment, overrides=options)
        if secure := secure_mode(environment):
            secure.check_variables(settings, environment)
        if settings.parallel.follows:
            begin(settings)
        else:
            service = Service(settings, Unloaded(settings))
            service.start()
            service.close()
    except StartError as error:
        return error.param, error.message
    return None


if __name__ == "__main__":
    pretend(DEVICES[sys.argv[1]])
    main()
