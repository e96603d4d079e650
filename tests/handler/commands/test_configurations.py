"""Configurations that LMI's container accepts: `lmi check` refuses only what docs/migrating.md lists. What a start says
of them: test_check_and_start.py."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lmi.handler.commands.check import check
from lmi.handler.commands.migrate import migrate

from ...kit.adapters import LLAMA, safetensors_of, write_adapter
from ...kit.api.errors import OptionError
from ...kit.api.options import option_named, read_properties
from ...kit.paths import DOCS
from .configurations import CONFIGURATIONS, FAMILIES, Configuration


def listed() -> set[str]:
    """The options in the first column of the page's tables of what is refused."""
    page = (DOCS / "migrating.md").read_text("utf-8")
    tables = [
        page.partition(f"<!-- {name} -->\n")[2].partition(f"<!-- /{name} -->")[0] for name in ("refusals", "advice")
    ]
    rows = [row for table in tables for row in table.splitlines()[2:]]
    return {name for row in rows for name in re.findall(r"`(\w+)(?:=[^`]*)?`", row.split("|")[1])}


def write(directory: Path, configuration: Configuration) -> dict[str, str]:
    """A model directory of that family; returned are the entries of its serving.properties."""
    architecture, kind = FAMILIES[configuration.family]
    config = {**LLAMA, "architectures": [architecture], "model_type": kind}
    directory.joinpath("config.json").write_text(json.dumps(config))
    directory.joinpath("tokenizer.json").write_text("{}")
    directory.joinpath("model.safetensors").write_bytes(safetensors_of({}))
    for name, text in configuration.files.items():
        directory.joinpath(name).write_text(text)
    for name in configuration.adapters:
        write_adapter(directory / "adapters" / name, config)
    return {"option.entryPoint": "lmi.handler", **configuration.entries}


def refusals(directory: Path, entries: dict[str, str], environment: dict[str, str]) -> Iterator[str]:
    """The options that are refused, one after the other, until the rest is good."""
    entries, environment = dict(entries), dict(environment)
    while True:
        text = "\n".join(f"{name}={value}" for name, value in entries.items())
        directory.joinpath("serving.properties").write_text(text)
        try:
            check(directory, {}, environment=environment, here=False)
        except OptionError as error:
            name = str(error.param)
        else:
            return
        yield name
        option = option_named(name)
        names = option.names if option else (name,)
        entries = {key: value for key, value in entries.items() if key.removeprefix("option.") not in names}
        variables = {f"OPTION_{name.upper()}" for name in names}
        environment = {variable: value for variable, value in environment.items() if variable not in variables}
        if name == "task":
            entries["option.task"] = "text-embedding"


@pytest.mark.engine
@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda one: one.name)
def test_what_is_refused(configuration: Configuration, tmp_path: Path) -> None:
    """And each can be migrated: what is refused is commented out or written otherwise, and the result passes."""
    entries = write(tmp_path, configuration)
    refused = set(refusals(tmp_path, entries, configuration.environment))
    assert refused == configuration.refused
    assert configuration.refused <= listed()
    if not configuration.entries:
        return
    entries["option.entryPoint"] = "djl_python.lmi_vllm.vllm_async_service"
    text = "\n".join(f"{name}={value}" for name, value in entries.items())
    tmp_path.joinpath("serving.properties").write_text(text)
    migrated = migrate(tmp_path)
    assert read_properties(migrated.text)["option.entryPoint"] == "lmi.handler"
    tmp_path.joinpath("serving.properties").write_text(migrated.text)
    check(tmp_path, {}, environment={}, here=False)
