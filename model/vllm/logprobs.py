"""The chosen token's log-probability without vLLM's objects around it.

    EngineCoreOutput.new_logprobs --vLLM--> {id: Logprob(logprob, rank, decoded_token)} a token, kept to the end
                                  --here--> one float a token

Most requests want the chosen token's number only (`Sampling.logprobs` 0). For these vLLM's LogprobsProcessor would
turn three arrays into lists, a dictionary and an object with every token, which costs more than all the rest of its
output processing.
"""

from __future__ import annotations

from typing import Any

__all__ = ["keep_chosen_only"]


def keep_chosen_only(llm: Any, name: str) -> bool:
    """Has the outputs of a request just added (`name` is what `add_request` returned) carry floats as `logprobs`.

    False where this vLLM works differently: then they carry dictionaries, as vLLM documents. A sequence's
    `cumulative_logprob` stays 0 (ours is made of the tokens' own). Holds for vLLM 0.23.0 to 0.32.0
    (v1/engine/output_processor.py: RequestState; v1/engine/logprobs.py: LogprobsProcessor).
    """
    state = getattr(llm.output_processor, "request_states", {}).get(name)
    processor: Any = getattr(state, "logprobs_processor", None)
    chosen = getattr(processor, "logprobs", None)
    if not isinstance(chosen, list) or not callable(getattr(processor, "_update_sample_logprobs", None)):
        return False

    def update(rows: Any) -> None:
        # A row a token; "the sampler puts the sampled logprob in first" (LogprobsProcessor). Others in the batch may
        # have asked for more.
        values = rows.logprobs
        if len(values) == 1:
            chosen.append(values.item(0))
        else:
            chosen.extend(values[:, 0].tolist())

    processor._update_sample_logprobs = update
    return True
