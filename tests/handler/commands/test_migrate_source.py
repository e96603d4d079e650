"""How an environment may be written for `lmi migrate`."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmi.handler.commands.migrate_source import MigrateError, environment_of

WRITINGS: list[tuple[str, dict[str, str]]] = [
    ("# TGI\nA=1\n\nexport B=two words\nC=\"quoted\"\nD='x=y'\nE=\n", {"A": "1", "B": "two words", "C": "quoted",
                                                                      "D": "x=y", "E": ""}),
    ('{"A": "1", "B": 2, "C": true}', {"A": "1", "B": "2", "C": "true"}),
    ('{"ModelName": "m", "PrimaryContainer": {"Image": "i", "Environment": {"A": "1"}}}', {"A": "1"}),
    ('{"Containers": [{"Image": "i"}, {"Environment": {"A": "1"}}]}', {"A": "1"}),
    ("docker run --gpus all -e A=1 \\\n  --env B='two words' --env=C=3 i\n", {"A": "1", "B": "two words", "C": "3"}),
    ('-e A=1\n-e OPTION_X="{\\"image\\": 4}"\n', {"A": "1", "OPTION_X": '{"image": 4}'}),
    (
        "docker run --gpus all -p 80:80 -e A=1 vllm/vllm-openai:latest --model a/b --max-model-len=64 --enforce-eager",
        {"A": "1", "SM_VLLM_MODEL": "a/b", "SM_VLLM_MAX_MODEL_LEN": "64", "SM_VLLM_ENFORCE_EAGER": "true"},
    ),
    (
        "docker run --shm-size 1g -e A=1 ghcr.io/huggingface/text-generation-inference:3 --model-id a/b --num-shard 2",
        {"A": "1", "MODEL_ID": "a/b", "NUM_SHARD": "2"},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "variables"), WRITINGS)
def test_how_an_environment_may_be_written(text: str, variables: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "environment"
    file.write_text(text)
    assert environment_of(file) == variables


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"A=1\nnothing\n", "environment:2: expected NAME=value"),
        (b"1A=1\n", "environment:1: expected NAME=value"),
        (b'{"A": ', "environment: expected a JSON object"),
        (b'{"A": null}', "environment: A: expected text"),
        (b"docker run -e A image", "environment: -e A: expected NAME=value"),
        (b"docker run -e 'A=1", "environment: expected the words of a shell"),
        (b"A=\xff", "environment: expected text in UTF-8"),
    ],
)
def test_what_says_no_environment(text: bytes, said: str, tmp_path: Path) -> None:
    file = tmp_path / "environment"
    file.write_bytes(text)
    with pytest.raises(MigrateError) as caught:
        environment_of(file)
    assert said in caught.value.message
