"""Where guides begin, and how what they leave is read: every reasoning parser, beside what vLLM's server does."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from ..kit.api.engine import Splitter
from ..kit.api.errors import OptionError
from ..kit.api.types import Conversation, Token
from ..kit.engines.parsing import chat_renderer
from ..kit.models.any_tokens import AnyTokenizer

pytestmark = pytest.mark.engine

ARGUMENTS: tuple[dict[str, Any], ...] = (
    {}, {"enable_thinking": False}, {"enable_thinking": True}, {"thinking": False}, {"thinking": True},
)  # fmt: skip
ELSEWHERE = {"hf", "mistral", "minimax_m3", "openai_gptoss"}
"""Parsers that may not be made here: they need parts of vLLM's, a model's own tokenizer or its type."""
NEVER_END = {"granite", "hunyuan_a13b"}
"""Those whose guides never begin in vLLM's server: begun at once, the answer is what was asked for."""


class Family:
    """A reasoning parser, with a vocabulary that has its marks."""

    def __init__(self, name: str, tokenizer: Any, model_config: Any) -> None:
        from vllm.reasoning import ReasoningParserManager

        self.tokenizer: Any = AnyTokenizer(tokenizer)
        self.chat = chat_renderer(self.tokenizer, model_config, reasoning_parser=name)
        self._kind = ReasoningParserManager.get_reasoning_parser(name)
        self._model_config = model_config
        self.word: list[int] = tokenizer.encode("Let me see", add_special_tokens=False)
        self.end_of_message: int = tokenizer.eos_token_id
        made = self.theirs({})
        words = (made.reasoning_start_str, made.reasoning_end_str)
        self.marks = [self.tokenizer.get_vocab()[word] for word in words if word]

    def theirs(self, arguments: dict[str, Any]) -> Any:
        """vLLM's parser, as its server makes it and its core."""
        return self._kind(self.tokenizer, chat_template_kwargs=arguments, model_config=self._model_config)

    def begins(self, prompt: list[int], arguments: dict[str, Any], *, shown: bool = True) -> Any:
        conversation = Conversation(
            messages=({"role": "user", "content": "Hi"},), template_arguments=arguments, include_reasoning=shown
        )
        return self.chat.beginning(conversation, self.chat.request(conversation), prompt, waits=True)

    def prompts(self) -> dict[str, list[int]]:
        if len(self.marks) < 2:
            return {"nothing": self.word}
        start, end = self.marks
        before = [start, *self.word, end, *self.word, self.end_of_message]
        return {
            "nothing": self.word,
            "open": [*self.word, start, *self.word[:1]],
            "closed": [*self.word, start, end, *self.word[:1]],
            "before": [*before, *self.word],
            "before, open": [*before, *self.word, start],
            "quoted": [start, self.end_of_message, *self.word],
        }


@pytest.fixture(scope="module")
def families(tokenizer: Any, model_config: Any) -> dict[str, Family]:
    from vllm.reasoning import ReasoningParserManager

    made: dict[str, Family] = {}
    for name in ReasoningParserManager.list_registered():
        with suppress(OptionError):
            made[name] = Family(name, tokenizer, model_config)
    assert {*ReasoningParserManager.list_registered()} - made.keys() <= ELSEWHERE
    assert len(made) > 20
    return made


def test_a_guide_begins_where_vllms_server_begins_it(families: dict[str, Family]) -> None:
    """But for what earlier messages thought, a prompt that says more than the arguments, and marks that may come."""
    wrong: list[Any] = []
    for name, family in families.items():
        for what, prompt in family.prompts().items():
            for arguments in ARGUMENTS:
                parser = family.theirs(arguments)
                marked = bool(parser.reasoning_start_str and parser.reasoning_end_str)
                theirs = bool(parser.is_reasoning_end(prompt))
                ours = family.begins(prompt, arguments)
                if name in NEVER_END:
                    right = ours.at_once and not ours.reasons
                elif what in ("open", "before, open"):
                    # Where the arguments say that it does not think, nothing can be open.
                    right = ours.at_once is (not marked and theirs)
                elif what in ("before", "quoted"):
                    right = ours == family.begins(family.word, arguments)
                elif theirs:
                    right = ours.at_once and not ours.reasons
                else:
                    # It waits for what may come; vLLM's core for what must.
                    right = ours.reasons and (ours.marks is not None) is marked
                    right = right and ours.arguments == {"chat_template_kwargs": arguments}
                if not right:
                    wrong.append((name, what, arguments, theirs, ours))
    assert wrong == []


