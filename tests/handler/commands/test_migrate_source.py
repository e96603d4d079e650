"""How an environment may be written for `lmi migrate`."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmi.handler.commands.migrate_source import MigrateError, environment_of

from ...kit.rows import each_row

WRITINGS: list[tuple[str, dict[str, str | None]]] = [
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
    ("docker run --shm-size 1g -e A=1 ghcr.io/huggingface/text-generation-inference:3\n", {"A": "1"}),
    (
        ("sudo docker run -itd --rm --init --ipc=host --security-opt x=y --gpus all -v x:/y -p80:80 -eA=1 \\\n"
         "--name tgi vllm/vllm-openai a/b -tp 2 -q=fp8 --seed -1 --served-model-name m n --enforce-eager"),
        {"A": "1", "SM_VLLM_MODEL": "a/b", "SM_VLLM_TENSOR_PARALLEL_SIZE": "2", "SM_VLLM_QUANTIZATION": "fp8",
         "SM_VLLM_SEED": "-1", "SM_VLLM_SERVED_MODEL_NAME": "m n", "SM_VLLM_ENFORCE_EAGER": "true"},
    ),
    ("docker run vllm/vllm-openai --model a/b\n", {"SM_VLLM_MODEL": "a/b"}),
    ("docker container run --env-file more.env i\n", {"B": "2"}),
    ("export A=1\nvllm serve a --max-model-len 64", {"A": "1", "SM_VLLM_MODEL": "a", "SM_VLLM_MAX_MODEL_LEN": "64"}),
    ("python -m vllm.entrypoints.openai.api_server --model tgi", {"SM_VLLM_MODEL": "tgi"}),
    (
        ("vllm serve a --max_model_len 8 --structured-outputs-config.backend xgrammar --hf-overrides.a.b=2 "
        "--hf-overrides.a.c --structured-outputs-config.disable_any_whitespace=true"),
        {"SM_VLLM_MODEL": "a", "SM_VLLM_MAX_MODEL_LEN": "8", "SM_VLLM_HF_OVERRIDES": '{"a": {"b": 2, "c": true}}',
         "SM_VLLM_STRUCTURED_OUTPUTS_CONFIG": '{"backend": "xgrammar", "disable_any_whitespace": true}'},
    ),
    ("podman run --name vllm -v /x/vllm:/y -p 80:80 quay.io:443/me/my-vllm@sha256:0a serve a -tp=2",
     {"SM_VLLM_MODEL": "a", "SM_VLLM_TENSOR_PARALLEL_SIZE": "2"}),
    ("CUDA_VISIBLE_DEVICES=0 B='x y' vllm serve m --max-model-len 10",
     {"CUDA_VISIBLE_DEVICES": "0", "B": "x y", "SM_VLLM_MODEL": "m", "SM_VLLM_MAX_MODEL_LEN": "10"}),
    ("# A comment\nnohup env A=1 vllm serve m\n", {"A": "1", "SM_VLLM_MODEL": "m"}),
    ("uv run --with vllm vllm serve m -tp 2\n", {"SM_VLLM_MODEL": "m", "SM_VLLM_TENSOR_PARALLEL_SIZE": "2"}),
    ("A=1 /opt/bin/python3 -m vllm.entrypoints.openai.api_server --model m", {"A": "1", "SM_VLLM_MODEL": "m"}),
    (".venv/bin/vllm serve m", {"SM_VLLM_MODEL": "m"}),
    ("#!/bin/sh\nset -e\nexport A=1\nexec /opt/bin/vllm serve m", {"A": "1", "SM_VLLM_MODEL": "m"}),
    ("A=1 sudo docker run -e B=2 --label C=3 i\n", {"A": "1", "B": "2"}),
    ("# As of vllm serve m --x\nA=1\n", {"A": "1"}),
    ("docker run -e A --env=B --env-file passed.env i\n", {"A": None, "B": None, "C": None, "D": "1"}),
    (
        ("vllm serve -sc '{\"method\": \"ngram\", \"a\": {\"b\": 1}}' --speculative-config.num_speculative_tokens 4 "
         "--speculative-config.a.c 2"),
        {"SM_VLLM_SPECULATIVE_CONFIG": '{"method": "ngram", "a": {"b": 1, "c": 2}, "num_speculative_tokens": 4}'},
    ),
    ("vllm serve --x-config.a 1 --x-config '{\"a\": 2, \"b\": 3}'", {"SM_VLLM_X_CONFIG": '{"a": 1, "b": 3}'}),
    ('[{"ModelName": "m", "Environment": {"A": "1"}}]', {"A": "1"}),
]  # fmt: skip


@each_row(("text", "variables"), WRITINGS)
def test_how_an_environment_may_be_written(text: str, variables: dict[str, str | None], tmp_path: Path) -> None:
    file = tmp_path / "environment"
    file.write_text(text)
    file.with_name("more.env").write_text("B=2\n")
    file.with_name("passed.env").write_text("C\nD=1\n")
    assert environment_of(file) == variables
    # As PowerShell writes it; Docker overlooks the mark too.
    file.write_text(text, "utf-8-sig")
    file.with_name("more.env").write_text("B=2\n", "utf-8-sig")
    assert environment_of(file) == variables


@each_row(
    ("text", "said"),
    [
        (b"A=1\nnothing\n", "environment:2: expected NAME=value"),
        (b"1A=1\n", "environment:1: expected NAME=value"),
        (b'{"A": ', "environment: expected a JSON object"),
        (b'{"A": null}', "environment: A: expected text"),
        (b"docker run -e 1A image", "environment: -e 1A: expected NAME=value, or NAME"),
        (b"docker run --env-file odd.env image", "odd.env:1: expected NAME=value, or NAME"),
        (b"docker run -e 'A=1", "environment: expected the words of a shell"),
        (b"docker run -e", "environment: -e : expected NAME=value, or NAME"),
        (b"docker pull image", "environment: expected -e NAME=value, --env-file or vLLM's arguments"),
        (b"docker run -e A=1 mine --max-model-len 8", "--max-model-len: expected `vllm serve`, or an image of that"),
        (b"docker run ghcr.io/huggingface/text-generation-inference:3 --model-id a", "expected TGI's arguments as its"),
        (b"services:\n  vllm:\n    image: vllm/vllm-openai\n", "got YAML: write them out of it"),
        (b"- name: A\n  value: x -tp\n", "got YAML: write them out of it"),
        (b"docker run --env-file none.env image", "none.env: expected a file of text"),
        (b"vllm serve a b", "environment: b: expected an argument of the server that begins with --"),
        (b"vllm serve a -O3", "environment: -O3: expected --optimization-level with its number"),
        (b"vllm serve a -zz 1", "environment: -zz: expected -tp, -pp, "),
        (b"text-generation-launcher a/b", "environment: text-generation-launcher: expected TGI's arguments as its"),
        (b"vllm chat", "environment: expected -e NAME=value, --env-file or vLLM's"),
        (b"vllm serve a --x-config.a 1 --x-config.a.b 2", "--x-config.a.b: expected parts of a JSON object, got 1 for"),
        (b"vllm serve a --x-config [1] --x-config.a 2", "--x-config.a: expected parts of a JSON object, got [1] for"),
        (b'["A=1"]', "environment: expected a JSON object, or a list with an Environment"),
        (b"A=1\nB: 2\n", "environment:2: expected NAME=value"),
        (b"A=1\n- B\n", "environment:2: expected NAME=value"),
        (b"A=1\n---\n", "environment:2: expected NAME=value"),
        (b"services:\n  vllm:\n    environment:\n      - A=1\n", "got YAML: write them out of it"),
        (b"A=\xff", "environment: expected text in UTF-8"),
    ],
)
def test_what_says_no_environment(text: bytes, said: str, tmp_path: Path) -> None:
    file = tmp_path / "environment"
    file.write_bytes(text)
    file.with_name("odd.env").write_text("no name\n")
    with pytest.raises(MigrateError) as caught:
        environment_of(file)
    assert said in caught.value.message
