"""What arguments of the command line mean."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from lmi.handler.commands.arguments import options_of_model, required_key, served_place

from ...kit.api.errors import OptionError
from ...kit.rows import each_row


@each_row("key", ["key", "key\n", "key\r\n", " \tkey \n\n"])
def test_blanks_and_line_ends_around_a_key_are_none_of_it(key: str) -> None:
    """A secret that was made of a file ends with a line end."""
    assert required_key(None, {"LMI_API_KEY": key}) == "key"
    assert required_key(key, {"LMI_API_KEY": "another"}) == "key"


def test_a_key_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("key\n")
    assert required_key(None, {"LMI_API_KEY": "another"}, file) == "key"
    (tmp_path / "empty").touch()
    (tmp_path / "binary").write_bytes(b"\xff")
    for name, expected in {"empty": "a key, got an empty", "binary": "a file that", "none": "a file that"}.items():
        with pytest.raises(OptionError, match=f"--api-key-file .*{name}: expected {expected}"):
            required_key(None, {}, tmp_path / name)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with a directory of a hub id's name."""
    (tmp_path / "acme" / "model").mkdir(parents=True)
    (tmp_path / "acme" / "file").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@each_row("name", [".", "acme", "acme/model", "./acme/model", "acme/../acme"])
def test_a_directory_is_what_it_is(here: Path, name: str) -> None:
    assert options_of_model(Path(name)) == {}
    assert options_of_model(here / name) == {}


@each_row("name", ["Qwen/Qwen3-0.6B", "a/b", "acme/other", "01-ai/Yi_1.5"])
def test_a_hub_id(here: Path, name: str) -> None:
    assert options_of_model(Path(name)) == {"model_id": name}


@each_row(
    ("name", "found"),
    [
        ("other", "nothing"), ("a/b/c", "nothing"), (".cache/model", "nothing"), ("../model", "nothing"),
        ("a/.b", "nothing"), ("s3://bucket/model", "nothing"), ("/acme/model", "nothing"), ("ä/b", "nothing"),
        ("acme/file", "a file"), ("acme/file/x", "nothing"), ("a b/c", "nothing"),
    ],
)  # fmt: skip
def test_neither(here: Path, name: str, found: str) -> None:
    with pytest.raises(OptionError) as caught:
        options_of_model(Path(name))
    expected = f"expected a model directory, or a hub id as ORG/NAME, found {found}"
    assert caught.value.message == f"{Path(name)}: {expected}"


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
