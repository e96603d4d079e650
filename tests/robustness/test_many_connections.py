"""Ten thousand clients at once on the local server, on vLLM with a core that is only acted (tests/kit/acted/)."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..bench.load import run_load
from ..bench.workloads import WORKLOADS, prompts
from ..kit.acted.said import Said
from ..kit.hosts.host import Server, model_directory, with_acted

pytestmark = [pytest.mark.once, pytest.mark.engine]

CONNECTIONS = 10_000
TOKENS = 40
"""Of each answer; a step makes one of every answer."""
STEP_S = 1.0


@pytest.mark.timeout(600)
def test_each_of_ten_thousand_gets_its_own_answer(demo_model: Path, tmp_path: Path) -> None:
    """Streams and whole answers of two dialects, all of them open at the same time."""
    directory = model_directory(demo_model, tmp_path / "model", {"option.max_queued_requests": str(CONNECTIONS)})
    said = Said(demo_model)
    asked = [(WORKLOADS[number % len(WORKLOADS)], prompt) for number, prompt in enumerate(prompts(CONNECTIONS))]
    bodies = [workload.request(0, prompt, TOKENS) for workload, prompt in asked]
    server = Server(directory, tmp_path / "log", environment=with_acted(CONNECTIONS, STEP_S))
    try:
        load = run_load(f"{server.url}/invocations", bodies, CONNECTIONS)
    finally:
        server.stop()
    assert max(answer.sent for answer in load.answers) < min(answer.ended for answer in load.answers)
    assert {answer.status for answer in load.answers} == {200}
    for (workload, prompt), answer in zip(asked, load.answers, strict=True):
        body = answer.body()
        text = workload.text(body)
        assert text == said.text(prompt, TOKENS, chat=workload.dialect == "openai")
        assert prompt in text
        assert workload.tokens(body, TOKENS) == TOKENS
