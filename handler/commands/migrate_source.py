"""What `lmi migrate` reads: a model directory's serving.properties, or a file with a container's environment.

    NAME=value per line, `export` before it or not
    docker run -e NAME=value ... IMAGE --max-model-len 4096 ...
    {"NAME": "value"}, or a request of SageMaker's that holds an "Environment"

Arguments of the server in an image count as the variables that say the same.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ...model.errors import LmiError
from ...model.options.environment.vllm_image import PREFIX
from ...model.options.properties import read_properties

__all__ = ["MigrateError", "Written", "environment_of", "lines_of"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_.]*)=(.*)")
_DOCKERS = {
    "--add-host", "--cap-add", "--cpus", "--detach", "--device", "--entrypoint", "--env", "--env-file", "--gpus",
    "--hostname", "--interactive", "--ipc", "--label", "--memory", "--mount", "--name", "--net", "--network",
    "--platform", "--privileged", "--publish", "--pull", "--restart", "--rm", "--runtime", "--shm-size", "--tty",
    "--ulimit", "--user", "--volume", "--workdir",
}  # fmt: skip
"""Arguments of `docker run`, and not of the server in the image."""
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
        text = file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise MigrateError(f"{file}: expected text in UTF-8 ({error})") from None
    if text.lstrip().startswith("{"):
        return _of_json(text, file)
    if re.search(r"(?m)^\s*(?:\S+\s+)*(?:-e|--env)[\s=]", text):
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
        words = shlex.split(_CONTINUED.sub(" ", text), comments=True)
    except ValueError as error:
        raise MigrateError(f"{file}: expected the words of a shell ({error})") from None
    found: dict[str, str] = {}
    for at, word in enumerate(words):
        given = words[at + 1] if word in {"-e", "--env"} and at + 1 < len(words) else word.removeprefix("--env=")
        if given == word:
            continue
        name, separator, value = given.partition("=")
        if not separator or not _NAME.fullmatch(name):
            raise MigrateError(f"{file}: -e {name}: expected NAME=value")
        found[name] = value
    tgis = any("text-generation-inference" in word or "tgi" in word for word in words)
    return found | dict(_of_arguments(words, "" if tgis else PREFIX))


def _of_arguments(words: Sequence[str], prefix: str) -> Iterator[tuple[str, str]]:
    """The server's arguments as variables: TGI's launcher reads each from the one of its name."""
    for at, word in enumerate(words):
        name, separator, value = word.partition("=")
        if not name.startswith("--") or len(name) == 2 or name in _DOCKERS:
            continue
        if not separator:
            value = " ".join(itertools.takewhile(lambda word: not word.startswith("-"), words[at + 1 :]))
        yield prefix + name.removeprefix("--").upper().replace("-", "_"), value or "true"


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
