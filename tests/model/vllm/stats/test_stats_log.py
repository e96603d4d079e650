"""vLLM's own lines about what it computes, where they are asked for."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from ....demo.model import question
from ....kit.api.options import make_settings
from ....kit.api.types import Generation, Sampling
from ....kit.engines.backends import run
from ....kit.engines.start import in_process
from ....kit.hosts.host import model_directory

pytestmark = pytest.mark.engine


class Lines(logging.Handler):
    """The lines of one logger that no filter of ours holds back."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []
        for handler in logging.getLogger("vllm").handlers:
            for one in handler.filters:
                self.addFilter(one)

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(record.getMessage())


@pytest.mark.parametrize("option", ["false", "true"])
def test_statistics_are_logged_where_they_are_asked_for(
    demo_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    monkeypatch.setenv("VLLM_LOG_STATS_INTERVAL", "0.01")
    directory = model_directory(demo_model, tmp_path / "model", {})
    backend = in_process(make_settings(directory, disable_log_stats=option))
    lines = Lines()
    logger = logging.getLogger("vllm.v1.metrics.loggers")
    logger.addHandler(lines)
    try:
        asked = Sampling(temperature=0.0, max_tokens=200, ignore_eos=True)
        run(backend, Generation(request_id="r", prompt=question("plain").prompt, sampling=asked))
    finally:
        logger.removeHandler(lines)
        backend.close()
    found = [
        re.search(r"Avg generation throughput: ([\d.]+) tokens/s, Running: (\d+) reqs", line) for line in lines.told
    ]
    if option == "true":
        assert not lines.told
    else:
        assert any(match and float(match[1]) > 0 and match[2] == "1" for match in found), lines.told
