"""What becomes of a family's answers: by us, and by vLLM's serving layer on the same tokens.

Case --Vocabulary--> tokens --Parsers.ours--> Answer;  --Parsers.theirs--> Answer;  Answer --is_right--> whether it is
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from typing import Any

from ..kit.api.engine import TextSplitter
from ..kit.api.types import Conversation, Token
from ..kit.engines.parsing import chat_renderer
from ..kit.models.vocabularies import vocabulary
from .table import Case, Family

__all__ = ["WAYS", "Answer", "Parsers", "Vocabulary", "is_right", "ways_of"]

WAYS: dict[str, int | None] = {"whole": None, "by 1": 1, "by 3": 3, "at once": 1 << 20}
"""How an answer comes: how many tokens at a time, or None where it is not streamed."""
KNOWN = 32_000
"""How many of the real vocabulary's tokens are taken: those that are met most. What is beyond comes in bytes."""


def ways_of(case: Case) -> dict[str, int | None]:
    """The ways in which a case is tried."""
    return WAYS if case.streamed else {"whole": None}


@dataclass(slots=True)
class Answer:
    """What a client has of it in the end."""

    content: str = ""
    reasoning: str = ""
    calls: list[list[str]] = field(default_factory=list[list[str]])
    """Names and arguments, as they were sent."""
    error: str = ""


def is_right(answer: Answer, case: Case) -> bool:
    """White space around a text says nothing, nor any in reasoning. Of a call that was cut off, its beginning is right,
    and so is none, or what the model wrote as text: nothing is made up.
    """
    if answer.error or answer.reasoning.split() != (case.reasoning or "").split():
        return False
    if not case.cut:
        return answer.content.strip() == case.content.strip() and _decoded(answer.calls) == [*map(list, case.calls)]
    shown = answer.content.strip()
    if shown != case.content.strip() and not (shown and case.text.rstrip().endswith(shown)):
        return False
    begun = [name for name, _ in answer.calls]
    whole = [*map(list, case.calls)]
    if begun != [name for name, _ in whole[: len(begun)]] or _decoded(answer.calls[:-1]) != whole[: len(begun)][:-1]:
        return False
    return not begun or _begins(whole[len(begun) - 1][1], answer.calls[-1][1])


def _decoded(calls: Sequence[Sequence[str]]) -> list[list[Any]]:
    return [[name, _json(arguments)] for name, arguments in calls]


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return f"no JSON: {text!r}"


def _begins(whole: Any, text: str) -> bool:
    """Whether JSON text begins as `whole` may be written, or is of a part of what it has."""
    try:
        given = json.loads(text or "{}")
    except ValueError:
        return any(
            form.startswith("".join(text.split()))
            for form in ("".join(json.dumps(whole, ensure_ascii=flag).split()) for flag in (True, False))
        )
    return isinstance(given, dict) and all(
        key in whole and (value == whole[key] or str(whole[key]).startswith(str(value))) for key, value in given.items()
    )


class Vocabulary:
    """The beginning of a real vocabulary (Qwen3's), with a family's own tokens."""

    def __init__(self, family: Family) -> None:
        from tokenizers import AddedToken, Tokenizer
        from transformers import PreTrainedTokenizerFast
        from vllm.tokenizers.hf import get_cached_tokenizer

        self._raw = Tokenizer.from_str(_beginning())
        special = list(dict.fromkeys([*family.special_tokens, "<|im_start|>", "<|im_end|>", family.end]))
        self._raw.add_tokens([AddedToken(token, normalized=False) for token in family.tokens if token not in special])
        self._raw.add_special_tokens([AddedToken(token, normalized=False) for token in special])
        made: Any = PreTrainedTokenizerFast(
            tokenizer_object=self._raw, eos_token=family.end, additional_special_tokens=[*family.special_tokens]
        )
        self.tokenizer = get_cached_tokenizer(made)

    def ids(self, text: str) -> list[int]:
        """The tokens of a text."""
        ids: list[int] = self._raw.encode(text, add_special_tokens=False).ids
        return ids

    def tokens(self, text: str, *, skip_special: bool) -> list[Token]:
        """The tokens of a text, as an engine brings them."""
        from tokenizers.decoders import DecodeStream

        stream = DecodeStream(skip_special_tokens=skip_special)
        return [Token(token_id, stream.step(self._raw, token_id) or "") for token_id in self.ids(text)]


@cache
def _beginning() -> str:
    """tokenizer.json of the first KNOWN tokens."""
    given = json.loads((vocabulary("qwen3") / "tokenizer.json").read_text("utf-8"))
    model = given["model"]
    model["vocab"] = {token: number for token, number in model["vocab"].items() if number < KNOWN}
    pairs = [pair if isinstance(pair, list) else pair.split(" ") for pair in model["merges"]]
    model["merges"] = [pair for pair in pairs if all(one in model["vocab"] for one in (*pair, "".join(pair)))]
    given["added_tokens"] = []
    return json.dumps(given)


