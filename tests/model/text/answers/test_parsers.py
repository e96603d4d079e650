"""What comes of a stream beside text and calls: log-probabilities where they belong, and what has been left out."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lmi.model.text.answers.parsers import Splitter

from ....kit.api.engine import PlainTokens, Reasoning
from ....kit.api.types import Conversation, Token
from ....kit.engines.parsing import chat_renderer

TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}}}
CALL = '<tool_call>\n{"name": "look_up", "arguments": {}}\n</tool_call>'


@pytest.fixture(scope="module")
def hermes(demo_model: Path) -> Any:
    """Makes splitters of a model whose calls are held back."""
    from transformers import AutoTokenizer
    from vllm import EngineArgs

    tokenizer: Any = AutoTokenizer.from_pretrained(demo_model)
    config = EngineArgs(model=str(demo_model), enforce_eager=True).create_model_config()
    chat = chat_renderer(tokenizer, config, tool_call_parser="hermes")
    conversation = Conversation(messages=({"role": "user", "content": "Hi"},), tools=(TOOL,), tool_choice="auto")
    request = chat.request(conversation)

    def tokens(text: str) -> list[Token]:
        return [Token(one, tokenizer.decode([one]), -1.0) for one in tokenizer.encode(text, add_special_tokens=False)]

    return SimpleNamespace(splitter=lambda: chat.splitter(conversation, request, []), tokens=tokens)


@pytest.mark.engine
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_log_probabilities_of_a_held_call_come_with_it(hermes: Any, size: int) -> None:
    said = hermes.tokens(f"Let me see. {CALL} There.")
    splitter = hermes.splitter()
    pieces = [said[start : start + size] for start in range(0, len(said), size)]
    parts = [splitter.feed(piece, ended=piece is pieces[-1]) for piece in pieces]
    assert [token for part in parts for token in part.tokens] == said
    if size > 1:
        return
    texts = ["".join(token.text for token in part.tokens) for part in parts if part.calls]
    assert len(texts) == 1
    assert texts[0].strip() == CALL
    assert all(not part.tokens or part.text or part.calls or part.tokens[0].text.isspace() for part in parts[2:-1])


class Swallowing:
    """A parser of streams that gives nothing of what stands between < and >; of whole answers, it fails."""

    def parse_delta(self, text: str, _ids: list[int], _request: Any, _prompt: Any, *, finished: bool) -> Any:
        del finished
        return SimpleNamespace(reasoning=None, content=text.partition("<")[0], tool_calls=[])

    def parse(self, *_: Any, **__: Any) -> Any:
        raise ValueError

    def extract_reasoning(self, text: str, _request: Any) -> Any:
        return None, text


class Parsing(Swallowing):
    """One that reads an answer as `read` says."""

    def __init__(self, *read: Any) -> None:
        self.read = read

    def parse(self, *_: Any, **__: Any) -> Any:
        return self.read


class Failing(Swallowing):
    """One that fails on a stream, once it has begun."""

    def parse_delta(self, text: str, *_: Any, **__: Any) -> Any:
        if "<" in text:
            raise IndexError
        return SimpleNamespace(reasoning=None, content=text, tool_calls=[])


def splitter_of(parser: Any, **more: Any) -> Splitter:
    return Splitter(
        lambda **_: parser, None, Reasoning(None, None, [], (), str), one_call=False, show_reasoning=True, **more
    )


def test_what_a_parser_leaves_out_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    splitter = splitter_of(Swallowing())
    parts = [splitter.feed([Token(1, "Well. ")], ended=False), splitter.feed([Token(2, "<call")], ended=True)]
    assert "".join(part.text for part in parts) == "Well. "
    assert splitter.dropped == len("<call")
    assert "left 5 characters out" in caplog.text


@pytest.mark.parametrize(("added", "dropped"), [((), 7), (("<end>",), 2), (("<end>", "</"), 0)])
def test_a_mark_that_is_a_token_is_not_left_out(added: tuple[str, ...], dropped: int) -> None:
    splitter = splitter_of(Parsing(None, "Well.", None), added=added)
    assert splitter.whole("Well.<end></", [1], cut=False).text == "Well."
    assert splitter.dropped == dropped


def test_a_call_without_a_name_is_none() -> None:
    """As vLLM's parsers have it of one that breaks off within its name."""
    call = SimpleNamespace(id="0", name="", arguments="")
    part = splitter_of(Parsing(None, None, [call])).whole("<call>[get_", [1], cut=True)
    assert (part.text, part.calls) == ("<call>[get_", [])


@pytest.mark.parametrize("text", ["<think>So.</think>", "<think>So."])
def test_reasoning_alone_is_no_text(text: str) -> None:
    part = splitter_of(Parsing("So.", None, None)).whole(text, [1], cut=False)
    assert (part.reasoning, part.text) == ("So.", "")


class Adding(Swallowing):
    """One that puts a mark of its own before the text (vLLM's minimax_m2_append_think)."""

    def parse(self, text: str, *_: Any, **__: Any) -> Any:
        return None, f"<think>{text}", None


def test_what_a_parser_adds_is_not_left_out() -> None:
    splitter = splitter_of(Adding())
    assert splitter.whole("Well. </think> Yes.", [1], cut=False).text == "<think>Well. </think> Yes."
    assert splitter.dropped == 0


