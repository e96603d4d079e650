"""The list of models, and one of them."""

from __future__ import annotations

import json
from typing import Any

from lmi.formatters.openai.models import MODEL_PATH, model, models, version

from ...kit.api.options import typed_settings
from ...kit.api.types import EngineInfo, Request, Response, Route
from ...kit.engines.loaders import adapter
from ...kit.rows import each_row

SETTINGS = typed_settings(model_name="owner/name")
INFO = EngineInfo(engine="none", version="0", context=2048, adapters=(adapter("pirate", 1),))


def ask(name: str) -> Response:
    return model(Request(b"", path=f"/v1/models/{name}", method="GET"), SETTINGS, INFO)


def test_each_of_the_list_is_there_by_itself() -> None:
    listed: Any = json.loads(models(Request(b""), SETTINGS, INFO).body)
    own, other = listed["data"]
    assert (own["id"], own["max_model_len"], "parent" in own) == ("owner/name", 2048, False)
    assert (own["root"], other["root"]) == (SETTINGS.model_id, INFO.adapters[0].path)
    assert (other["id"], other["max_model_len"], other["parent"]) == ("pirate", 2048, "owner/name")
    assert [json.loads(ask(one["id"]).body) for one in listed["data"]] == [own, other]


@each_row("name", ["name", "owner", "owner/name/", "x" * 1000])
def test_one_that_is_not_there(name: str) -> None:
    answer = ask(name)
    error = json.loads(answer.body)["error"]
    assert (answer.status, error["code"], error["param"]) == (404, "model_not_found", "model")
    assert error["message"] == f"model: there is no model {name[:256]!r}"


@each_row(
    ("path", "has"),
    [("/v1/models/a", True), ("/v1/models/a/b", True), ("/v1/models/", False), ("/v1/models", False), ("/a", False)],
)
def test_a_path_that_ends_in_what_varies(path: str, has: bool) -> None:
    assert Route(MODEL_PATH).has(path) is has


def test_the_engines_version() -> None:
    assert json.loads(version(Request(b""), SETTINGS, INFO).body) == {"version": "0"}
