"""Which of vLLM's backends guides a request, decided and compiled before the core has it: one that the core cannot
compile fails there, and has ended it for everyone.

    a JSON schema                xgrammar, where it enforces all of it; else guidance, where that does; else xgrammar,
                                 as vLLM's `auto`, which lets the rest through: each is told in the log once
    Mistral's Lark grammars      guidance
    a structural tag's formats   xgrammar
    anything else                xgrammar, or guidance where that cannot

What is to become part of a structural tag, as all guides of gpt-oss's conversations, is asked of xgrammar alone.

A backend that `option.structured_outputs_config` names is the only one. vLLM's `auto` asks outlines where there
is `patternProperties` (0.26.0 to 0.32.0): outlines refuses it or lets it through, guidance enforces it.

One that would take too long for a guide is not asked (model/text/grammar_limits.py). guidance limits itself besides:
the work of each step (llguidance's ParserLimits), where it ends the text.
"""

from __future__ import annotations

import copy
import json
import logging
import re
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from ...errors import Fault, ParameterError, UnsupportedError, one_line, raised_by_us
from ...text.grammar_limits import Costs, grammar_costs, regex_costs, schema_costs
from ..library.parts import part
from .schema_places import fault_place, passed_over

if TYPE_CHECKING:
    from vllm.sampling_params import StructuredOutputsParams

__all__ = ["GUIDANCE", "XGRAMMAR", "GuideBackends", "bounded", "for_xgrammar"]

log = logging.getLogger(__name__)

XGRAMMAR, GUIDANCE, AUTO = "xgrammar", "guidance", "auto"
PLACE = re.compile(r"^\[[\d:]+\] \S+:\d+: ")
"""Where in its own sources xgrammar found the fault."""
LONGEST = 300
"""Characters of a compiler's words that are told."""