class Parsers:
    """A family's parsers, ours and theirs, by one pair of names of vLLM's ("": none)."""

    def __init__(self, family: Family, vocabulary: Vocabulary, model_config: Any, tool: str, reasoning: str) -> None:
        from vllm.parser import ParserManager

        options = {"tool_call_parser": tool, "reasoning_parser": reasoning}
        chosen = {option: name for option, name in options.items() if name}
        self._family = family
        self._vocabulary = vocabulary
        self._config = model_config
        self._renderer = chat_renderer(vocabulary.tokenizer, model_config, **chosen)
        self._class: Any = ParserManager.get_parser(
            tool_parser_name=tool or None, reasoning_parser_name=reasoning or None, enable_auto_tools=bool(tool)
        )

    def ours(self, case: Case, size: int | None) -> Answer:
        """Our answer; `size`: one of WAYS."""
        conversation = self._conversation(case)
        request = self._renderer.request(conversation)
        splitter = self._renderer.splitter(conversation, request, self._prompt(case))
        tokens = self._vocabulary.tokens(case.text, skip_special=request.skip_special_tokens)
        if splitter is None:
            return Answer("".join(token.text for token in tokens))
        answer = Answer()
        if isinstance(splitter, TextSplitter):
            parts = [
                splitter.feed((), text="".join(token.text for token in some), ended=last, cut=last and case.cut)
                for some, last in _by(tokens, size or len(tokens))
            ]
        elif size is None and not splitter.by_tokens:
            text = "".join(token.text for token in tokens)
            parts = [splitter.whole(text, [token.id for token in tokens], cut=case.cut)]
        else:
            pieces = _by(tokens, size or len(tokens))
            parts = [splitter.feed(some, ended=last, cut=last and case.cut) for some, last in pieces]
        for part in parts:
            answer.content += part.text
            answer.reasoning += part.reasoning
            for call in part.calls:
                _add(answer.calls, call.index, call.name or "", call.arguments)
        return answer

    def theirs(self, case: Case, size: int | None) -> Answer:
        """That of vLLM's serving layer (entrypoints/openai/chat_completion/serving.py), which a fault ends."""
        try:
            return self._theirs(case, size)
        except Exception as error:  # noqa: BLE001 - a parser may raise anything
            return Answer(error=f"{type(error).__name__}: {error}")

    def _theirs(self, case: Case, size: int | None) -> Answer:
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

        conversation = self._conversation(case)
        given: dict[str, Any] = {"messages": [*conversation.messages], "chat_template_kwargs": case.template_arguments}
        if conversation.tools:
            given |= {"tools": [*conversation.tools], "tool_choice": conversation.tool_choice}
        request = ChatCompletionRequest(**given)
        parser = self._class(
            self._vocabulary.tokenizer,
            request.tools,
            chat_template_kwargs=case.template_arguments,
            model_config=self._config,
        )
        request = parser.adjust_request(request)
        tokens = self._vocabulary.tokens(case.text, skip_special=request.skip_special_tokens)
        prompt = self._prompt(case)
        if size is None:
            ids = [token.id for token in tokens]
            text = "".join(token.text for token in tokens)
            if hasattr(parser, "set_prompt_token_ids"):
                parser.set_prompt_token_ids(prompt)
            reasoning, content, calls = parser.parse(text, request, enable_auto_tools=True, model_output_token_ids=ids)
            made = [[call.name, call.arguments] for call in calls or ()]
            return Answer(content or "", reasoning or "", made)
        answer = Answer()
        for some, last in _by(tokens, size):
            text = "".join(token.text for token in some)
            delta = parser.parse_delta(text, [token.id for token in some], request, prompt, finished=last)
            if delta is None:
                continue
            answer.content += delta.content or ""
            answer.reasoning += delta.reasoning or ""
            for call in delta.tool_calls or ():
                _add(answer.calls, call.index, call.function.name or "", call.function.arguments or "")
        return answer

    def _conversation(self, case: Case) -> Conversation:
        asked: dict[str, Any] = {}
        if case.tool_choice != "off":
            tools = tuple({"type": "function", "function": tool} for tool in self._family.tools)
            asked = {"tools": tools, "tool_choice": case.tool_choice}
        return Conversation(
            messages=({"role": "user", "content": "Hi"},),
            template_arguments=case.template_arguments,
            **asked,
        )

    def _prompt(self, case: Case) -> list[int]:
        return self._vocabulary.ids(self._family.prompt if case.prompt is None else case.prompt)


def _by(tokens: Sequence[Token], size: int) -> Iterator[tuple[list[Token], bool]]:
    """Some tokens at a time, and whether they are the last."""
    rest = iter(tokens)
    some = [*islice(rest, size)]
    while after := [*islice(rest, size)]:
        yield some, False
        some = after
    yield some, True


def _add(calls: list[list[str]], index: int, name: str, arguments: str) -> None:
    """As clients join the pieces of calls."""
    while len(calls) <= index:
        calls.append(["", ""])
    calls[index][0] += name
    calls[index][1] += arguments
