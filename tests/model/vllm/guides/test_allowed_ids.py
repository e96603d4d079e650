"""A request's allowed tokens are its own, wherever vLLM's batch has it."""

from __future__ import annotations

from typing import Any

import pytest

from lmi.model.vllm.guides.allowed_ids import keep_rows

from ....demo.model import question
from ....kit.api.types import Generation, Sampling

pytestmark = pytest.mark.engine

VOCABULARY, ALLOWED = 64, 5


def batch() -> Any:
    import inspect

    import torch
    from vllm.v1.worker.gpu_input_batch import InputBatch

    given: dict[str, Any] = {
        "max_num_reqs": 8, "max_model_len": 32, "max_num_batched_tokens": 64, "device": torch.device("cpu"),
        "vocab_size": VOCABULARY, "block_sizes": [16], "kernel_block_sizes": [16],
        "max_num_blocks_per_req": [2],
    }  # fmt: skip
    return InputBatch(
        **{name: given[name] for name in inspect.signature(InputBatch.__init__).parameters if name in given}
    )


def request(name: str) -> Any:
    """One whose name begins with "a" allows one token alone."""
    from vllm import SamplingParams
    from vllm.v1.worker.gpu_input_batch import CachedRequestState

    params = SamplingParams(allowed_token_ids=[ALLOWED] if name.startswith("a") else None)
    return CachedRequestState(
        req_id=name, prompt_token_ids=[1, 2], mm_features=[], sampling_params=params, generator=None, block_ids=([0],),
        num_computed_tokens=0, output_token_ids=[],
    )  # fmt: skip


def rows(made: Any) -> dict[str, list[int]]:
    """The tokens that each request may not have."""
    mask = made.allowed_token_ids_mask_cpu_tensor
    return {name: mask[row].nonzero().flatten().tolist() for name, row in made.req_id_to_index.items()}


def test_a_row_is_one_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.worker.gpu_input_batch import InputBatch

    for name in ("add_request", "swap_states"):
        monkeypatch.setattr(InputBatch, name, getattr(InputBatch, name))
    keep_rows(None)
    made = batch()
    barred = [token for token in range(VOCABULARY) if token != ALLOWED]

    def check(*names: str) -> None:
        made.condense()
        made.refresh_metadata()
        assert rows(made) == {name: barred if name.startswith("a") else [] for name in names}

    for name in ("b1", "a1", "b2"):
        made.add_request(request(name))
    check("b1", "a1", "b2")
    made.swap_states(1, 2)
    check("b1", "a1", "b2")
    # The last one takes the place of the first, and leaves its row to the next.
    made.remove_request("b1")
    check("a1", "b2")
    made.add_request(request("b3"))
    check("a1", "b2", "b3")
    made.swap_states(0, 2)
    made.remove_request("a1")
    made.add_request(request("a2"))
    check("b2", "b3", "a2")


def test_beside_one_that_allows_a_token_all_others_have_theirs(chat_backend: Any) -> None:
    """Such a request moves to the place of one that ends, and another comes to where it was."""

    def asked(prompt: Any, **sampling: Any) -> Generation:
        return Generation(request_id="test", prompt=prompt, sampling=Sampling(temperature=0.0, **sampling))

    plain = question("plain")
    short = asked("one", max_tokens=2, ignore_eos=True)
    allowing = asked("two", max_tokens=60, ignore_eos=True, allowed_token_ids=(ALLOWED,))
    found: dict[int, str] = {}
    ended: set[int] = set()

    def step() -> None:
        for number, event in chat_backend.step():
            found[number] = found.get(number, "") + getattr(event, "text", "")
            if getattr(event, "finish", None) is not None:
                ended.add(number)

    for number, one in ((1, short), (2, allowing)):
        chat_backend.add(chat_backend.prepare(number, one))
    while 1 not in ended:
        step()
    for number in (3, 4):
        chat_backend.add(chat_backend.prepare(number, asked(plain.prompt, max_tokens=200)))
    while chat_backend.busy:
        step()
    assert found[2] == "&" * 60
    assert found[3] == found[4] == plain.answer
