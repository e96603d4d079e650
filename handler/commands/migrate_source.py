"""What `lmi migrate` reads: a model directory's serving.properties, or a file with a container's environment.

    NAME=value per line, `export` before it or not
    docker run -e NAME=value ... IMAGE --max-model-len 4096 ...
    vllm serve MODEL --max-model-len 4096 ..., or text-generation-launcher --model-id MODEL ...
    {"NAME": "value"}, or a request of SageMaker's that holds an "Environment"

Arguments of the server in an image count as the variables that say the same.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...model.errors import LmiError
from ...model.options.environment.vllm_image import PREFIX
from ...model.options.properties import read_properties

__all__ = ["MigrateError", "Written", "environment_of", "lines_of"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_.]*)=(.*)")
_ASSIGNED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
_CONTAINERS = ("docker", "podman", "nerdctl")
_COMMAND = re.compile(
    rf"(?m)^\s*(?:\$ |sudo )*(?:-|(?:{'|'.join(_CONTAINERS)}|vllm|python3?|text-generation-launcher)\s)"
)
_SWITCHES = {
    "--rm", "--detach", "--interactive", "--tty", "--init", "--privileged", "--read-only", "--no-healthcheck",
    "--oom-kill-disable", "--publish-all", "--quiet",
}  # fmt: skip
"""Of Docker's own options, those that take no value; every other one does."""
_SWITCH_LETTERS = "ditqP"
_TGIS_IMAGE = re.compile(r"text-generation-inference|\btgi\b")
_LAUNCHER = ("text-generation-launcher",)
_SERVER = "vllm.entrypoints.openai.api_server"
_PROGRAMS = (_LAUNCHER, ("vllm", "serve"), ("serve",), ("python", "-m", _SERVER), ("python3", "-m", _SERVER))
"""How a server is started, without its arguments."""
_TGIS_SHORT = {"-p": "port", "-e": "env"}
_VLLMS_SHORT = {
    "-tp": "tensor-parallel-size", "-pp": "pipeline-parallel-size", "-dp": "data-parallel-size", "-q": "quantization",
    "-n": "nnodes", "-r": "node-rank", "-dcp": "decode-context-parallel-size",
    "-pcp": "prefill-context-parallel-size", "-dpn": "data-parallel-rank", "-dpr": "data-parallel-start-rank",
    "-dpl": "data-parallel-size-local", "-dpa": "data-parallel-address", "-dpp": "data-parallel-rpc-port",
    "-dpb": "data-parallel-backend", "-dph": "data-parallel-hybrid-lb", "-dpe": "data-parallel-external-lb",
    "-dpm": "data-parallel-multi-port-external-lb",
    "-ep": "enable-expert-parallel", "-sc": "speculative-config", "-cc": "compilation-config",
    "-ac": "attention-config", "-asc": "api-server-count",
}  # fmt: skip
_OF_SEVERAL = {
    "allowed-media-domains", "api-key", "collect-detailed-traces", "cpu-offload-params", "cudagraph-capture-sizes",
    "ignore-patterns", "kv-cache-dtype-skip-layers", "logits-processors", "lora-modules", "lora-target-modules",
    "numa-bind-cpus", "numa-bind-nodes", "offload-params", "served-model-name",
}  # fmt: skip
"""vLLM's arguments that take several words."""
_VALUE = re.compile(r"[^-].*|-\d.*|", re.DOTALL)
_CONTINUED = re.compile(r"\\\r?\n")


class MigrateError(LmiError):
    """The configuration cannot be read, or what is made of it cannot be written."""


Written = tuple[str, str, str]
"""A key, its value, and the text that says so; key and value are empty for comments and blank lines."""


def lines_of(properties: Path) -> Iterator[Written]:
    """serving.properties in its order, with the comments; of equal keys the last one counts, and only that is there."""
    text = properties.read_bytes().decode("latin-1")
    entries = read_properties(text)
    written = list(_logical(text))
    last = {key: at for at, (key, _) in enumerate(written) if key}
    for at, (key, raw) in enumerate(written):
        if not key or last[key] == at:
            yield key, entries.get(key, ""), raw


def _logical(text: str) -> Iterator[tuple[str, str]]:
    """Keys and the natural lines that hold them; "" for comments."""
    held = ""
    for line in text.splitlines():
        if not held and line.strip()[:1] in {"", "#", "!"}:
            yield "", line.strip()
            continue
        held += line
        if (len(line) - len(line.rstrip("\\"))) % 2:
            held += "\n"
            continue
        yield next(iter(read_properties(held))), held
        held = ""
    if held:
        yield next(iter(read_properties(held))), held


def environment_of(file: Path) -> dict[str, str]:
    """The variables that the file sets, in its order. Raises MigrateError with the line that says nothing."""
    try:
        text = file.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MigrateError(f"{file}: expected text in UTF-8 ({error})") from None
    if text.lstrip().startswith("{"):
        return _of_json(text, file)
    if _COMMAND.search(text):
        return _of_command(text, file)
    return dict(_of_lines(text, file))


