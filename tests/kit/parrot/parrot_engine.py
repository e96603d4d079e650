"""An engine that knows the demo model's questions by heart and says the answers token by token, up in a second.

For what a host does whatever engine it has. A token is one of the demo model's tokenizer, a step makes one token of
each sequence; what is asked beyond that (guides, tools, log-probabilities that mean something) needs the real one.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lmi.model.engine import EngineInfo, EngineStats
from lmi.model.events import Delta, Event, Finish, FinishReason, Started, Token
from lmi.model.generation import Conversation, Generation
from lmi.model.media.parts import MediaFile
from lmi.model.options import Settings
from lmi.model.text.prompt_limits import check_prompt, check_text
from lmi.model.text.template_messages import template_messages
from tests.demo.answers import FALLBACK, QUESTIONS

STEP_S = float(os.environ.get("LMI_TEST_STEP_S", "0.002"))
"""Seconds that a step takes."""
LOGPROB = -0.01
CONTEXT = 2048


@dataclass
class Running:
    """One generation: the sequences have said `said` tokens each."""

    number: int
    generation: Generation
    prompt_tokens: int
    ids: list[int]
    said: int = 0
    text: str = ""


class ParrotEngine:
    """A Backend (model/backend.py)."""

    def __init__(self, settings: Settings) -> None:
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(Path(settings.model_dir) / "tokenizer.json"))
        self._answers = {question.prompt: question for question in QUESTIONS}
        self.info = EngineInfo(engine="parrot", version="1", context=CONTEXT)
        self._running: dict[int, Running] = {}

    @property
    def busy(self) -> bool:
        return bool(self._running)

    def stats(self) -> EngineStats:
        return EngineStats(running=len(self._running))

    def tokens(self, prepared: Running) -> int:
        """What it may come to."""
        return prepared.prompt_tokens + (prepared.generation.sampling.max_tokens or CONTEXT)

    def prepare(self, number: int, generation: Generation, images: Sequence[MediaFile] = ()) -> Running:
        """Looks the answer up."""
        del images
        prompt = generation.prompt
        if isinstance(prompt, Conversation):
            asked = str(template_messages(prompt.messages)[-1]["content"])
        elif isinstance(prompt, str):
            asked = prompt
        else:
            check_prompt(len(prompt), CONTEXT, CONTEXT)
            asked = self._tokenizer.decode(list(prompt))
        # As transformers calls it; `encode` would keep the steps waiting.
        check_text("prompt", asked, CONTEXT, lambda text: len(self._tokenizer.encode_batch([text])[0].ids), CONTEXT)
        question = self._answers.get(asked)
        ids = self._tokenizer.encode(question.answer if question else FALLBACK, add_special_tokens=False).ids
        if (question and question.endless) or generation.sampling.ignore_eos:
            ids = ids * (1 + CONTEXT // len(ids))
        return Running(number, generation, len(self._tokenizer.encode(asked).ids), ids)

    def prompt_text(self, prepared: Running) -> str:
        """All of a conversation."""
        prompt = prepared.generation.prompt
        if isinstance(prompt, Conversation):
            return json.dumps([template_messages(prompt.messages), prompt.tools, prompt.template_arguments])
        return prompt if isinstance(prompt, str) else self._tokenizer.decode(list(prompt))

    def add(self, prepared: Running) -> None:
        self._running[prepared.number] = prepared

    def abort(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._running.pop(number, None)

    def step(self) -> list[tuple[int, Event]]:
        """A token of each sequence."""
        time.sleep(STEP_S)
        events: list[tuple[int, Event]] = []
        for running in list(self._running.values()):
            if not running.said:
                events.append((running.number, Started(running.prompt_tokens)))
            events += [(running.number, delta) for delta in self._next(running)]
        return events

    def _next(self, running: Running) -> list[Delta]:
        limit = min(len(running.ids), running.generation.sampling.max_tokens or CONTEXT)
        running.said += 1
        whole = self._tokenizer.decode(running.ids[: running.said]).rstrip("\N{REPLACEMENT CHARACTER}")
        piece, running.text = whole[len(running.text) :], whole
        over = running.said >= limit
        if over:
            del self._running[running.number]
        reason: FinishReason = "eos" if running.said == len(running.ids) else "length"
        tokens = (Token(running.ids[running.said - 1], piece, LOGPROB),) if running.generation.tokens else ()
        count = running.generation.sampling.n
        return [
            Delta(
                index,
                piece,
                tokens,
                Finish(
                    reason,
                    generated_tokens=running.said,
                    cumulative_logprob=LOGPROB * running.said,
                    last=index == count - 1,
                )
                if over
                else None,
            )
            for index in range(count)
        ]

    def close(self) -> None:
        """Nothing is held."""
