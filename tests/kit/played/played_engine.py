"""vLLM on a core that says what scripts say; the processes are those of tests/kit/acted."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lmi.model.options import Settings
from lmi.model.vllm.engine import VllmEngine
from tests.kit.acted.acted_engine import engine_on
from tests.kit.played.scripts import END, Stage
from tests.microbench.standin import StandInCore

__all__ = ["played_engine"]

FOLDER = "LMI_TEST_STAGE"
"""The environment's variable that names the stage's folder."""
TOKENS_A_STEP = 4


def played_engine(settings: Settings) -> VllmEngine:
    """A backend, as BACKENDS has them."""
    return engine_on(lambda: PlayedCore(str(settings.model_dir)), settings)


class PlayedCore(StandInCore):
    """Ends each answer with the end of a message."""

    def __init__(self, model_dir: str) -> None:
        from tokenizers import Tokenizer

        super().__init__()
        self.stops = True
        self.per_step = TOKENS_A_STEP
        self._tokenizer = Tokenizer.from_file(str(Path(model_dir) / "tokenizer.json"))
        self._stage = Stage(Path(os.environ[FOLDER]))

    def answer(self, request: Any) -> Sequence[int]:
        prompt = self._tokenizer.decode(list(request.prompt_token_ids or ()), skip_special_tokens=False)
        said = self._stage.answer(prompt).said
        ids: list[int] = self._tokenizer.encode(said + END, add_special_tokens=False).ids
        return ids
