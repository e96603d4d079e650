"""Whose fault it is that the core has given up a guided sequence. vLLM does not say; its own server takes every fault
for its own.

    the core's last output of it has
        no tokens, and it was never scheduled                its guide cannot be compiled              the request's
        tokens, which the guide does not take
            and it takes no others, or the request bars them                                           the request's
            and it takes others: a step drew what it may not                                           the server's
    anything else                                                                                      the server's

What a guide takes is looked up in its backend, xgrammar or guidance, with bytes for tokens: no vocabulary needs to be
compiled, which takes seconds. Where guidance knows of no further text the answer ends, and is not given up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ...errors import Fault, GenerationError, LmiError, ParameterError
from ..library.parts import part

__all__ = ["Guide", "fault"]

END = 256
"""What stands for the end of a sequence beside the bytes."""
BYTES = [*(bytes([byte]) for byte in range(END)), b"</s>"]


@dataclass(slots=True)
class Guide:
    """What one generation's text must match."""

    path: str
    """Of what asked for it."""
    params: Any
    """The generation's SamplingParams, checked by vLLM."""
    begins_after: int | None
    """The token that ends the reasoning before it; None: it begins with the first token."""
    marks: tuple[int, int] | None
    """Tokens between which there may be reasoning before it, with which the text begins then."""
    compact: bool
    """Whether the engine's guides of JSON allow no white space (`disable_any_whitespace`)."""
    fails_first: bool
    """Whether nothing else fails before a step: no blocks are loaded from elsewhere, and no images."""


def fault(
    guide: Guide, output: Any, tokens: Sequence[int], raw: Callable[[int], bytes], ends: Collection[int]
) -> LmiError:
    """Why the core gave up a sequence of `tokens` with `output`. Takes as long as its guide takes to compile.

    `raw` gives a token's bytes, `ends` are those with which the model ends.
    """
    path = guide.path
    if output.new_token_ids:
        if _at_end(guide, [*tokens, *output.new_token_ids], len(tokens), raw, ends):
            return ParameterError.because(Fault(path, "no token of the model matches it"))
    elif guide.fails_first and _never_scheduled(output):
        return ParameterError.because(Fault(path, "it cannot be compiled"))
    return GenerationError("the engine failed while generating")


def _never_scheduled(output: Any) -> bool:
    """Whether the scheduler had it and never ran it: what fails before is not in its events."""
    kinds = part("vllm.v1.engine:EngineCoreEventType")
    return output.events is not None and all(event.type != kinds.SCHEDULED for event in output.events)


def _at_end(guide: Guide, tokens: list[int], taken: int, raw: Callable[[int], bytes], ends: Collection[int]) -> bool:
    """Whether nothing may follow the first tokens of `tokens` that a guide takes: those that are at fault come after
    `taken` others.
    """
    params = guide.params
    made = MATCHERS.get(params.structured_outputs._backend)
    if made is None:
        return False
    after = guide.begins_after
    if guide.marks is not None and tokens[:1] == [guide.marks[0]]:
        after = guide.marks[1]
    if after is not None:
        if after not in tokens:
            return False
        begins = tokens.index(after) + 1
        tokens, taken = tokens[begins:], taken - begins
    matcher = made(guide)
    position = 0
    for position, token in enumerate(tokens):  # noqa: B007
        if token in ends or not matcher.accept(raw(token)):
            break
    else:
        return False
    if position < taken and tokens[position] not in ends:
        # The core has taken it.
        return False
    allowed = matcher.allowed()
    if allowed == {END} and (params.ignore_eos or params.min_tokens > taken):
        return True
    return not allowed or bool(params.bad_words or params.allowed_token_ids)


class Xgrammar:
    """xgrammar's matcher of a guide, compiled as the core does."""

    def __init__(self, guide: Guide) -> None:
        kind = part("vllm.v1.structured_output.backend_xgrammar:XgrammarBackend")
        backend = kind.__new__(kind)
        backend.compiler, backend.vocab_size = _compiler(), END + 1
        backend.disable_any_whitespace, backend.num_speculative_tokens = guide.compact, 0
        self._matcher = backend.compile_grammar(*_key(guide)).matcher

    def accept(self, text: bytes) -> bool:
        """Goes on with a text if it fits, all of it."""
        return bool(self._matcher.accept_string(text))

    def allowed(self) -> set[int]:
        """The bytes that may follow, and END."""
        import xgrammar

        mask = xgrammar.allocate_token_bitmask(1, END + 1)
        self._matcher.fill_next_token_bitmask(mask)
        words = mask[0].tolist()
        return {token for token in range(END + 1) if words[token // 32] >> token % 32 & 1}


@cache
def _compiler() -> Any:
    import xgrammar

    info = xgrammar.TokenizerInfo(BYTES, vocab_type=xgrammar.VocabType.RAW, vocab_size=END + 1, stop_token_ids=[END])
    return xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)


class Guidance:
    """The same of guidance."""

    def __init__(self, guide: Guide) -> None:
        import llguidance

        serialize = part("vllm.v1.structured_output.backend_guidance:serialize_guidance_grammar")
        self._matcher = llguidance.LLMatcher(_byte_tokenizer(), serialize(*_key(guide), guide.compact), log_level=0)

    def accept(self, text: bytes) -> bool:
        """Goes on with a text if it fits, all of it."""
        tokens = [*text]
        return self._matcher.validate_tokens(tokens) == len(tokens) and bool(self._matcher.consume_tokens(tokens))

    def allowed(self) -> set[int]:
        """The bytes that may follow, and END."""
        mask = int.from_bytes(self._matcher.compute_bitmask(), "little")
        return {token for token in range(END + 1) if mask >> token & 1}


@cache
def _byte_tokenizer() -> Any:
    import llguidance

    class Bytes:
        """What llguidance asks of a tokenizer."""

        eos_token_id = END
        bos_token_id = None
        tokens = BYTES
        special_token_ids = (END,)

        def __call__(self, text: str | bytes) -> list[int]:
            return [*(text.encode() if isinstance(text, str) else text)]

    return llguidance.LLTokenizer(llguidance.TokenizerWrapper(Bytes()))


MATCHERS: dict[str, Callable[[Guide], Any]] = {"xgrammar": Xgrammar, "guidance": Guidance}
"""By vLLM's names of the backends; of others it is not known what they take."""


def _key(guide: Guide) -> Any:
    """The kind of a guide and its source, as vLLM compiles it."""
    return part("vllm.v1.structured_output.request:get_structured_output_key")(guide.params.structured_outputs)
