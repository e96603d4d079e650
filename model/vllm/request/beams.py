"""What a beam search needs of the engine that runs it."""

from __future__ import annotations

from ...errors import Fault, ParameterError, UnsupportedError
from ...generation import Beams, Generation
from ..core import Core

__all__ = ["PATH", "BeamLimits"]

PATH = "sampling.beams"
"""Of what is at fault where a search is refused."""


class BeamLimits:
    """What one engine can do for searches."""

    def __init__(self, core: Core) -> None:
        self.vocabulary: int = core.model_config.get_vocab_size()
        most = core.model_config.max_logprobs
        self.most: int = self.vocabulary if most < 0 else most
        """How many log-probabilities of likely tokens a request may ask for."""
        self._prefixes_cached: bool = core.vllm_config.cache_config.enable_prefix_caching

    def check(self, generation: Generation, beams: Beams) -> None:
        """Raises UnsupportedError where the answer is to be streamed, where vLLM may not tell enough log-probabilities,
        or where it would compute the whole prompt again for each token of each beam.
        """
        if generation.stream:
            raise UnsupportedError.because(Fault(PATH, "beam search is not supported with streaming"))
        if not self._prefixes_cached:
            raise UnsupportedError(
                f"{PATH}: beam search needs prefix caching, which this engine runs without "
                "(option.enable_prefix_caching)",
                PATH,
            )
        if 2 * beams.width > self.most:
            raise UnsupportedError(
                f"{PATH}: expected at most {self.most // 2} beams (option.max_logprobs is {self.most}, and "
                f"each beam takes two), got {beams.width}",
                PATH,
            )
        # Of other requests vLLM checks it itself; a search asks it for as many as it may.
        if (likely := generation.sampling.logprobs or 0) > self.most:
            expected = f"at most {self.most} (option.max_logprobs)"
            raise ParameterError.of("sampling.logprobs", likely, expected)
