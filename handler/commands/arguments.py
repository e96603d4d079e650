"""What arguments of the command line mean, of more than one command."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ...model.errors import OptionError, shown
from ...model.options.environment.tgi import MODELS

__all__ = [
    "KEY_VARIABLE",
    "Place",
    "assignment",
    "assignments",
    "given_options",
    "options_of_model",
    "required_key",
    "seconds",
    "served_place",
    "whole_seconds",
]

KEY_VARIABLE = "LMI_API_KEY"


def assignment(text: str) -> str:
    """`NAME=VALUE`, for argparse."""
    if "=" not in text:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, got {text!r}")
    return text


def assignments(pairs: Sequence[str]) -> dict[str, str]:
    """By name, the values of `NAME=VALUE`, with or without `option.` before the name."""
    options: dict[str, str] = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        options[name.strip().removeprefix("option.")] = value.strip()
    return options


HUB_ID = re.compile(r"[A-Za-z0-9_][\w.-]*/[A-Za-z0-9_][\w.-]*", re.ASCII)
"""An organization and a name."""


def options_of_model(model: Path) -> dict[str, str]:
    """The options that MODEL of the command line means by itself: none where it is a directory; of a hub id, which is
    no path that there is, that id. Raises OptionError for anything else.

    A hub id's model directory is the one that is not there: nothing is read from it.
    """
    if model.is_dir():
        return {}
    found = "a file" if model.exists() else "nothing"
    if found == "nothing" and HUB_ID.fullmatch(str(model)):
        return {"model_id": str(model)}
    raise OptionError(f"{model}: expected a model directory, or a hub id as ORG/NAME, found {found}")


def given_options(model_dir: Path, overrides: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The options as they were given, for user code."""
    from ...model.options.properties import gather

    return gather(model_dir, environment) | dict(overrides)


def seconds(text: str) -> float:
    """A length of time, for argparse."""
    length = float(text)
    if not 0 <= length <= 86400:
        raise ValueError
    return length


def whole_seconds(text: str) -> int:
    """A length of time of at least a second, for argparse."""
    length = int(text)
    if not 1 <= length <= 86400:
        raise ValueError
    return length


def required_key(given: str | None, environment: Mapping[str, str], file: Path | None = None) -> str | None:
    """The API key that clients need, None for none, without blanks and line ends around it: secrets made of files have
    them.

    Raises OptionError for an empty one, which protects nothing, for one that no header can carry (RFC 9110, 5.5), and
    for a file that cannot be read.
    """
    if given is not None:
        name, text = "--api-key", given
    elif file is not None:
        name = f"--api-key-file {file}"
        try:
            text = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise OptionError(f"{name}: expected a file that holds a key ({error})") from None
    elif KEY_VARIABLE in environment:
        name, text = KEY_VARIABLE, environment[KEY_VARIABLE]
    else:
        return None
    key = text.strip()
    if not key:
        raise OptionError(f"{name}: expected a key, got an empty one")
    if control := _CONTROL.search(key):
        place = control.start() + 1
        raise OptionError(
            f"{name}: expected a key that a header of HTTP can carry, got a control character at place {place}"
        )
    return key


_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


MODEL_PATH = "SAGEMAKER_MODEL_PATH"
MODEL_DIR = "/opt/ml/model"
PORT_VARIABLE = "SAGEMAKER_BIND_TO_PORT"
PORT = 8080


class Place(NamedTuple):
    """What `lmi serve` serves, and where."""

    model_dir: Path
    options: dict[str, str]
    """Those that MODEL means by itself."""
    host: str
    port: int


def served_place(arguments: argparse.Namespace, environment: Mapping[str, str]) -> Place:
    """As the arguments of `lmi serve` say, or without MODEL as a container of SageMaker's is run.

    It runs an image with the one argument `serve`, the model in /opt/ml/model, and asks port 8080, or the one of
    SAGEMAKER_BIND_TO_PORT (developer guide, "Custom inference code with hosting services"). SAGEMAKER_MODEL_PATH is
    the variable of AWS's library for such images, model-hosting-container-standards. Raises OptionError where there is
    no model, and for a port that is none.
    """
    if arguments.model_dir is not None:
        options = options_of_model(arguments.model_dir)
        return Place(arguments.model_dir, options, arguments.host or "127.0.0.1", _or(arguments.port, PORT))
    model_dir = Path(environment.get(MODEL_PATH) or MODEL_DIR)
    # The model may be elsewhere, the directory then has its options alone, or is not there.
    if not model_dir.is_dir() and not any(environment.get(name) for name in (*MODELS, "OPTION_MODEL_ID")):
        raise OptionError(
            f"MODEL: expected a model directory or a hub id; without it, a model in {model_dir}, "
            f"or a variable that names one ({', '.join(MODELS)})"
        )
    port = environment.get(PORT_VARIABLE) or str(PORT)
    if not port.isdecimal() or int(port) > 65535:
        raise OptionError(f"{PORT_VARIABLE}: expected a port, got {shown(port)}")
    return Place(model_dir, {}, arguments.host or "0.0.0.0", _or(arguments.port, int(port)))


def _or(port: int | None, default: int) -> int:
    return default if port is None else port