def _of_json(text: str, file: Path) -> dict[str, str]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MigrateError(f"{file}: expected a JSON object ({error})") from None
    found = _environment_in(value)
    if found is None:
        found = value
    wrong = [name for name, text in found.items() if not isinstance(text, (str, int, float, bool))]
    if wrong:
        raise MigrateError(f"{file}: {wrong[0]}: expected text")
    return {name: text if isinstance(text, str) else json.dumps(text) for name, text in found.items()}


def _environment_in(value: Any) -> dict[str, Any] | None:
    """The object named Environment in a request of SageMaker's, wherever it stands."""
    if isinstance(value, dict):
        for name, one in value.items():
            if name in {"Environment", "environment"} and isinstance(one, dict):
                return one
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            if (found := _environment_in(one)) is not None:
                return found
    return None


def _of_command(text: str, file: Path) -> dict[str, str]:
    try:
        words = deque(shlex.split(_CONTINUED.sub(" ", text), comments=True))
    except ValueError as error:
        raise MigrateError(f"{file}: expected the words of a shell ({error})") from None
    found: dict[str, str] = {}
    while words and (words[0] in {"$", "sudo", "exec", "export"} or _ASSIGNED.fullmatch(words[0])):
        name, _, value = words.popleft().partition("=")
        if value:
            found[name] = value
    image = ""
    if words and words[0].startswith("-"):
        image = _of_docker(words, file, found)
    elif words and words[0] in _CONTAINERS:
        program = words.popleft()
        if words and words[0] == "container":
            words.popleft()
        if not words or words.popleft() != "run":
            raise MigrateError(f"{file}: {program}: expected {program} run")
        image = _of_docker(words, file, found)
        if not image:
            raise MigrateError(f"{file}: {program} run: expected an image after its options")
    tgis = _TGIS_IMAGE.search(image) is not None
    for command in _PROGRAMS:
        if tuple(words)[: len(command)] == command:
            tgis = tgis or command == _LAUNCHER
            for _ in command:
                words.popleft()
            break
    return found | dict(_of_arguments(words, file, tgis=tgis))


def _of_docker(words: deque[str], file: Path, found: dict[str, str]) -> str:
    """Takes Docker's own options off `words`, their variables into `found`, and returns the image; empty: none."""
    while words:
        word = words.popleft()
        if not word.startswith("-"):
            return word
        name, separator, value = word.partition("=")
        if not word.startswith("--"):
            # Switches of one letter may be joined, with each other and with one that takes a value: -it, -itp 80:80.
            rest = word[1:].lstrip(_SWITCH_LETTERS)
            if not rest:
                continue
            name, value = f"-{rest[0]}", rest[1:].removeprefix("=")
            separator = value
        if name in _SWITCHES:
            continue
        if not separator:
            if not words:
                raise MigrateError(f"{file}: {word}: expected a value after it")
            value = words.popleft()
        if name in {"-e", "--env"}:
            variable, separator, value = value.partition("=")
            if not separator or not _NAME.fullmatch(variable):
                raise MigrateError(f"{file}: -e {variable}: expected NAME=value")
            found[variable] = value
        elif name == "--env-file":
            found |= _of_env_file(file.parent / value, file)
    return ""


def _of_env_file(path: Path, file: Path) -> dict[str, str]:
    try:
        return dict(_of_lines(path.read_text("utf-8-sig"), path))
    except (OSError, UnicodeDecodeError) as error:
        raise MigrateError(f"{file}: --env-file {path}: expected a file of text ({error})") from None


def _of_arguments(words: deque[str], file: Path, *, tgis: bool) -> Iterator[tuple[str, str]]:
    """The server's arguments as variables: TGI's launcher reads each from the one of its name."""
    prefix, shorts = ("", _TGIS_SHORT) if tgis else (PREFIX, _VLLMS_SHORT)
    if words and not tgis and not words[0].startswith("-"):
        yield f"{PREFIX}MODEL", words.popleft()
    while words:
        word = words.popleft()
        name, separator, value = word.partition("=")
        if name.startswith("-O"):
            raise MigrateError(f"{file}: {word}: expected --optimization-level with its number")
        if not name.startswith("-"):
            raise MigrateError(f"{file}: {word}: expected an argument of the server that begins with --")
        if not name.startswith("--") and name not in shorts:
            raise MigrateError(f"{file}: {word}: expected {', '.join(shorts)}, or an argument's long name")
        name = shorts.get(name, name.removeprefix("--")).replace("_", "-")
        if not separator:
            given: list[str] = []
            while words and (name in _OF_SEVERAL or not given) and _VALUE.fullmatch(words[0]):
                given.append(words.popleft())
            value = " ".join(given)
        yield prefix + name.upper().replace("-", "_"), value or "true"


def _of_lines(text: str, file: Path) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _LINE.fullmatch(line.strip())
        if not found:
            raise MigrateError(f"{file}:{number}: expected NAME=value")
        value = found[2].strip()
        # Docker keeps quotes, shells and compose files drop them; no value of a variable here begins and ends with one.
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
            value = value[1:-1]
        yield found[1], value
