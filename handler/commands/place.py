"""What `lmi serve` serves, and where: as its arguments say, or without MODEL as a container of SageMaker's.

SageMaker runs an image with the one argument `serve`, the model in /opt/ml/model, and asks port 8080, or the one of
SAGEMAKER_BIND_TO_PORT (SageMaker's developer guide, "Custom inference code with hosting services"). AWS's library for
such images, model-hosting-container-standards, has a variable for another directory.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ...model.errors import OptionError, shown
from ...model.options.environment.tgi import MODELS
from .arguments import options_of_model

__all__ = ["Place", "served_place"]

MODEL_PATH = "SAGEMAKER_MODEL_PATH"
MODEL_DIR = "/opt/ml/model"
PORT_VARIABLE = "SAGEMAKER_BIND_TO_PORT"
PORT = 8080


class Place(NamedTuple):
    """A model and an address."""

    model_dir: Path
    options: dict[str, str]
    """Those that MODEL means by itself."""
    host: str
    port: int


def served_place(arguments: argparse.Namespace, environment: Mapping[str, str]) -> Place:
    """Raises OptionError where there is no model, and for a port that is none."""
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
