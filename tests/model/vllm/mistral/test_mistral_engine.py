"""vLLM itself with Mistral's tokenizer: it starts, chats, and its core guides calls by mistral-common's grammars."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ....kit.answers.calls import CALLING
from ....kit.api.dialects import parse
from ....kit.api.options import make_settings
from ....kit.api.types import Settings
from ....kit.engines.backends import PICK, run
from ....kit.engines.start import in_process
from ....kit.hosts.host import FAST_OPTIONS
from ....kit.models.mistral import mistral_directory

pytestmark = pytest.mark.engine

ASKED: dict[str, Any] = {"messages": [{"role": "user", "content": "Pick a city."}], "max_tokens": 400, "seed": 1}
CHAT = CALLING["openai"]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Settings, Any]]:
    folder = mistral_directory(tmp_path_factory.mktemp("mistral") / "model", "v11")
    options = {
        **FAST_OPTIONS, "tokenizer_mode": "mistral", "load_format": "dummy", "dtype": "fp32",
        "max_model_len": "1024", "max_rolling_batch_size": "4", "tool_call_parser": "mistral",
    }  # fmt: skip
    settings = make_settings(folder, **options)
    backend = in_process(settings)
    yield settings, backend
    backend.close()


def answered(started: tuple[Settings, Any], body: dict[str, Any]) -> list[bytes]:
    settings, backend = started
    parsed = parse("openai", body, settings)
    (events,) = run(backend, *parsed.generations)
    return [record for event in events for record in parsed.reply.feed(event, 0)]


def test_it_chats(started: tuple[Settings, Any]) -> None:
    (answer,) = [json.loads(record) for record in answered(started, {**ASKED, "max_tokens": 5, "temperature": 0})]
    assert answer["usage"]["completion_tokens"] == 5
    assert answer["usage"]["prompt_tokens"] > 3


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("kind", ["required", "named"])
def test_a_forced_call_is_made_by_random_weights(started: tuple[Settings, Any], kind: str, stream: bool) -> None:
    body = {**CHAT.body(kind, [PICK], "pick"), **ASKED, "parallel_tool_calls": False, "stream": stream}
    found = (CHAT.stream if stream else CHAT.whole)(answered(started, body))
    (call,) = found.calls
    assert call.name == "pick"
    assert call.arguments in ({"city": "Paris"}, {"city": "Rome"})
    assert len(call.id) == 9


def test_its_answer_goes_back_and_what_may_be_called_is_guided(started: tuple[Settings, Any]) -> None:
    """The id that it gave, too; nothing of special tokens is in the text of what is no call."""
    body = {**CHAT.body("named", [PICK], "pick"), **ASKED}
    (first,) = [json.loads(record) for record in answered(started, body)]
    message = first["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "Done."}
    history = [*ASKED["messages"], message, result]
    found = CHAT.whole(answered(started, {**CHAT.body("auto", [PICK]), **ASKED, "messages": history, "max_tokens": 40}))
    assert "[TOOL_CALLS]" not in found.text
    assert "[ARGS]" not in found.text


def test_other_guides_run_beside_them(started: tuple[Settings, Any]) -> None:
    form = {"name": "city", "schema": PICK["function"]["parameters"]}
    (answer,) = [
        json.loads(record)
        for record in answered(started, {**ASKED, "response_format": {"type": "json_schema", "json_schema": form}})
    ]
    assert json.loads(answer["choices"][0]["message"]["content"])["city"] in ("Paris", "Rome")
