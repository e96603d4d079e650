"""What `lmi migrate` reads: a model directory's serving.properties, or a file with a container's environment.

    NAME=value per line, `export` before it or not
    docker run -e NAME=value ... .../vllm... --max-model-len 4096 ...
    NAME=value ... vllm serve MODEL --max-model-len 4096 ...
    {"NAME": "value"}, or a request of SageMaker's that holds an "Environment"

Of a command only variables (`-e`, `--env`, `--env-file`) and vLLM's arguments count; these are the variables SM_VLLM_*
that say the same.
"""

from __future__ import annotations

import codecs
import json
import re
import shlex
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from ...model.errors import LmiError
from ...model.options.environment.vllm_image import PREFIX
from ...model.options.properties import natural_lines, read_properties
from ...model.options.table import option_named

__all__ = ["MigrateError", "Written", "environment_of", "lines_of"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_.]*)=(.*)")
_ASSIGNED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
_CONTAINERS = ("docker", "podman", "nerdctl")
_SERVER = "vllm.entrypoints.openai.api_server"
_COMMAND = re.compile(
    rf"\A(?:[ \t]*(?:#.*)?\n)*[ \t]*-|"
    rf"(?m:^)\s*(?:\$ |sudo )*(?:{'|'.join(_CONTAINERS)}|vllm|python3?|text-generation-launcher)\s|"
    # Whatever stands before it: variables, nohup, uv run.
    rf"(?m:^)[^#\n]*(?:\bvllm\s+serve|-m\s+{re.escape(_SERVER)}|\b(?:{'|'.join(_CONTAINERS)})\s+(?:container\s+)?run)\b"
)
_YAML = re.compile(r"(?m)^(?:---|\s*(?:- )?[\w.-]+:(?:\s|$))")
_IMAGE = re.compile(r"[\w.-]+(?::\d+)?(?:/[\w.-]+)*/[\w.-]*vllm[\w.-]*(?:[:@][\w.:-]+)?")
"""An image with vLLM's server, whose arguments come after it."""
_TGIS = re.compile(r"/text-generation-inference|^text-generation-launcher$")
_VARIABLE = re.compile(r"(?m)^(?:export\s+)?[A-Za-z_][A-Za-z0-9_.]*=")
"""A line that YAML does not have."""
_OF_DOCKER = re.compile(r"(-e|--env(?:-file)?(?==|$))=?(.*)", re.DOTALL)
_PROGRAMS = (("vllm", "serve"), ("python", "-m", _SERVER), ("python3", "-m", _SERVER))
"""How vLLM's server is started, without its arguments."""
_SHORT = {
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
    content = properties.read_bytes()
    entries = read_properties(content.decode("latin-1"))
    written = list(_logical(content.removeprefix(codecs.BOM_UTF8).decode("latin-1")))
    last = {key: at for at, (key, _) in enumerate(written) if key}
    for at, (key, raw) in enumerate(written):
        if not key or last[key] == at:
            yield key, entries.get(key, ""), raw


def _logical(text: str) -> Iterator[tuple[str, str]]:
    """Keys and the natural lines that hold them; "" for comments."""
    held = ""
    for line in natural_lines(text):
        if not held and line.strip()[:1] in {"", "#", "!"}:
            yield "", _comment(line.strip())
            continue
        held += line
        if (len(line) - len(line.rstrip("\\"))) % 2:
            held += "\n"
            continue
        yield next(iter(read_properties(held))), held
        held = ""
    if held:
        yield next(iter(read_properties(held))), held


def _comment(line: str) -> str:
    """As it was meant: Java does not read it, and an editor has written UTF-8."""
    try:
        return line.encode("latin-1").decode()
    except UnicodeDecodeError:
        return line


def environment_of(file: Path) -> dict[str, str | None]:
    """The variables that the file sets, in its order; None: Docker takes it from where it is started.

    Raises MigrateError with the line that says nothing.
    """
    try:
        text = file.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MigrateError(f"{file}: expected text in UTF-8 ({error})") from None
    if text.lstrip().startswith(("{", "[")):
        return _of_json(text, file)
    if file.suffix in {".yaml", ".yml"} or (_YAML.search(text) and not _VARIABLE.search(text)):
        raise MigrateError(f"{file}: expected variables, NAME=value in each line, got YAML: write them out of it")
    if _COMMAND.search(text):
        return _of_command(text, file)
    return dict(_of_lines(text, file))


def _of_json(text: str, file: Path) -> dict[str, str | None]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MigrateError(f"{file}: expected a JSON object ({error})") from None
    found = _environment_in(value)
    if found is None:
        found = value
    if not isinstance(found, dict):
        raise MigrateError(f"{file}: expected a JSON object, or a list with an Environment")
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


def _of_command(text: str, file: Path) -> dict[str, str | None]:
    try:
        words = deque(shlex.split(_CONTINUED.sub(" ", text), comments=True))
    except ValueError as error:
        raise MigrateError(f"{file}: expected the words of a shell ({error})") from None
    found: dict[str, str | None] = {}
    of_docker = bool(words) and words[0].startswith("-")
    while words and not _begun(words):
        word = words.popleft()
        of_docker = of_docker or word in _CONTAINERS
        if not of_docker and _ASSIGNED.fullmatch(word):
            found |= _variable(word, file)
        elif of_docker and (given := _OF_DOCKER.fullmatch(word)):
            value = given[2] or (words.popleft() if words else "")
            found |= _of_env_file(file.parent / value, file) if given[1] == "--env-file" else _variable(value, file)
        elif words and _TGIS.search(word):
            raise MigrateError(f"{file}: {word}: expected TGI's arguments as its variables, MODEL_ID for --model-id")
        elif word.startswith("--") and _is_argument(word):
            expected = "expected `vllm serve`, or an image of that name, before vLLM's arguments"
            raise MigrateError(f"{file}: {word}: {expected}")
    if not words and not found:
        raise MigrateError(f"{file}: expected -e NAME=value, --env-file or vLLM's arguments, found none of them")
    for _ in range(_begun(words) if words else 0):
        words.popleft()
    return found | _of_arguments(words, file)


def _is_argument(word: str) -> bool:
    """Whether vLLM has an argument of that name, and not Docker."""
    option = option_named(word[2:].partition("=")[0].replace("-", "_"))
    return option is not None and option.owner != "nobody"


def _begun(words: deque[str]) -> int:
    """How many words start vLLM's server, after which its arguments come; 0: they do not."""
    first = (words[0].rpartition("/")[2], *islice(words, 1, 3))
    if _IMAGE.fullmatch(words[0]):
        return 2 if first[1:2] == ("serve",) else 1
    return next((len(program) for program in _PROGRAMS if first[: len(program)] == program), 0)


def _variable(text: str, file: Path) -> dict[str, str | None]:
    name, separator, value = text.partition("=")
    if not _NAME.fullmatch(name):
        raise MigrateError(f"{file}: -e {name}: expected NAME=value, or NAME")
    return {name: value if separator else None}


def _of_env_file(path: Path, file: Path) -> Mapping[str, str | None]:
    try:
        return dict(_of_lines(path.read_text("utf-8-sig"), path, passing=True))
    except (OSError, UnicodeDecodeError) as error:
        raise MigrateError(f"{file}: --env-file {path}: expected a file of text ({error})") from None


def _of_arguments(words: deque[str], file: Path) -> dict[str, str]:
    """vLLM's arguments as variables; those with dots are parts of one object in JSON, as vLLM has them."""
    found: dict[str, str] = {}
    if words and not words[0].startswith("-"):
        found[f"{PREFIX}MODEL"] = words.popleft()
    dotted: list[tuple[str, str, list[str], Any]] = []
    while words:
        word = words.popleft()
        name, separator, value = word.partition("=")
        if name.startswith("-O"):
            raise MigrateError(f"{file}: {word}: expected --optimization-level with its number")
        if not name.startswith("-"):
            raise MigrateError(f"{file}: {word}: expected an argument of the server that begins with --")
        name, *parts = name.split(".")
        if not name.startswith("--") and name not in _SHORT:
            raise MigrateError(f"{file}: {word}: expected {', '.join(_SHORT)}, or an argument's long name")
        name = _SHORT.get(name, name.removeprefix("--")).replace("_", "-")
        if not separator:
            given: list[str] = []
            while words and (name in _OF_SEVERAL or not given) and _VALUE.fullmatch(words[0]):
                given.append(words.popleft())
            value = " ".join(given)
        variable = PREFIX + name.upper().replace("-", "_")
        if parts:
            dotted.append((word, variable, parts, _json(value or "true")))
        else:
            found[variable] = value or "true"
    # What is given whole is what the parts are added to, wherever it stands.
    objects = {variable: _json(found.get(variable, "{}")) for _, variable, _, _ in dotted}
    for word, variable, parts, value in dotted:
        inner = objects[variable]
        for part in parts[:-1]:
            inner = inner.setdefault(part, {}) if isinstance(inner, dict) else inner
        if not isinstance(inner, dict):
            raise MigrateError(
                f"{file}: {word}: expected parts of a JSON object, got {json.dumps(inner)} for the whole"
            )
        inner[parts[-1]] = value
    return found | {variable: json.dumps(value) for variable, value in objects.items()}


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _of_lines(text: str, file: Path, *, passing: bool = False) -> Iterator[tuple[str, str | None]]:
    """`passing`: a name alone passes the variable through, as Docker has it."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _LINE.fullmatch(line.strip())
        if passing and _NAME.fullmatch(line.strip()):
            yield line.strip(), None
            continue
        if not found:
            raise MigrateError(f"{file}:{number}: expected NAME=value" + (", or NAME" if passing else ""))
        value = found[2].strip()
        # Docker keeps quotes, shells and compose files drop them; no value of a variable here begins and ends with one.
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
            value = value[1:-1]
        yield found[1], value
