"""What the chaos test reads in answers: the same for any way that a stream may be cut into records.

body --records--> texts --documents--> JSON --one reader a dialect and form--> Seen
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["READERS", "Seen", "ToldError", "UnfinishedError", "error_in", "read"]

ENDS = ("[DONE]", "[END]")


class UnfinishedError(Exception):
    """The answer lacks its end, and says nothing of an error."""


class ToldError(Exception):
    """The answer tells of an error."""


class Seen(NamedTuple):
    """What an answer comes to; of the same request it is the same in every run with greedy decoding."""

    text: str
    tokens: tuple[Any, ...]
    """Ids, or what the dialect shows of tokens; () where it shows none."""
    finish: str | None
    usage: tuple[tuple[str, int], ...]
    names: tuple[str, ...]
    """What else repeats the request: the prompt, or the model's name."""


Doc = dict[str, Any]


def records(body: bytes) -> list[str]:
    """The records of a body, without their framing."""
    lines = [line for line in body.decode().split("\n") if line and not line.startswith("event: ")]
    return [line.removeprefix("data: ") for line in lines]


def error_in(document: Any) -> str | None:
    """The error that a document tells of: our dialects' own, and the Java front end's."""
    if isinstance(document, list):
        document = document[0] if document else {}
    if not isinstance(document, dict):
        return None
    error = document.get("error")
    if error is None and not document.get("detail") and not ("code" in document and "message" in document):
        return None
    inner = error if isinstance(error, dict) else document
    # Azure's `error` is the status in words, and the message is beside it.
    return str(inner.get("message") or error or document)


def read(reader: str, body: bytes) -> Seen:
    """What a body of status 200 comes to; raises ToldError, UnfinishedError, or ValueError for what is not JSON."""
    lines = records(body) if reader in STREAMED else [body.decode()]
    if not lines:
        raise UnfinishedError("the body is empty")
    documents = [json.loads(line) for line in lines if line not in ENDS]
    for document in documents:
        if (error := error_in(document)) is not None:
            raise ToldError(error)
    if reader in ENDED:
        if lines[-1] not in ENDS:
            raise UnfinishedError("the end's mark is missing")
        if sum(line in ENDS for line in lines) > 1:
            raise ValueError("the end's mark comes twice")
    try:
        return READERS[reader](documents)
    except (KeyError, IndexError, TypeError) as error:
        raise UnfinishedError(f"{type(error).__name__}: {error}") from error


def _whole(documents: Sequence[Any]) -> Seen:
    """LMI's and TGI's."""
    (made,) = documents
    if isinstance(made, list):
        (made,) = made
    details = made["details"]
    names = (details["inputs"],) if "inputs" in details else ()
    usage = (("generated", details["generated_tokens"]), ("prefill", len(details.get("prefill", ()))))
    tokens = tuple((token["id"], token["text"]) for token in details["tokens"])
    if len(tokens) != details["generated_tokens"]:
        raise ValueError(f"{len(tokens)} tokens of {details['generated_tokens']}")
    return Seen(made["generated_text"], tokens, details["finish_reason"], usage, names)


def _lines(documents: Sequence[Doc]) -> Seen:
    """LMI's and TGI's: a line for each token."""
    last = documents[-1]
    details = last["details"]
    names = (details["inputs"],) if "inputs" in details else ()
    tokens = tuple((line["token"]["id"], line["token"]["text"]) for line in documents)
    if len(tokens) != details["generated_tokens"]:
        raise ValueError(f"{len(tokens)} lines of {details['generated_tokens']} tokens")
    if any(line.get("generated_text") is not None for line in documents[:-1]):
        raise ValueError("the text comes before the last line")
    usage = (("generated", details["generated_tokens"]), ("input", details.get("input_length", 0)))
    return Seen(last["generated_text"], tokens, details["finish_reason"], usage, names)


def _usage(usage: Doc) -> tuple[tuple[str, int], ...]:
    # How much of a prompt is found in the cache differs from run to run.
    return tuple((name, usage[name]) for name in ("prompt_tokens", "completion_tokens", "total_tokens"))


def _one_finish(reasons: Sequence[str | None]) -> str:
    (reason,) = [reason for reason in reasons if reason is not None]
    return reason


def _chat(documents: Sequence[Doc]) -> Seen:
    (made,) = documents
    (choice,) = made["choices"]
    shown = (choice.get("logprobs") or {}).get("content") or ()
    tokens = tuple(token["token"] for token in shown)
    return Seen(choice["message"]["content"], tokens, choice["finish_reason"], _usage(made["usage"]), ())


def _chat_chunks(documents: Sequence[Doc]) -> Seen:
    *chunks, last = documents
    if last["choices"]:
        raise UnfinishedError("the usage is missing")
    return _deltas(chunks)._replace(usage=_usage(last["usage"]))