class GuideBackends:
    """Those of one model."""

    def __init__(self, config: Any, tokenizer: Any, *, by_request: bool) -> None:
        """`config` is the VllmConfig; `by_request`: the core guides each request by its own backend (in_core.py)."""
        self._named: str = config.structured_outputs_config.backend
        self.decides = self._named == AUTO
        """Whether it is decided here, for each request; vLLM is not to check it again."""
        self.takes_formats = self._named in (AUTO, XGRAMMAR)
        """Whether a structural tag of formats can be compiled, which xgrammar alone takes."""
        self._diffusion = bool(getattr(config.model_config, "is_diffusion", False))
        self._tokenizer = tokenizer
        self._mistral: bool = part("vllm.utils.mistral:is_mistral_tokenizer")(tokenizer)
        self._guidance = by_request and self._fits(config.model_config.get_vocab_size())

    def compiled(self, path: str, made: StructuredOutputsParams, *, bound: bool = True) -> StructuredOutputsParams:
        """What the core is to compile of `made`; raises ParameterError, naming `path` and what is at fault.

        bound: whether it is to be held to the limits of guides; else what it is made of has been.
        What a backend that the options name cannot take, and is neither xgrammar nor guidance, vLLM says when it is
        given the request.
        """
        if self._diffusion:
            raise UnsupportedError.because(Fault(path, "a model that writes by diffusion cannot be guided"))
        for name in ("json", "grammar"):
            source = getattr(made, name)
            if isinstance(source, str) and not source.strip():
                # The check lets these pass, and the core ends with them.
                raise ParameterError.because(Fault(path, "it cannot be compiled: it is empty"))
        costs = _costs(path, made) if bound else Costs()
        if not self.takes_formats and _is_formats(made.structural_tag):
            message = f"{path}: only xgrammar can guide it, which option.structured_outputs_config does not allow"
            raise UnsupportedError(f"{message}: expected the backend auto or xgrammar, got {self._named}", path)
        if self._named not in (AUTO, XGRAMMAR, GUIDANCE):
            bounded(path, made, XGRAMMAR, GUIDANCE)
            return made
        asked, schema = self._asked(made)
        too_long = {XGRAMMAR: costs.xgrammar, GUIDANCE: costs.guidance}
        if not (quick := tuple(name for name in asked if not too_long[name])):
            raise ParameterError.because(Fault(path, f"{too_long[asked[0]]}"))
        asked = quick
        first: Exception | None = None
        for name in asked:
            try:
                checked = self._checked(name, made)
            except Exception as error:
                if raised_by_us(error):
                    raise
                first = first or error
                continue
            # What was in Lark's form is in EBNF now.
            converted = name == XGRAMMAR and checked.grammar not in (None, made.grammar)
            if converted and (reason := _costs(path, checked).xgrammar):
                first = first or ValueError(reason)
                continue
            if name == XGRAMMAR and (lost := passed_over(schema)):
                for keyword in sorted({place.rpartition("/")[2] for place in lost}):
                    _tell(keyword)
            if not self.decides:
                return made
            checked._backend = name
            return checked
        assert first is not None
        raise ParameterError(self._fault(path, made, asked, schema, first), path) from first

    def of_xgrammar(self) -> GuideBackends:
        """The same for guides that become part of a structural tag of formats, which xgrammar alone takes."""
        made = copy.copy(self)
        made._guidance = False
        return made

    def _fits(self, vocabulary: int) -> bool:
        """Whether guidance takes the tokenizer, and its masks are those of xgrammar."""
        if self._mistral:
            return bool(self._tokenizer.is_tekken)
        words = [(tokens + 31) // 32 for tokens in (vocabulary, max(vocabulary, len(self._tokenizer)))]
        return bool(getattr(self._tokenizer, "is_fast", False)) and words[0] == words[1]

    def _asked(self, made: StructuredOutputsParams) -> tuple[tuple[str, ...], Any]:
        """The backends that are asked, one after the other, and the schema if it is one."""
        schema = None
        if isinstance(made.json, str):
            try:
                schema = json.loads(made.json)
            except (ValueError, RecursionError):
                schema = None  # which each of them refuses
        elif made.json is not None:
            schema = made.json
        if self._named != AUTO:
            return (self._named,), schema
        if not self._guidance or _is_formats(made.structural_tag):
            return (XGRAMMAR,), schema
        if self._mistral and made.grammar and _is_lark(made.grammar):
            return (GUIDANCE,), schema
        if schema is not None and passed_over(schema):
            return (GUIDANCE, XGRAMMAR), schema
        return (XGRAMMAR, GUIDANCE), schema

    def _checked(self, name: str, made: StructuredOutputsParams) -> StructuredOutputsParams:
        """What a backend makes of it; raises what that raises."""
        from vllm import SamplingParams

        if name == XGRAMMAR:
            return for_xgrammar(made)
        # It writes what it makes of it into what it is given.
        params = SamplingParams(structured_outputs=(checked := copy.copy(made)))
        more = {"tokenizer": self._tokenizer.llg_tokenizer} if self._mistral else {}
        part("vllm.v1.structured_output.backend_guidance:validate_guidance_grammar")(params, **more)
        return checked

    def _fault(
        self, path: str, made: StructuredOutputsParams, asked: tuple[str, ...], schema: Any, error: Exception
    ) -> str:
        place = fault_place(schema, lambda one: any(self._takes(name, one) for name in asked)) if schema else ""
        where = f"{place}: " if len(place) > 1 else ""
        reason = PLACE.sub("", one_line(str(error.__cause__ or error)))[:LONGEST]
        return f"{path}: it cannot be compiled: {where}{reason}"

    def _takes(self, name: str, schema: Any) -> bool:
        from vllm.sampling_params import StructuredOutputsParams

        try:
            self._checked(name, StructuredOutputsParams(json=json.dumps(schema)))
        except Exception as error:
            if raised_by_us(error):
                raise
            return False
        return True


@cache
def _tell(keyword: str) -> None:
    log.warning("xgrammar does not enforce %s of a JSON schema: guided text may break it", keyword)


def for_xgrammar(made: StructuredOutputsParams) -> StructuredOutputsParams:
    """`made` as xgrammar is to have it: a grammar in Lark's form in EBNF; raises what vLLM and xgrammar raise."""
    from vllm import SamplingParams

    # vLLM writes what it makes of it into what it is given.
    checked = copy.copy(made)
    part("vllm.v1.structured_output.backend_xgrammar:validate_xgrammar_grammar")(
        SamplingParams(structured_outputs=checked)
    )
    if checked.grammar and _is_lark(checked.grammar):
        # 0.26 has made EBNF of it; later the core does, which limits and formats have no part in.
        checked.grammar = _ebnf(checked.grammar)
    return checked


def bounded(path: str, made: StructuredOutputsParams, *backends: str) -> None:
    """Raises ParameterError for what is too large, or would take one of the backends too long."""
    costs = _costs(path, made)
    for name in backends:
        if reason := getattr(costs, name):
            raise ParameterError.because(Fault(path, f"{reason}"))


def _costs(path: str, made: StructuredOutputsParams) -> Costs:
    kinds: dict[str, Callable[[str], Costs]] = {"json": schema_costs, "regex": regex_costs, "grammar": grammar_costs}
    for name, costs in kinds.items():
        source = getattr(made, name)
        if isinstance(source, dict):
            source = json.dumps(source)
        try:
            if isinstance(source, str) and source.strip():
                return costs(source)
        except ValueError as error:
            raise ParameterError.because(Fault(path, f"{error}")) from None
    return Costs()


def _is_formats(tag: str | None) -> bool:
    """Whether it is a structural tag of xgrammar's form, not of its former one."""
    if tag is None:
        return False
    try:
        return "structures" not in json.loads(tag)
    except (ValueError, RecursionError, TypeError):
        return True


def _ebnf(lark: str) -> str:
    import xgrammar

    return str(xgrammar.Grammar.from_lark(lark))


def _is_lark(grammar: str) -> bool:
    return bool(part("vllm.v1.structured_output.utils:grammar_is_likely_lark")(grammar))
