"""OpenAI answers do not depend on how tokens come together in events: any split gives the same, streamed or whole."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ...kit.answers.events import Told, end
from ...kit.answers.openai import COMPLETIONS, DETAILS, USAGE, call, chunks, reply, whole
from ...kit.answers.splits import LETTERS
from ...kit.api.types import Delta, Started, Token

# --- Chat ---


@st.composite
def broken_characters(draw: st.DrawFn) -> list[Token]:
    """Tokens of a text that are cut anywhere, within characters too, as byte-level vocabularies cut them."""
    raw = draw(st.text(st.sampled_from("aé漢🦊\n"), max_size=8)).encode()
    ends = sorted({*draw(st.lists(st.integers(0, len(raw)), max_size=12)), len(raw)})
    tokens: list[Token] = []
    pending = b""
    for number, (start, stop) in enumerate(zip([0, *ends], ends, strict=False)):
        pending += raw[start:stop]
        # A decoder gives out text when no part of a character is left over (model/text/tokenizer.py).
        try:
            text, pending = pending.decode(), b""
        except UnicodeDecodeError:
            text = ""
        tokens.append(Token(number, text, -0.5, raw=raw[start:stop]))
    return tokens


def _grouped(tokens: list[Token], cuts: list[bool]) -> list[Delta]:
    groups: list[list[Token]] = [[]]
    for token, cut in zip(tokens, cuts, strict=False):
        groups[-1].append(token)
        if cut:
            groups.append([])
    return [Delta(0, "".join(token.text for token in group), tuple(group)) for group in groups if group]


@given(broken_characters(), st.lists(st.booleans(), min_size=13, max_size=13))
def test_any_split_of_characters_gives_the_same_bytes(tokens: list[Token], cuts: list[bool]) -> None:
    """Each entry has its token's own bytes, and they join to the message's."""
    text = "".join(token.text for token in tokens)
    deltas = _grouped(tokens, cuts)
    ended = Delta(0, "", (), end(count=len(tokens)))
    one = Delta(0, text, tuple(tokens), ended.finish)
    (choice,) = whole(reply(logprobs=True), one)["choices"]
    entries = choice["logprobs"]["content"]
    assert bytes(byte for entry in entries for byte in entry["bytes"]) == text.encode()
    own = [token.raw for token in tokens if token.raw]
    assert [bytes(entry["bytes"]) for entry in entries if entry["bytes"]] == own
    assert whole(reply(logprobs=True), *deltas, ended)["choices"] == [choice]
    made = chunks(reply(logprobs=True, stream=True), *deltas, ended)
    assert [entry for chunk in made for entry in chunk["choices"][0]["logprobs"]["content"]] == entries
    (columns,) = [one["logprobs"] for one in whole(call(logprobs=0).reply, *deltas, ended)["choices"]]
    assert "".join(columns["tokens"]) == text
    made = chunks(call(logprobs=0, stream=True).reply, *deltas, ended)
    for name, column in columns.items():
        assert [value for chunk in made for value in chunk["choices"][0]["logprobs"][name]] == column


# --- Text completions ---


@given(
    st.lists(st.lists(LETTERS, min_size=1, max_size=6), min_size=1, max_size=3),
    st.lists(st.booleans(), min_size=18, max_size=18),
    st.booleans(),
)
def test_any_split_gives_the_same_completions(sequences: list[list[str]], cuts: list[bool], echo: bool) -> None:
    asked: dict[str, Any] = {"prompt": ["p"] * len(sequences), "logprobs": 1, "echo": echo}
    started: list[Told] = [(prompt, Started(1)) for prompt in range(len(sequences))]
    events, merged = list(started), list(started)
    cut = iter(cuts)
    for prompt, texts in enumerate(sequences):
        tokens = [Token(5, text, -1.5, raw=text.encode()) for text in texts]
        held: list[Token] = []
        for token in tokens:
            held.append(token)
            if next(cut):
                events.append((prompt, Delta(0, "".join(one.text for one in held), tuple(held))))
                held = []
        finish = end("length", len(tokens))
        events.append((prompt, Delta(0, "".join(one.text for one in held), tuple(held), finish)))
        merged.append((prompt, Delta(0, "".join(texts), tuple(tokens), finish)))
    body = whole(call(COMPLETIONS, **asked).reply, *merged)
    assert body["choices"] == whole(call(**asked).reply, *events)["choices"]
    made = chunks(call(**asked, stream=True, **USAGE).reply, *events)
    assert made[-1]["usage"] == {**DETAILS, **body["usage"]}
    for choice in body["choices"]:
        own = [chunk["choices"][0] for chunk in made[:-1] if chunk["choices"][0]["index"] == choice["index"]]
        assert "".join(one["text"] for one in own) == choice["text"]
        assert [one["finish_reason"] for one in own if one["finish_reason"]] == [choice["finish_reason"]]
        for name, column in choice["logprobs"].items():
            assert [value for one in own for value in one["logprobs"][name]] == column
        assert "".join(choice["logprobs"]["tokens"]) == choice["text"][int(echo) :]
