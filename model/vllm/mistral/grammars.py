"""The grammars by which models of version 11 and later write their calls, and what runs them.

    request --vLLM's MistralToolParser.adjust_request--> GrammarFactory --mistral-common--> a grammar in Lark's form
        --guidance (llguidance)--> tokens

Of vLLM's backends guidance alone reads these grammars, in which special tokens stand (guides/backends.py). Where the
core has one for all guides, it runs them all.

vLLM 0.26 to 0.32 ask for grammars as mistral-common 1.11 and 1.12 make them. From 1.13 on it is told of a name that is
forced in another way: `_Grammars` stands between them. A name that is forced is called once, as in every other family.
"""

from __future__ import annotations

import inspect
import json
from importlib.metadata import version
from typing import Any

from ...errors import OptionError
from ...options import Settings
from ..core import Core
from ..library.parts import check_attributes, part
from ..library.version import vllm_version

__all__ = ["mistral_misfit", "prepare_mistral", "writes_by_grammars"]

PARSER, BACKEND = "mistral", "guidance"
COMMON = "1.13.1"
"""For messages: the version of mistral-common that is tested."""


def prepare_mistral(core: Core, settings: Settings) -> None:
    """Prepares a core that is to be started, where its tokenizer is Mistral's; raises OptionError."""
    tokenizer: Any = core.get_tokenizer()
    if not part("vllm.utils.mistral:is_mistral_tokenizer")(tokenizer):
        return
    check_attributes("vllm.tokenizers.mistral:MistralTokenizer", tokenizer)
    if settings.chat_template is not None:
        why = "Mistral's tokenizer takes none, set option.tokenizer_mode=hf for it"
        raise OptionError.of("chat_template", why)
    if not writes_by_grammars(tokenizer, settings):
        return
    option = "structured_outputs_config"
    named = json.loads(settings.engine_arguments.get(option) or "{}").get("backend", "auto")
    if named not in ("auto", BACKEND):
        expected = f"the backend {BACKEND} (or none) for the calls of Mistral's tokenizer from version 11 on"
        raise OptionError.of(option, expected=expected, given=named)
    if not core.guides_by_request:
        core.vllm_config.structured_outputs_config.backend = BACKEND
    parser = part("vllm.tool_parsers.mistral_tool_parser:MistralToolParser")
    if hasattr(parser, "model_can_reason"):
        # As vLLM 0.26's server does.
        parser.model_can_reason = settings.reasoning_parser is not None
    if not isinstance(factory := tokenizer.grammar_factory, _Grammars):
        # Where vLLM keeps it once it is made, for as long as the tokenizer, which engines share.
        tokenizer.grammar_factory = _Grammars(factory)


def writes_by_grammars(tokenizer: Any, settings: Settings) -> bool:
    """Whether vLLM's MistralToolParser asks for grammars of a MistralTokenizer."""
    return settings.tool_call_parser == PARSER and bool(tokenizer.supports_grammar)


def mistral_misfit(fault: BaseException) -> OptionError:
    """For a mistral-common that makes no grammars, or not as this vLLM asks for them."""
    installed = f"mistral-common {version('mistral-common')}, vLLM {vllm_version()}"
    why = f"'mistral' cannot be used with {installed}: {fault}; expected mistral-common {COMMON}"
    return OptionError.of("tool_call_parser", why)


class _Grammars:
    """mistral-common's GrammarFactory, as vLLM calls one before 1.13."""

    def __init__(self, factory: Any) -> None:
        self._factory = factory
        asked = inspect.signature(factory.select_jinja_template).parameters.get("reasoning")
        self._asks_reasoning = asked is not None and asked.default is inspect.Parameter.empty
        self._pins_names = "force_tool_names" in inspect.signature(factory.get_lark_from_jinja).parameters

    def select_jinja_template(self, reasoning: bool = False) -> str:
        """The template of the tokenizer's grammars; from 1.11.6 on the tokenizer says whether it reasons."""
        return str(self._factory.select_jinja_template(*((reasoning,) if self._asks_reasoning else ())))

    def get_lark_for_json_schema(self, **what: Any) -> str:
        """A grammar of JSON alone."""
        return str(self._factory.get_lark_for_json_schema(**what))

    def get_lark_from_jinja(self, *, mode: Any, tools: list[Any] | None, parallel_tool_calls: bool, **more: Any) -> str:
        """A grammar of calls; `mode` is a choice, or that of a name."""
        name = None if isinstance(mode, str) else mode.function.name
        if name is not None:
            tools = [tool for tool in tools or () if tool.function.name == name]
            parallel_tool_calls = False
        if self._pins_names:
            more["force_tool_names"] = name is not None
            mode = "required" if name is not None else mode
        made = self._factory.get_lark_from_jinja(
            mode=mode, tools=tools, parallel_tool_calls=parallel_tool_calls, **more
        )
        return str(made)
