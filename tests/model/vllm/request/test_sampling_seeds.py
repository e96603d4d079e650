"""Seeds at the ends of what 64 bits hold: in every dialect, and in what vLLM is given for every sequence."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from ....kit.api.dialects import SAMPLING, receive
from ....kit.api.options import typed_settings
from ....kit.api.types import Generation, ParsedRequest, Request, Sampling, nth_seed
from ....kit.rows import each_row

LARGEST = 2**63 - 1
SMALLEST = -(2**63)
SETTINGS = typed_settings()
CHAT: dict[str, Any] = {"model": "a", "messages": [{"role": "user", "content": "Hello"}]}


@each_row(
    ("seed", "index", "expected"),
    [
        (0, 0, 0),
        (5, 3, 8),
        (-3, 5, 2),
        (LARGEST, 0, LARGEST),
        (LARGEST - 127, 127, LARGEST),
        (LARGEST, 1, SMALLEST),
        (LARGEST, 128, SMALLEST + 127),
        (SMALLEST, 0, SMALLEST),
        (SMALLEST, 1, SMALLEST + 1),
        (2**64 - 1, 0, -1),
    ],
)
def test_the_nth_seed(seed: int, index: int, expected: int) -> None:
    assert nth_seed(seed, index) == expected


def lmi(**parameters: Any) -> dict[str, Any]:
    return {"inputs": "Hello", "parameters": {"do_sample": True, **parameters}}


DIALECTS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, str], str]] = {
    "lmi": (lmi(seed=LARGEST, n=2), {}, {}, "parameters.seed"),
    "lmi by another name": (lmi(random_seed=LARGEST, best_of=2), {}, {}, "parameters.random_seed"),
    "tgi": (lmi(seed=LARGEST), {"tgi_compat": True}, {}, "parameters.seed"),
    "dynamic": (lmi(seed=LARGEST, n=2), {"rolling_batch": "disable"}, {}, "parameters.seed"),
    "openai chat": ({**CHAT, "seed": LARGEST, "n": 2}, {}, {}, "seed"),
    "openai text": ({"prompt": "Hello", "seed": LARGEST, "n": 2}, {}, {}, "seed"),
    "responses": ({"input": "Hello", "seed": LARGEST}, {}, {}, "seed"),
    "minimal": ({**CHAT, "seed": LARGEST}, {"dialect": "minimal"}, {}, "seed"),
    "azure": ({**CHAT, "seed": LARGEST}, {"dialect": "azure"}, {}, "seed"),
    "azure, all through": (
        {**CHAT, "seed": LARGEST, "n": 2},
        {"dialect": "azure"},
        {"extra-parameters": "pass-through"},
        "seed",
    ),
    "transcription": ({"file": "UklGRg==", "seed": LARGEST}, {}, {}, "seed"),
}
"""A body with the largest seed, options, headers, and what the field is called."""


def received(name: str, more: int = 0) -> Any:
    """What becomes of a dialect's body with a seed so much larger."""
    body, options, headers, field = DIALECTS[name]
    where, _, seed = field.rpartition(".")
    holder = {**(body[where] if where else body)}
    holder[seed] += more
    body = {**body, where: holder} if where else holder
    request = Request(json.dumps(body).encode(), path="/invocations", headers=headers, request_id="7")
    return receive(request, msgspec.structs.replace(SETTINGS, **options))


def generation(name: str) -> Generation:
    call = received(name)
    assert isinstance(call, ParsedRequest), call
    # As it travels to the engine.
    encoded = msgspec.msgpack.encode(call.generations[0])
    return msgspec.msgpack.decode(encoded, type=Generation)


def test_every_dialect_is_there() -> None:
    """But for Anthropic's, whose API has no seed."""
    asked = {received(name).dialect for name in DIALECTS}
    assert asked == {known.name for known in SAMPLING} - {"anthropic"}


@each_row("name", DIALECTS)
def test_a_dialect_takes_the_largest_seed_and_none_beyond_it(name: str) -> None:
    assert generation(name).sampling.seed == LARGEST
    refused = received(name, more=1)
    assert not isinstance(refused, ParsedRequest)
    assert f"{DIALECTS[name][3]}: expected an integer from " in refused.body.decode()
    assert f"to {LARGEST}, got {LARGEST + 1}" in refused.body.decode()


ASKED = [
    (Sampling(seed=LARGEST, n=3, temperature=1.0), [LARGEST, SMALLEST, SMALLEST + 1]),
    (Sampling(seed=1 - 2**63, n=2, temperature=1.0), [SMALLEST + 1, SMALLEST + 2]),
]


@pytest.mark.engine
@pytest.mark.parametrize(("sampling", "seeds"), ASKED)
def test_what_vllm_is_given_fits_its_tensor(sampling: Sampling, seeds: list[int]) -> None:
    """vllm/v1/worker/gpu/sample/states.py: an int64 for each slot; an OverflowError there ends the core."""
    import torch

    from lmi.model.vllm.request.sampling import sampling_params

    asked = Generation(request_id="test", prompt="Hello", sampling=sampling)
    params = sampling_params(asked, {}, 5, None, {}, vocabulary=100, connected=False)
    assert [one.seed for one in params] == seeds
    slots = torch.zeros(4, dtype=torch.int64).numpy()
    for slot, one in enumerate(params):
        slots[slot] = one.seed
        torch.Generator().manual_seed(one.seed or 0)
    assert slots[: len(seeds)].tolist() == seeds
