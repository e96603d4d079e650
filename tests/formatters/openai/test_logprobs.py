"""Log-probabilities in OpenAI answers: chat's entries, the columns of text completions, the prompt's."""

from __future__ import annotations

from typing import Any

from ...kit.answers.events import end
from ...kit.answers.openai import USAGE, call, chunks, reply, whole
from ...kit.api.types import Delta, Event, Started, Token, TopToken
from ...kit.rows import each_row

# --- Chat: the bytes, joined, are the text ---

FOX = "🦊".encode()


def _part(number: int, text: str, raw: bytes) -> Token:
    return Token(number, text, -1.0, raw=raw)


@each_row(
    ("tokens", "text", "entries"),
    [
        # A character in three tokens: each has its own bytes, the last one the text.
        (
            [_part(1, "", FOX[:1]), _part(2, "", FOX[1:3]), _part(3, "🦊!", FOX[3:] + b"!")],
            "🦊!",
            [("", FOX[:1]), ("", FOX[1:3]), ("🦊!", FOX[3:] + b"!")],
        ),
        # An end of sequence that is not shown, and one that is.
        (
            [_part(1, "漢", "漢".encode()), Token(2, "", -1.0, special=True, raw=b"</s>")],
            "漢",
            [("漢", "漢".encode())],
        ),
        ([Token(2, "</s>", -1.0, special=True, raw=b"</s>")], "</s>", [("</s>", b"</s>")]),
        # A special token that is skipped within a character.
        (
            [_part(1, "", FOX[:2]), Token(2, "", -1.0, special=True, raw=b"<x>"), _part(3, "🦊", FOX[2:])],
            "🦊",
            [("", FOX[:2]), ("🦊", FOX[2:])],
        ),
        # What a stop string cuts, and a stop token.
        ([_part(1, "fo", b"foEN"), _part(2, "", b"D")], "fo", [("fo", b"fo")]),
        # The beginning of a character at the end of the answer.
        ([_part(1, "a", b"a"), _part(2, "", FOX[:2])], "a", [("a", b"a")]),
        # Bytes that are no character, and a first token that loses its space.
        (
            [_part(1, "", b"\xf0"), _part(2, "\ufffda", b"a")],
            "\ufffda",
            [("", b""), ("\ufffda", b"\xef\xbf\xbda")],
        ),
        ([_part(1, "Hello", b" Hello")], "Hello", [("Hello", b"Hello")]),
        # No bytes are known.
        ([Token(1, "", -1.0), Token(2, "🦊", -1.0)], "🦊", [("", b""), ("🦊", FOX)]),
    ],
)  # fmt: skip
@each_row("one_by_one", [True, False])
def test_bytes_join_to_the_text(
    tokens: list[Token], text: str, entries: list[tuple[str, bytes]], one_by_one: bool
) -> None:
    deltas = [Delta(0, token.text, (token,)) for token in tokens] if one_by_one else [Delta(0, text, tuple(tokens))]
    made = chunks(reply(stream=True, logprobs=True), *deltas, Delta(0, "", (), end()))
    content = [entry for chunk in made for entry in chunk["choices"][0]["logprobs"]["content"]]
    assert [(entry["token"], bytes(entry["bytes"])) for entry in content] == entries
    assert b"".join(bytes(entry["bytes"]) for entry in content) == text.encode()
    body = whole(reply(logprobs=True), *deltas, Delta(0, "", (), end()))
    assert body["choices"][0]["logprobs"]["content"] == content


def test_the_chosen_token_is_written_alike_among_the_likely_ones() -> None:
    top = (TopToken(1, " Hello", -1.0, b" Hello"), TopToken(2, "", -2.0, FOX[:2]))
    token = Token(1, "Hello", -1.0, raw=b" Hello", top=top)
    body = whole(reply(logprobs=True, top_logprobs=2), Delta(0, "Hello", (token,), end()))
    assert body["choices"][0]["logprobs"]["content"][0]["top_logprobs"] == [
        {"token": "Hello", "logprob": -1.0, "bytes": list(b"Hello")},
        {"token": "", "logprob": -2.0, "bytes": list(FOX[:2])},
    ]


# --- Text completions ---

TOKENS = (
    Token(1, "A", -0.5, top=(TopToken(1, "A", -0.5), TopToken(2, "B", -1.5))),
    Token(3, "", -2.0, raw=FOX[:2]),
    Token(4, "🦊", -0.25, raw=FOX[2:], top=(TopToken(4, "", -0.25),)),
    Token(5, "", -0.1, special=True),
)
COLUMNS = {
    "tokens": ["A", "", "🦊"],
    "token_logprobs": [-0.5, -2.0, -0.25],
    "top_logprobs": [{"A": -0.5, "B": -1.5}, {"": -2.0}, {"🦊": -0.25}],
    "text_offset": [0, 1, 1],
}


def test_logprobs() -> None:
    body = whole(call(logprobs=2).reply, Started(1), Delta(0, "A🦊", TOKENS, end()))
    assert body["choices"][0]["logprobs"] == COLUMNS
    deltas = [Delta(0, token.text, (token,)) for token in TOKENS]
    made = chunks(call(logprobs=2, stream=True).reply, Started(1), *deltas, Delta(0, "", (), end()))
    parts = [chunk["choices"][0]["logprobs"] for chunk in made]
    assert {name: [one for part in parts for one in part[name]] for name in COLUMNS} == COLUMNS


PREFILL = (Token(7, "x"), Token(8, "y", -1.0, top=(TopToken(8, "y", -1.0), TopToken(9, "z", -1.5))))


