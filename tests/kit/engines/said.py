"""vLLM, all of it but the model: a test says what that writes, and asks in any dialect.

body --parse--> Generation --VllmEngine, on a core that writes `answer`--> events --ResponseEncoder--> records
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.microbench.standin import backend, now, settings_of

from ..api.dialects import parse
from ..api.types import Delta, Failed, MediaFile, Started
from .backends import NUMBERS

__all__ = ["SaidEngine"]


class SaidEngine:
    """An engine of the model in a folder, with options."""

    def __init__(self, model_dir: Path, **options: str) -> None:
        self.settings = settings_of(model_dir, **options)
        self.backend, self._acting = backend(self.settings)
        self.core: Any = self.backend._core
        """vLLM's, as the backend has it."""
        self.tokenizer: Any = self.core.get_tokenizer()

    def ids(self, text: str, *, letters: bool = False) -> list[int]:
        """The tokens of a text: as few as there may be, or one or more of each of its letters."""
        parts = [*text] if letters else [text]
        return [one for part in parts for one in self.tokenizer.encode(part, add_special_tokens=False)]

    def ask(
        self,
        dialect: str,
        body: Mapping[str, Any],
        answer: list[int],
        *,
        per_step: int = 1,
        whole: bool = True,
        headers: Mapping[str, str] = MappingProxyType({}),
        path: str = "/invocations",
        files: Sequence[MediaFile] = (),
    ) -> list[bytes]:
        """The records that a request is answered with, where the model writes these tokens, so many a step.

        whole: whether it ends its answer then; it is cut off otherwise, as by max_tokens. files: what its parts hold.
        """
        core = self._acting
        core.per_step, core.stops = per_step, whole
        core.tokens = [*answer, self.tokenizer.eos_token_id] if whole else [*answer]
        parsed = parse(dialect, dict(body), self.settings, headers=headers, path=path)
        records: list[bytes] = []
        for prompt, generation in enumerate(parsed.generations):
            number = next(NUMBERS)
            self.backend.add(number, self.backend.prepare(number, generation, files))
            while self.backend.busy:
                for _, event in now(self.backend.receive()):
                    assert isinstance(event, Started | Delta | Failed)
                    records += parsed.reply.feed(event, prompt)
        return records

    def prompt(self, dialect: str, body: Mapping[str, Any]) -> str:
        """What the template makes of a request."""
        (generation,) = parse(dialect, dict(body), self.settings).generations
        return self.backend.prompt_text(self.backend.prepare(next(NUMBERS), generation))

    def guided_to(self, dialect: str, body: Mapping[str, Any], answer: str) -> bool:
        """Whether guided decoding lets the model answer a request so, by xgrammar; true where none guides it."""
        import xgrammar

        (generation,) = parse(dialect, dict(body), self.settings).generations
        guide = self.backend.prepare(next(NUMBERS), generation).requests[0].sampling_params.structured_outputs
        if guide is None:
            return True
        compiler = xgrammar.GrammarCompiler(xgrammar.TokenizerInfo([bytes([value]) for value in range(256)]))
        if guide.json is not None:
            schema = guide.json if isinstance(guide.json, str) else json.dumps(guide.json)
            made = compiler.compile_json_schema(schema)
        else:
            made = compiler.compile_structural_tag(guide.structural_tag)
        matcher = xgrammar.GrammarMatcher(made, terminate_without_stop_token=True)
        return bool(matcher.accept_string(answer)) and matcher.is_terminated()

    def close(self) -> None:
        self.backend.close()