def test_a_guide_begins_at_once_where_no_reasoning_is_to_be_shown(families: dict[str, Family]) -> None:
    """As in vLLM's server, whatever the prompt ends with."""
    for family in families.values():
        for prompt in family.prompts().values():
            begins = family.begins(prompt, {}, shown=False)
            assert (begins.at_once, begins.reasons, begins.marks) == (True, False, None)


IN_OTHER_WAYS = {
    "hy_v3": "it thinks only where the arguments say so",
    "inkling": "its marks stand around other parts, too",
    "kimi_k3": "its marks are several tokens",
    "minimax_m3": "its marks are several tokens",
    "olmo3": "its marks are several tokens",
    "plamo3": "its marks are several tokens",
    "step3p5": "its reasoning ends with the token behind the mark",
}
"""Families whose reasoning does not end with one token alone."""


def test_vllms_core_finds_the_end_of_reasoning_that_is_open(families: dict[str, Family]) -> None:
    """What earlier messages thought has not ended this one's."""
    wrong: list[Any] = []
    for name, family in families.items():
        prompts = family.prompts()
        for what in {"open", "before, open"} & prompts.keys() if name not in (*NEVER_END, *IN_OTHER_WAYS) else ():
            arguments = family.begins(prompts[what], {}).arguments
            parser = family.theirs(arguments["chat_template_kwargs"])
            answer = [*family.word, family.marks[1], *family.word]
            ids = [*prompts[what]]
            ended = None
            for place, token in enumerate(answer):
                ids.append(token)
                if ended is None and parser.is_reasoning_end_streaming(ids, [token]):
                    ended = place
            if ended != len(family.word):
                wrong.append((name, what, ended))
    assert wrong == []


READ = (
    "cohere_command3", "cohere_command4", "deepseek_r1", "ernie45", "glm45", "holo2", "kimi_k2", "mimo", "minimax_m2",
    "nemotron_v3", "qwen3", "step3",
)  # fmt: skip
"""Families that think between two tokens, whatever the arguments say."""
GUIDED = '{"a": 1}'


def said(family: Family, *, thinking: bool) -> list[Token]:
    """A guided answer, with reasoning before or without."""
    tokens = family.tokenizer
    ids = [*family.word, family.marks[1]] if thinking else []
    ids += tokens.encode(GUIDED, add_special_tokens=False)
    texts = {token_id: word for word, token_id in tokens.get_vocab().items() if token_id in family.marks}
    return [Token(one, texts[one] if one in texts else tokens.decode([one])) for one in ids]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_what_a_guide_leaves_is_read_rightly(families: dict[str, Family], stream: bool) -> None:
    wrong: list[Any] = []
    for name in READ:
        family = families[name]
        for what, prompt in family.prompts().items():
            conversation = Conversation(messages=({"role": "user", "content": "Hi"},))
            request = family.chat.request(conversation)
            begins = family.begins(prompt, {})
            thinking = not begins.at_once and len(family.marks) == 2
            splitter = family.chat.splitter(conversation, request, prompt, reasons=begins.reasons)
            tokens = said(family, thinking=thinking)
            if splitter is None:
                text, reasoning = "".join(token.text for token in tokens), ""
            elif stream:
                parts = [splitter.feed([token], ended=token is tokens[-1]) for token in tokens]
                text, reasoning = "".join(part.text for part in parts), "".join(part.reasoning for part in parts)
            else:
                assert isinstance(splitter, Splitter)
                part = splitter.whole(
                    "".join(token.text for token in tokens), [token.id for token in tokens], cut=False
                )
                text, reasoning = part.text, part.reasoning
            if (text, reasoning) != (GUIDED, "Let me see" if thinking else ""):
                wrong.append((name, what, thinking, text, reasoning))
    assert wrong == []
