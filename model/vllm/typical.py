"""typical_p on vLLM, which has none: a logits processor that the engine's core loads by this module's name.

    Sampling.typical_p --extra_args--> SamplingParams --V1, V2--> keep_typical(logits, mass)

V1 and V2 are for vLLM's two model runners. Up to 0.28 the second one, which most models have on a GPU, takes none, but
vLLM goes back to the first one by itself where a processor is asked for from the start. vLLM's classes are their bases,
so that they are made when vLLM asks for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import Fault, OptionError, UnsupportedError
from ..generation import Sampling
from ..options import Settings
from .library.internals import v2_is_forced, v2_takes_processors
from .library.parts import RUN_V2_PROCESSORS, part

if TYPE_CHECKING:
    import torch

__all__ = ["ARGUMENT", "V1", "V2", "Typical", "keep_typical"]

ARGUMENT = "lmi_typical_p"
"""The name in `SamplingParams.extra_args`, which no client's field reaches."""

V1: Any
V2: Any

PATH = "sampling.typical_p"
_FIRST = f"{__name__}:V1"
_SECOND = f"{__name__}:V2"


class Typical:
    """Whether an engine takes typical_p, decided before it starts."""

    def __init__(self, settings: Settings) -> None:
        self._wanted = settings.enable_typical_p
        self.refusal = "option.enable_typical_p is false"
        """Why typical_p is refused; empty where it is not."""

    def ask(self, arguments: dict[str, Any]) -> None:
        """Adds the processor to the arguments of vLLM's configuration, where it is wanted and that is too late later.

        A model runner V2 that takes no processors makes way for V1 when vLLM makes its configuration, unless its
        environment insists (vllm/config/vllm.py, use_v2_model_runner).
        """
        if self._wanted == "true" and not v2_takes_processors() and not v2_is_forced():
            arguments["logits_processors"] = [*(arguments.get("logits_processors") or []), _FIRST]

    def decide(self, config: Any) -> None:
        """Adds the processor to vLLM's `config` where it may be; raises OptionError where it must be and cannot.

        By default it may where no other request pays for it. vLLM refuses processors together with speculative decoding
        (model runner V1). Where it schedules asynchronously, it waits with any processor for a step's tokens before it
        samples the next one's.
        """
        if self._wanted == "false":
            return
        second: bool = config.use_v2_model_runner
        self.refusal = ""
        if second and not v2_takes_processors():
            self.refusal = "vLLM's model runner V2 takes no logits processors in this version"
            if config.speculative_config is None and not v2_is_forced():
                self.refusal += "; option.enable_typical_p=true goes back to V1"
        elif config.speculative_config is not None and not second:
            self.refusal = "vLLM takes no logits processors together with speculative decoding"
        if self.refusal and self._wanted == "true":
            raise OptionError.of("enable_typical_p", self.refusal, expected="false or auto", given="true")
        if self._wanted == "auto" and not self.refusal and not second and config.scheduler_config.async_scheduling:
            self.refusal = "it slows down vLLM's asynchronous scheduling; option.enable_typical_p=true allows it"
        given = config.model_config.logits_processors or []
        if not self.refusal and _FIRST not in given:
            config.model_config.logits_processors = [*given, _SECOND if second else _FIRST]

    def arguments(self, sampling: Sampling) -> dict[str, Any]:
        """What `SamplingParams.extra_args` has of it; raises UnsupportedError where the engine does not take it."""
        if sampling.typical_p is None or sampling.typical_p == 1:
            return {}
        if self.refusal:
            raise UnsupportedError.because(Fault(PATH, f"not supported here ({self.refusal})"))
        return {ARGUMENT: sampling.typical_p}


def keep_typical(logits: torch.Tensor, mass: torch.Tensor) -> torch.Tensor:
    """`logits` [rows, vocabulary] with minus infinity for what is not typical; `mass` [rows, 1] in (0, 1].

    The tokens whose information is nearest to the distribution's entropy are kept, as many as make up `mass`, at least
    one (transformers 5.23, TypicalLogitsWarper; Meister et al., Locally Typical Sampling).
    """
    import torch

    logprobs = logits.log_softmax(dim=-1)
    probabilities = logprobs.exp()
    entropy = -(logprobs * probabilities).nansum(dim=-1, keepdim=True)
    distance = (-logprobs - entropy).abs()
    ordered, indices = distance.sort(dim=-1)
    below = (probabilities.gather(-1, indices).cumsum(dim=-1) < mass).sum(dim=-1, keepdim=True)
    limit = ordered.gather(-1, below.clamp_(max=logits.shape[-1] - 1))
    return logits.masked_fill((distance > limit) & (mass < 1), -torch.inf)


def _mass(params: Any) -> float | None:
    return (params.extra_args or {}).get(ARGUMENT)


def _first() -> Any:
    """For model runner V1, which calls it on logits already divided by the temperature, ahead of top_k and top_p."""
    import torch

    base: Any = part("vllm.v1.sample.logits_processor:LogitsProcessor")
    process_dict_updates = part("vllm.v1.sample.logits_processor.builtin:process_dict_updates")

    class First(base):  # type: ignore[misc]
        def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None:
            self._device = device
            self._asked: dict[int, float] = {}
            self._rows: Any = None
            self._mass: Any = None

        def is_argmax_invariant(self) -> bool:
            """Not quite: the likeliest token may go. But it says that greedy requests do without."""
            return True

        def update_state(self, batch_update: Any) -> None:
            if process_dict_updates(self._asked, batch_update, lambda params, _prompt, _output: _mass(params)):
                rows, mass = list(self._asked), list(self._asked.values())
                self._rows = torch.tensor(rows, device=self._device)
                self._mass = torch.tensor(mass, device=self._device).unsqueeze(1)

        def apply(self, logits: Any) -> Any:
            if self._asked:
                logits[self._rows] = keep_typical(logits[self._rows], self._mass)
            return logits

    return First


def _second() -> Any:
    """For model runner V2, which calls it ahead of the temperature, once for all rows where any request wants it."""
    import numpy as np
    import torch

    base: Any = part(f"{RUN_V2_PROCESSORS}:LogitsProcessor")

    class Second(base):  # type: ignore[misc]
        def __init__(self, vllm_config: Any, req_states: Any) -> None:
            slots = req_states.max_num_reqs
            self._asked = np.zeros(slots, dtype=bool)
            self._mass = torch.ones(slots, device=req_states.device)
            self._temperature = torch.ones(slots, device=req_states.device)

        def add_request(self, req_idx: int, sampling_params: Any) -> bool:
            mass = _mass(sampling_params)
            asked = mass is not None and sampling_params.temperature > 0
            if asked or self._asked[req_idx]:
                self._mass[req_idx] = mass if mass is not None and asked else 1.0
                self._temperature[req_idx] = sampling_params.temperature if asked else 1.0
            self._asked[req_idx] = asked
            return asked

        def apply(self, logits: Any, ctx: Any) -> Any:
            if not self._asked[ctx.idx_mapping_np].any():
                return logits
            slots = ctx.expanded_idx_mapping.long()
            temperature = self._temperature[slots].unsqueeze(1)
            kept = keep_typical(logits / temperature, self._mass[slots].unsqueeze(1))
            return logits.masked_fill_(kept == -torch.inf, -torch.inf)

    return Second


def __getattr__(name: str) -> Any:
    if name not in {"V1", "V2"}:
        raise AttributeError(name)
    made = globals()[name] = _first() if name == "V1" else _second()
    return made
