"""What `lmi serve` serves and where, with MODEL and without."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from lmi.handler.commands.place import served_place

from ...kit.api.errors import OptionError

DIRECTORY = Path(__file__).parent
ELSEWHERE = {"SAGEMAKER_MODEL_PATH": str(DIRECTORY)}
NOTHING: dict[str, object] = {"model_dir": None, "host": None, "port": None}
NOWHERE = {"SAGEMAKER_MODEL_PATH": str(DIRECTORY / "none")}


@pytest.mark.parametrize(
    ("environment", "given", "expected"),
    [
        (ELSEWHERE, {}, (DIRECTORY, "0.0.0.0", 8080)),
        (ELSEWHERE | {"SAGEMAKER_BIND_TO_PORT": "9000"}, {}, (DIRECTORY, "0.0.0.0", 9000)),
        (ELSEWHERE | {"SAGEMAKER_BIND_TO_PORT": "9000"}, {"port": 0, "host": "::1"}, (DIRECTORY, "::1", 0)),
        (NOWHERE | {"HF_MODEL_ID": "a/b"}, {}, (DIRECTORY / "none", "0.0.0.0", 8080)),
        (NOWHERE | {"SM_VLLM_MODEL": "a/b"}, {}, (DIRECTORY / "none", "0.0.0.0", 8080)),
        (NOWHERE | {"OPTION_MODEL_ID": "a/b"}, {}, (DIRECTORY / "none", "0.0.0.0", 8080)),
        # Not a container: whatever the environment says.
        (NOWHERE | {"SAGEMAKER_BIND_TO_PORT": "9000"}, {"model_dir": DIRECTORY}, (DIRECTORY, "127.0.0.1", 8080)),
        ({}, {"model_dir": DIRECTORY, "host": "0.0.0.0", "port": 1}, (DIRECTORY, "0.0.0.0", 1)),
    ],
)
def test_a_place(environment: dict[str, str], given: dict[str, object], expected: tuple[Path, str, int]) -> None:
    found = served_place(Namespace(**NOTHING | given), environment)
    assert (found.model_dir, found.host, found.port) == expected


def test_the_directory_of_a_container() -> None:
    expected = "MODEL: expected a model directory or a hub id; without it, a model in /opt/ml/model, or a variable"
    with pytest.raises(OptionError, match=expected):
        served_place(Namespace(**NOTHING), {})


@pytest.mark.parametrize("port", ["http", "70000", "-1", "80 80"])
def test_a_port_that_is_none(port: str) -> None:
    with pytest.raises(OptionError, match="SAGEMAKER_BIND_TO_PORT: expected a port, got"):
        served_place(Namespace(**NOTHING), ELSEWHERE | {"SAGEMAKER_BIND_TO_PORT": port})