def test_an_answer_of_which_a_parser_makes_nothing_is_text() -> None:
    splitter = splitter_of(Swallowing())
    assert splitter.feed([Token(1, "<call>")], ended=True).text == "<call>"
    assert splitter.dropped == 0


def test_a_parser_that_fails_on_a_stream_loses_nothing() -> None:
    splitter = splitter_of(Failing())
    parts = [splitter.feed([Token(0, text)], ended=text == "!") for text in ("Well.", " <call>", " So", "!")]
    assert "".join(part.text for part in parts) == "Well. <call> So!"
    assert splitter.dropped == 0


class Noting(Swallowing):
    """One that notes what it is given of a stream."""

    def __init__(self) -> None:
        self.given: list[tuple[str, list[int], bool]] = []

    def parse_delta(self, text: str, _ids: list[int], _request: Any, _prompt: Any, *, finished: bool) -> Any:
        self.given.append((text, _ids, finished))
        return SimpleNamespace(reasoning=None, content=text, tool_calls=[])


def test_what_was_held_back_is_parsed_with_its_tokens() -> None:
    """Parsers go by tokens as well as by text."""
    parser = Noting()
    splitter = splitter_of(parser, text_start="<text>")
    pieces = ["<", "te", "rm>", " is"]
    parts = [splitter.feed([Token(number, piece)], ended=piece == pieces[-1]) for number, piece in enumerate(pieces, 5)]
    assert [part.text for part in parts] == ["", "", "<term>", " is"]
    assert parser.given == [("<", [5], False), ("te", [6], False), ("rm>", [7], False), (" is", [8], True)]


class Between(Swallowing):
    """One that reads reasoning between two tokens, <think> and </think>, and notes what it is given at once."""

    def __init__(self) -> None:
        self.given: list[list[int]] = []
        self.thinks = False

    def parse_delta(self, text: str, ids: list[int], _request: Any, _prompt: Any, *, finished: bool) -> Any:
        del finished
        self.given.append(ids)
        if THINK in ids or THOUGHT in ids:
            assert len(ids) == 1, "a mark comes by itself"
            self.thinks = THINK in ids
            return None
        reasoning, content = (text, None) if self.thinks else (None, text)
        return SimpleNamespace(reasoning=reasoning, content=content, tool_calls=[])


THINK, THOUGHT, SPECIAL = 1, 2, 3


@pytest.mark.parametrize("size", [1, 2, 100])
def test_words_that_no_parser_takes_for_marks_it_gets_together(size: int) -> None:
    parser = Between()
    splitter = splitter_of(parser, plain=PlainTokens({"<think>": THINK, "</think>": THOUGHT, "\u2402": SPECIAL}))
    words = ["<think>", "So", " it", " goes", " on\n", "\n", "Well", " then", " so\n", "</think>", "Yes", " and", " no"]
    words += [".", " a<b", " c"]
    said = [Token({"<think>": THINK, "</think>": THOUGHT}.get(word, 10), word) for word in words]
    said.insert(3, Token(SPECIAL, "\u2402"))
    pieces = [said[start : start + size] for start in range(0, len(said), size)]
    parts = [splitter.feed(piece, ended=False) for piece in pieces] + [splitter.feed([], ended=True)]
    assert "".join(part.reasoning for part in parts) == "So it\u2402 goes on\n\nWell then so\n"
    assert "".join(part.text for part in parts) == "Yes and no. a<b c"
    assert [token for part in parts for token in part.tokens] == said
    assert [token_id for ids in parser.given for token_id in ids] == [token.id for token in said]
    # White space at the end before a mark, and what may begin one, comes by itself, too.
    assert [len(ids) for ids in parser.given if len(ids) > 1] == [5, 3]


@pytest.mark.parametrize("size", [1, 2, 100])
def test_white_space_waits_for_what_comes_after_it(size: int) -> None:
    """Before some marks parsers leave it out."""
    splitter = splitter_of(Between(), plain=PlainTokens({"<think>": THINK, "</think>": THOUGHT}))
    said = [Token(THINK, "<think>"), *(Token(10, word) for word in ("So", " ", "\n", "it", *" " * 20))]
    pieces = [said[start : start + size] for start in range(0, len(said), size)]
    parts = [splitter.feed(piece, ended=False).reasoning for piece in pieces]
    if size == 1:
        assert parts[:5] == ["", "So", "", "", " \nit"]
        assert parts[5:13] == [""] * 8
    # Tokens that are shown come with their text.
    shown = splitter_of(Between(), plain=PlainTokens({"<think>": THINK, "</think>": THOUGHT}))
    fed = [shown.feed(piece, ended=False) for piece in pieces] + [shown.feed([], ended=True)]
    assert [token for part in fed for token in part.tokens] == said
    for part in fed:
        assert "".join(token.text for token in part.tokens).removeprefix("<think>") == part.reasoning
    # It does not wait for ever.
    assert "".join(parts).startswith("So \nit" + " " * 9)
    assert "".join(parts) + splitter.feed([], ended=True).reasoning == "So \nit" + " " * 20