@each_row(("prompt", "text"), [("xy", ""), ([7, 8], "xy")])
def test_echo(prompt: Any, text: str) -> None:
    events: list[Event] = [Started(2, 0, PREFILL, text), Delta(0, "A", TOKENS[:1], end())]
    (choice,) = whole(call(prompt=prompt, echo=True, logprobs=1).reply, *events)["choices"]
    assert choice["text"] == "xyA"
    assert choice["logprobs"] == {
        "tokens": ["x", "y", "A"],
        "token_logprobs": [None, -1.0, -0.5],
        "top_logprobs": [None, {"y": -1.0}, {"A": -0.5, "B": -1.5}],
        "text_offset": [0, 1, 2],
    }
    assert choice["prompt_logprobs"] is None
    made = chunks(call(prompt=prompt, echo=True, stream=True, n=2).reply, *events, (0, Delta(1, "B", (), end())))
    assert [(chunk["choices"][0]["index"], chunk["choices"][0]["text"]) for chunk in made] == [
        (0, "xy"),
        (0, "A"),
        (1, "xy"),
        (1, "B"),
    ]


@each_row("stream", [True, False])
def test_echo_alone(stream: bool) -> None:
    """max_tokens 0: the prompt and its log-probabilities; the token that the engine made is not told of."""
    events: list[Event] = [Started(2, 0, PREFILL), Delta(0, "A", (), end("stop", stop="A"))]
    answer = call(prompt="xy", echo=True, max_tokens=0, logprobs=1, stream=stream, **(USAGE if stream else {})).reply
    if stream:
        made = chunks(answer, *events)
        choices, usage = [chunk["choices"][0] for chunk in made[:-1]], made[-1]["usage"]
    else:
        body = whole(answer, *events)
        choices, usage = body["choices"], body["usage"]
    assert "".join(choice["text"] for choice in choices) == "xy"
    assert (choices[-1]["finish_reason"], choices[-1]["stop_reason"]) == ("length", None)
    assert choices[0]["logprobs"]["tokens"] == ["x", "y"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (2, 0, 2)


MARK = Token(0, "<s>", special=True)
WORDS = (Token(5, "Hi", -1.0), Token(6, " you", -2.0))


@each_row(
    ("prompt", "prefill", "text", "offsets"),
    [
        # The tokenizer has put a beginning of sequence before the text: it has no place there.
        ("Hi you", (MARK, *WORDS), "", [0, 0, 2, 6]),
        # The client has written it itself, or both have.
        ("<s>Hi you", (MARK, *WORDS), "", [0, 3, 5, 9]),
        ("<s>Hi you", (MARK, MARK, *WORDS), "", [0, 0, 3, 5, 9]),
        # Of token ids the text shows all.
        ([0, 5, 6], (MARK, *WORDS), "<s>Hi you", [0, 3, 5, 9]),
        ([5, 6], WORDS, "Hi you", [0, 2, 6]),
        # The beginning of the prompt was cut off.
        ("Oh, Hi you", (MARK, *WORDS), "", [4, 4, 6, 10]),
        # A tokenizer that changes what it reads: what is generated stands where it stands all the same.
        ("hi YOU!", (MARK, *WORDS), "", [1, 1, 3, 7]),
        ("hi", (MARK, *WORDS), "", [0, 0, 2, 2]),
    ],
)
def test_offsets_are_places_in_the_text(prompt: Any, prefill: tuple[Token, ...], text: str, offsets: list[int]) -> None:
    request = {"prompt": prompt, "echo": True, "logprobs": 0}
    generated = Delta(0, "!", (Token(7, "!", -0.5),), end())
    (choice,) = whole(call(**request).reply, Started(3, prefill=prefill, text=text), generated)["choices"]
    assert choice["logprobs"]["text_offset"] == offsets
    assert choice["text"][offsets[-1] :] == "!"
    made = chunks(call(**request, stream=True).reply, Started(3, prefill=prefill, text=text), generated)
    assert [place for chunk in made for place in chunk["choices"][0]["logprobs"]["text_offset"]] == offsets


# --- The prompt's ---


def test_prompt_logprobs() -> None:
    """As vLLM has them: by token id, the prompt's own token first."""
    top = (TopToken(8, " was", -0.1), TopToken(2, " is", -2.5))
    prefill = (Token(1, "What"), Token(2, " is", -2.5, top=top), Token(3, "?", -7.0, top=(TopToken(8, " was", -0.1),)))
    started = Started(3, prefill=prefill, ranks=(None, 2, 317))
    entries = [
        None,
        {
            "2": {"logprob": -2.5, "rank": 2, "decoded_token": " is"},
            "8": {"logprob": -0.1, "rank": 1, "decoded_token": " was"},
        },
        {
            "3": {"logprob": -7.0, "rank": 317, "decoded_token": "?"},
            "8": {"logprob": -0.1, "rank": 1, "decoded_token": " was"},
        },
    ]
    assert whole(reply(prompt_logprobs=2), started, Delta(0, "a", (), end()))["prompt_logprobs"] == entries
    (choice,) = whole(call(prompt_logprobs=2).reply, started, Delta(0, "a", (), end()))["choices"]
    assert choice["prompt_logprobs"] == entries
    unranked = whole(reply(prompt_logprobs=2), Started(3, prefill=prefill), Delta(0, "a", (), end()))["prompt_logprobs"]
    assert [entry["rank"] for entry in unranked[2].values()] == [None, 1]
