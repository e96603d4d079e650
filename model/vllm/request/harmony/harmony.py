"""gpt-oss: what chat.py asks in place of a chat template and of vLLM's parsers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ....errors import UnsupportedError, refuse
from ....generation import Conversation, Sampling
from ....options import Settings
from ....options.advice.parsers import GPT_OSS, misplaced_parsers
from ....text.efforts import EFFORT
from ...core import Core
from ...guides.backends import GuideBackends, for_xgrammar
from ...guides.structured import of_tools
from ...library.internals import tokenize_params
from ...library.parts import part
from .answers import HarmonySplitter
from .guides import ANY, answer_tag, guided_format
from .prompts import efforts, prompt_ids
from .vocabulary import load_encoding

if TYPE_CHECKING:
    from vllm.sampling_params import StructuredOutputsParams

__all__ = ["Harmony", "harmony_of"]

TOOLS, CONTINUED = "prompt.tools", "prompt.continue_final_message"


def harmony_of(core: Core, settings: Settings) -> Harmony | None:
    """None for another model, or where there are no answers to conversations; raises OptionError for options that name
    parsers of gpt-oss's for another model, or others for gpt-oss.
    """
    kind: str = core.model_config.hf_config.model_type
    refuse(misplaced_parsers(settings, kind))
    return Harmony(core) if kind == GPT_OSS and not settings.pools else None


class Harmony:
    """One model's."""

    def __init__(self, core: Core) -> None:
        """Raises OptionError where the vocabulary is missing."""
        self._core = core
        self._encoding = load_encoding(core.get_tokenizer())
        self.efforts = efforts()
        """Those that these models know."""
        # Fails at the start, not at the first request, where openai_harmony is another than the one that we know.
        prompt_ids([{"role": "user", "content": ""}], None, None)

    def render(
        self, request: Any, sampling: Sampling, shortened: Callable[[str], str] | None, *, tools: bool = True
    ) -> Any:
        """The prompt as vLLM takes it, or the tokens of it that `sampling` keeps; raises ParameterError, and what
        `shortened` raises for texts that are far too long. `tools`: whether it tells of them.
        """
        messages = request.messages
        for message in messages:
            if (calls := message.get("tool_calls")) is not None:
                # pydantic leaves them to be read once (vLLM, tokenizers/mistral.py: maybe_serialize_tool_calls).
                message["tool_calls"] = [*calls]
        if shortened is not None:
            shortened("".join(_texts(messages)))
        told = [tool for tool in request.tools or () if not getattr(tool, "defer_loading", None)]
        arguments = request.chat_template_kwargs or {}
        ids = prompt_ids(messages, told if tools and request.tools else None, arguments.get(EFFORT))
        if _continues(request):
            # Without `<|end|><|start|>assistant`.
            ids = ids[:-3]
        elif not request.add_generation_prompt:
            ids = ids[:-2]
        parsed = part("vllm.renderers.inputs.preprocess:parse_model_prompt")(
            self._core.model_config, {"prompt_token_ids": ids}
        )
        tokenize = tokenize_params(truncate_prompt_tokens=sampling.truncate, truncation_side=sampling.cut)
        return self._core.renderer.render_cmpl([parsed], tokenize)[0]

    def splitter(self, conversation: Conversation, request: Any) -> HarmonySplitter:
        """What takes one sequence's answer apart."""
        tools = conversation.tools if conversation.tool_choice != "none" else ()
        names = [tool["function"]["name"] for tool in tools]
        return HarmonySplitter(
            self._encoding,
            names,
            continues=_continues(request),
            one_call=not conversation.parallel_tool_calls,
            show_reasoning=conversation.include_reasoning,
        )

    def forced(self, conversation: Conversation) -> StructuredOutputsParams | None:
        """What an answer is guided by that must call a tool; None where none must."""
        if conversation.function is None and conversation.tool_choice != "required":
            return None
        name = conversation.function
        functions = [tool["function"] for tool in conversation.tools if name in (None, tool["function"]["name"])]
        return _tagged(answer_tag(functions, None, preamble=True))

    def placed(
        self,
        conversation: Conversation,
        request: Any,
        guided: StructuredOutputsParams | None,
        path: str | None,
        backends: GuideBackends,
    ) -> tuple[StructuredOutputsParams | None, str | None]:
        """The guide of an answer, compiled, and the path of what asked for it, once it holds for the final message
        alone; `guided` is compiled by `backends`. Calls that a model chooses to make are guided where one of its tools
        is strict, or the answer is guided. Raises ParameterError.
        """
        if request.structured_outputs is not None or _continues(request):
            return guided, path
        functions = [tool["function"] for tool in conversation.tools] if conversation.tool_choice == "auto" else []
        if guided is None and not any(function.get("strict") for function in functions):
            return None, path
        path = path or TOOLS
        # A backend that the options name has left a grammar as it was.
        final = ANY if guided is None else guided_format(guided if guided.grammar is None else for_xgrammar(guided))
        tagged = _tagged(answer_tag(functions, final, preamble=bool(functions)))
        if functions:
            return of_tools(tagged, conversation, backends, strict=False), path
        return backends.compiled(path, tagged), path


def _tagged(tag: str) -> StructuredOutputsParams:
    from vllm.sampling_params import StructuredOutputsParams

    return StructuredOutputsParams(structural_tag=tag)


def _continues(request: Any) -> bool:
    """Whether the answer goes on with the last message; raises UnsupportedError where it cannot.

    Of an empty one nothing is in the prompt, and a new one begins.
    """
    if not request.continue_final_message:
        return False
    last = request.messages[-1]
    if last["role"] != "assistant" or last.get("tool_calls"):
        message = (
            f"{CONTINUED}: expected a last message of the assistant, without calls, which this model can go on with"
        )
        raise UnsupportedError(message, CONTINUED)
    return bool(last.get("content"))


def _texts(messages: Iterable[Any]) -> Iterator[str]:
    """What the messages say, to see how long they are."""
    for message in messages:
        content = message.get("content") or ""
        yield from (content,) if isinstance(content, str) else (part.get("text", "") for part in content)
        yield message.get("reasoning") or ""
        yield from (call["function"]["arguments"] for call in message.get("tool_calls") or ())
