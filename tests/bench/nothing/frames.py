"""What a client gets of the bench's requests, byte for byte as long as the handler's, in Java's frames."""

from __future__ import annotations

import struct
from collections.abc import Callable
from json import dumps
from typing import Any

__all__ = ["Writer", "frame", "output"]

Writer = Callable[[Any], bytes]
"""Of an output of vLLM's (RequestOutput) what is sent for it."""

LENGTH = struct.Struct(">i")
COUNT = struct.Struct(">h")


def _text(value: bytes) -> bytes:
    return LENGTH.pack(len(value)) + value


_DATA = COUNT.pack(2) + _text(b"data")
_MORE = _text(b"last") + _text(b"false")
_LAST = _text(b"last") + _text(b"true")
EMPTY = _DATA + _text(b"") + _MORE
"""Of a request that has nothing to say."""


def frame(data: bytes, last: bool) -> bytes:
    """One of DJL's for one request (djl_python.encode_decode)."""
    return b"".join((_DATA, LENGTH.pack(len(data)), data, _LAST if last else _MORE))


def output(properties: dict[str, str], content: bytes) -> bytes:
    """An Output with one content item (djl_python.outputs)."""
    pairs = b"".join(_text(name.encode()) + _text(value.encode()) for name, value in properties.items())
    head = COUNT.pack(200) + _text(b"OK") + COUNT.pack(len(properties)) + pairs
    return head + COUNT.pack(1) + LENGTH.pack(-1) + _text(content)


def lmi_stream() -> Writer:
    """A line a token."""
    texts: list[str] = []
    count = 0

    def write(result: Any) -> bytes:
        nonlocal count
        (sequence,) = result.outputs
        texts.append(sequence.text)
        lines: list[str] = []
        # AsyncLLM joins what came while others were served: then all of the text is in the first of its tokens.
        text = dumps(sequence.text, ensure_ascii=False)
        for token_id, known in zip(sequence.token_ids, sequence.logprobs, strict=True):
            count += 1
            lines.append(f'{{"token":{{"id":{token_id},"text":{text},"log_prob":{known[token_id].logprob}}}')
            text = '""'
        if result.finished:
            whole = dumps("".join(texts), ensure_ascii=False)
            details = f'"details":{{"finish_reason":"length","generated_tokens":{count},"inputs":null}}'
            lines[-1] += f',"generated_text":{whole},{details}'
        return "".join(f"{line}}}\n" for line in lines).encode()

    return write


def chat_stream() -> Writer:
    """An event a token, one for the role, one with the usage."""
    head = '{"id":"chatcmpl-0123456789abcdef0123456789abcdef","object":"chat.completion.chunk","created":1795459743'
    head = f'data: {head},"model":"model"'
    first, count = True, 0

    def event(delta: str, reason: str) -> str:
        choice = f'{{"index":0,"delta":{{{delta}}},"logprobs":null,"finish_reason":{reason},"stop_reason":null}}'
        return f'{head},"choices":[{choice}],"usage":null}}\n\n'

    def write(result: Any) -> bytes:
        nonlocal first, count
        (sequence,) = result.outputs
        count += len(sequence.token_ids)
        text = dumps(sequence.text, ensure_ascii=False)
        said = event(f'"content":{text}', '"length"' if result.finished else "null")
        if first:
            said = event('"role":"assistant","content":""', "null") + said
            first = False
        if result.finished:
            prompt = len(result.prompt_token_ids)
            usage = f'{{"prompt_tokens":{prompt},"total_tokens":{prompt + count},"completion_tokens":{count}}}'
            said += f'{head},"choices":[],"usage":{usage}}}\n\ndata: [DONE]\n\n'
        return said.encode()

    return write


def lmi_whole() -> Writer:
    """All of it at once."""
    return lambda result: f'{{"generated_text":{dumps(result.outputs[0].text, ensure_ascii=False)}}}'.encode()


def chat_whole() -> Writer:
    """All of it at once."""

    def write(result: Any) -> bytes:
        (sequence,) = result.outputs
        prompt, count = len(result.prompt_token_ids), len(sequence.token_ids)
        message = f'{{"role":"assistant","content":{dumps(sequence.text, ensure_ascii=False)}}}'
        choice = f'{{"index":0,"message":{message},"logprobs":null,"finish_reason":"length","stop_reason":null}}'
        usage = f'{{"prompt_tokens":{prompt},"total_tokens":{prompt + count},"completion_tokens":{count}}}'
        head = '"id":"chatcmpl-0123456789abcdef0123456789abcdef","object":"chat.completion","created":1795459743'
        return f'{{{head},"model":"model","choices":[{choice}],"usage":{usage}}}'.encode()

    return write
