"""djl_python's formatters of tokens: the forms of its rolling-batch handlers, called once for every token.

    g(request_output: TextGenerationOutput) -> str
    g(token, first_token, last_token, details, generated_text, request_id) -> str       the oldest form

djl_python calls them once a step, in which a sequence gets a token: here a step is a token, so that an answer does not
depend on how many tokens arrive together. What they return, joined, is the body; in a stream each is a record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ....formatters import Response
from ....formatters.base import JSON, JSON_LINES, ResponseEncoder
from ....formatters.common.encoder import FINISH_REASONS, aborted
from ....model.errors import LmiError
from ....model.events import Delta, Event, Finish, Started, Token
from ..loading import Function
from ..safe_reply import GuardedEncoder

__all__ = ["FormattedTokensEncoder"]

CLOSING_TOKEN = Token(-1, "", 0.0, special=True)
"""Of a sequence that ends without a further token (as in formatters/lmi/reply.py)."""


class FormattedTokensEncoder(GuardedEncoder):
    """One sequence. `output` is djl_python's TextGenerationOutput, `objects` its module request_io."""

    def __init__(
        self,
        inner: ResponseEncoder,
        refuse: Callable[[LmiError], Response],
        function: Function,
        output: Any,
        objects: Any,
        *,
        streams: bool,
        oldest: bool,
    ) -> None:
        super().__init__(inner, refuse)
        self._function = function
        self._output = output
        self._objects = objects
        self._streams = streams
        self._oldest = oldest
        self._texts: list[str] = []
        self._generated: list[str] = []
        self._prompt_tokens = 0
        self.content_type = JSON_LINES if streams else JSON
        self.status = 200

    def _records(self, event: Event, prompt: int) -> Iterator[bytes]:
        # Nothing of it is sent, but it must know the state of the response if it has to render an error.
        self._inner.feed(event, prompt)
        if isinstance(event, Started):
            self._start(event)
        elif isinstance(event, Delta):
            for text in self._take(event):
                if self._streams and text:
                    yield text.encode()
                elif text:
                    self._texts.append(text)
            if self.finished and self._texts:
                yield "".join(self._texts).encode()

    def _start(self, event: Started) -> None:
        output = self._output
        self._prompt_tokens = event.prompt_tokens
        output.prompt_tokens_details = [self._token(token) for token in event.prefill]
        if output.input.input_text is None:
            output.input.input_text = event.text

    def _take(self, delta: Delta) -> Iterator[str]:
        finish = delta.finish
        if finish is None:
            yield from (self._next(token, None) for token in delta.tokens)
            return
        if finish.reason not in FINISH_REASONS:
            raise aborted()
        *before, last = delta.tokens or (CLOSING_TOKEN,)
        yield from (self._next(token, None) for token in before)
        yield self._next(last, finish)
        self.finished = True

    def _next(self, token: Token, finish: Finish | None) -> str:
        """What the function makes of the next token."""
        output = self._output
        sequence = output.sequences[output.best_sequence_index]
        reason = FINISH_REASONS[finish.reason] if finish is not None else None
        output.set_next_token(self._token(token), is_last_token=finish is not None, finish_reason=reason)
        if token.top:
            tops = [self._objects.Token(top.id, top.text, top.logprob) for top in token.top]
            output.set_next_top_tokens(tops, output.best_sequence_index)
        sequence.cumulative_log_prob += token.logprob or 0.0
        self._generated.append(token.text)
        if finish is not None:
            output.finished = True
            sequence.stop_reason = finish.stop
        returned = self._call_oldest(sequence) if self._oldest else self._function(output)
        if not isinstance(returned, str):
            raise self._function.refuse(returned, "a str")
        return returned

    def _call_oldest(self, sequence: Any) -> Any:
        output = self._output
        parameters = output.input.parameters
        token, _, first, last = sequence.get_next_token()
        details: dict[str, Any] = {}
        if parameters.get("details"):
            details = {
                "finish_reason": sequence.finish_reason,
                "tokens": output.get_tokens_as_dict(output.best_sequence_index),
                "generated_tokens": len(sequence.tokens),
                "inputs": output.input.input_text,
                "parameters": parameters,
                "prompt_tokens": self._prompt_tokens,
            }
        text = (output.input.input_text or "") if parameters.get("return_full_text") else ""
        if last:
            text += "".join(self._generated)
        return self._function(token, first, last, details, text, output.request_id)

    def _token(self, token: Token) -> Any:
        return self._objects.Token(token.id, token.text, token.logprob, token.special)