def _deltas(chunks: Sequence[Doc]) -> Seen:
    if len({chunk["id"] for chunk in chunks}) != 1:
        raise ValueError("the id changes")
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    text = "".join(choice["delta"].get("content") or "" for choice in choices)
    finish = _one_finish([choice["finish_reason"] for choice in choices])
    shown = [(choice.get("logprobs") or {}).get("content") or () for choice in choices]
    tokens = tuple(token["token"] for part in shown for token in part)
    return Seen(text, tokens, finish, (), ())


def _text(documents: Sequence[Doc]) -> Seen:
    (made,) = documents
    (choice,) = made["choices"]
    tokens = tuple((choice["logprobs"] or {}).get("tokens", ()))
    return Seen(choice["text"], tokens, choice["finish_reason"], _usage(made["usage"]), ())


def _text_chunks(documents: Sequence[Doc]) -> Seen:
    *chunks, last = documents
    if last["choices"]:
        raise UnfinishedError("the usage is missing")
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    tokens = tuple(token for choice in choices for token in (choice["logprobs"] or {}).get("tokens", ()))
    finish = _one_finish([choice["finish_reason"] for choice in choices])
    return Seen("".join(choice["text"] for choice in choices), tokens, finish, _usage(last["usage"]), ())


def _message(documents: Sequence[Doc]) -> Seen:
    (made,) = documents
    return Seen(made["message"]["content"], (), str(made["done"]), (), (made["model"],))


def _messages(documents: Sequence[Doc]) -> Seen:
    if [one["index"] for one in documents] != list(range(len(documents))):
        raise ValueError("chunks are missing or out of order")
    return Seen("".join(one["message"]["content"] for one in documents), (), None, (), ())


def _message_lines(documents: Sequence[Doc]) -> Seen:
    if documents[-1]["done"] is not True:
        raise UnfinishedError("no line is done")
    return _messages(documents)


def _batch(documents: Sequence[Any]) -> Seen:
    ((made,),) = documents
    return Seen(made["generated_text"], (), None, (), ())


def _batch_lines(documents: Sequence[Doc]) -> Seen:
    pieces = [piece for line in documents for piece in line["outputs"]]
    if len(pieces) != len(documents):
        raise ValueError("a line has not one output")
    return Seen("".join(pieces), (), None, (), ())


def _anthropic_usage(usage: Doc) -> tuple[tuple[str, int], ...]:
    return (
        ("input", usage["input_tokens"] + usage["cache_read_input_tokens"]),
        ("output", usage["output_tokens"]),
    )


def _anthropic(documents: Sequence[Doc]) -> Seen:
    (made,) = documents
    (block,) = made["content"]
    return Seen(block["text"], (), made["stop_reason"], _anthropic_usage(made["usage"]), ())


def _anthropic_events(documents: Sequence[Doc]) -> Seen:
    *events, ended, stop = documents
    if stop["type"] != "message_stop":
        raise UnfinishedError("message_stop is missing")
    text = "".join(one["delta"]["text"] for one in events if one["type"] == "content_block_delta")
    return Seen(text, (), ended["delta"]["stop_reason"], _anthropic_usage(ended["usage"]), ())


def _response(documents: Sequence[Doc]) -> Seen:
    (made,) = documents
    ((part,),) = [item["content"] for item in made["output"]]
    usage = tuple((name, made["usage"][name]) for name in ("input_tokens", "output_tokens", "total_tokens"))
    return Seen(part["text"], (), made["status"], usage, ())


def _response_events(documents: Sequence[Doc]) -> Seen:
    if [one["sequence_number"] for one in documents] != list(range(len(documents))):
        raise ValueError("events are missing or out of order")
    if documents[-1]["type"] != "response.completed":
        raise UnfinishedError("response.completed is missing")
    seen = _response([documents[-1]["response"]])
    if seen.text != "".join(one["delta"] for one in documents if one["type"] == "response.output_text.delta"):
        raise ValueError("the pieces are not the text")
    return seen


READERS = {
    "whole": _whole,
    "lines": _lines,
    "chat": _chat,
    "chat chunks": _chat_chunks,
    "Azure chunks": _deltas,
    "text": _text,
    "text chunks": _text_chunks,
    "message": _message,
    "message lines": _message_lines,
    "message events": _messages,
    "batch": _batch,
    "batch lines": _batch_lines,
    "anthropic": _anthropic,
    "anthropic events": _anthropic_events,
    "response": _response,
    "response events": _response_events,
}
STREAMED = (
    "lines", "chat chunks", "Azure chunks", "text chunks", "message lines", "message events", "batch lines",
    "anthropic events", "response events",
)  # fmt: skip
ENDED = ("chat chunks", "Azure chunks", "text chunks", "message events")
"""Those whose stream ends with a mark."""
