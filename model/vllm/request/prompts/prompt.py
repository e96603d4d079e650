"""A generation's prompt as vLLM takes it, and what vLLM says where it does not take a request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....errors import ParameterError
from ....generation import Conversation, Generation, Sampling
from ....media.parts import MediaFile
from ....text.prompt_limits import max_new_tokens_for, max_prompt_tokens, shortened
from ...core import Core
from ...library.internals import tokenize_params
from ...library.parts import part
from .encoding import text_encoder

__all__ = ["PromptRenderer", "answered_ids", "client_errors", "decoder_input", "path_of", "refused", "template_errors"]


class PromptRenderer:
    """Tokenizes prompts of at most `most` tokens (option.max_prompt_tokens) for one model; nothing that is far longer.

    vLLM's own limit is not used: its message for a long prompt would not be ours, and it goes by the
    longest token's characters, which 60 million characters of blanks and letters may be within.
    """

    def __init__(self, core: Core, most: int | None) -> None:
        self._core = core
        self._encoder = text_encoder(core)
        self._most = most
        self._context: int = core.model_config.max_model_len
        self._allowed = max_prompt_tokens(self._context - 1, most)

    def count(self, text: str) -> int:
        """How many tokens a text has."""
        return len(self._core.get_tokenizer().encode(text, add_special_tokens=False))

    def shortening(self, generation: Generation, images: Sequence[MediaFile] = ()) -> Callable[[str], str]:
        """Makes of a text that is to be tokenized what has the tokens that are wanted of it: all, or those at one end.

        Raises ContextError for a text that is far too long. A prompt with images is never cut.
        """
        keep, start = None if images else generation.sampling.truncate, generation.sampling.cut == "right"
        return lambda text: shortened(text, keep, self._allowed, self.count, self._context, start=start)

    def render(self, generation: Generation) -> Any:
        """Text or token ids, tokenized: vLLM's own form of a prompt, with `prompt_token_ids`."""
        prompt, truncate, cut = generation.prompt, generation.sampling.truncate, generation.sampling.cut
        given: dict[str, Any]
        if isinstance(prompt, str):
            text = self.shortening(generation)(prompt)
            if truncate is None and self._encoder is not None:
                return self._encoder.prompt(text, special=generation.add_special_tokens)
            given = {"prompt": text}
        else:
            kept = slice(truncate) if cut == "right" else slice(-(truncate or 0), None)
            ids: Any = prompt if truncate is None else prompt[kept]  # type: ignore[index]
            max_new_tokens_for(generation, len(ids), self._context, self._most)
            given = {"prompt_token_ids": [*ids]}
        tokenize = tokenize_params(
            truncate_prompt_tokens=truncate, truncation_side=cut, add_special_tokens=generation.add_special_tokens
        )
        parsed = part("vllm.renderers.inputs.preprocess:parse_model_prompt")(self._core.model_config, given)
        return self._core.renderer.render_cmpl([parsed], tokenize)[0]


def answered_ids(prompt: Any) -> list[int]:
    """The tokens that an answer goes on from."""
    return [*decoder_input(prompt)["prompt_token_ids"]]


def decoder_input(prompt: Any) -> Any:
    """The part of a prompt that an answer goes on from: of a model that has an encoder that of its decoder."""
    return part("vllm.inputs:split_enc_dec_input")(prompt)[1]


def refused(error: Exception, path: str | None) -> ParameterError:
    """What vLLM found wrong with a request's values; `path`: with which, where it names none itself."""
    parameter: str | None = getattr(error, "parameter", None)
    text = str(error)
    if parameter:
        # Its text ends with the whole value then.
        text = str(error.args[0] if error.args else error).removeprefix(f"{parameter} ")
        path = path_of(parameter) or path
    return ParameterError(text if path is None else f"{path}: {text}", path)


def path_of(name: str) -> str | None:
    """The path of what vLLM calls as a Generation does; None: it has no such field."""
    if name in Sampling.__struct_fields__:
        return f"sampling.{name}"
    return f"prompt.{name}" if name in Conversation.__struct_fields__ else None


def client_errors() -> tuple[type[Exception], ...]:
    """What vLLM raises for a bad request: from 0.32 on not a ValueError any more.

    A TypeError is not among them: requests are typed when they come here, so it is a call that this vLLM does not take.
    """
    import vllm.exceptions

    later = getattr(vllm.exceptions, "VLLMClientError", None)
    return (ValueError,) if later is None else (ValueError, later)


def template_errors() -> tuple[type[Exception], ...]:
    """What rendering a conversation raises where the conversation is at fault."""
    from jinja2 import TemplateError

    return (TemplateError, LookupError, AttributeError, ArithmeticError, RecursionError)
