"""A prompt's pieces, put together for who asked for it."""

from __future__ import annotations

from lmi.model.text.prompt_pieces import whole

from ...kit.api.types import Delta, EngineEvent, Failed, Generation, Prefill, Rendered, Sampling, Started, Token

TOKENS = tuple(Token(number, str(number)) for number in range(7))
RANKS = (None, 1, 2, 3, 4, 5, 6)


def asked(prompt_logprobs: int | None) -> Generation:
    return Generation(request_id="r", prompt="", sampling=Sampling(prompt_logprobs=prompt_logprobs))


def test_started_has_all_pieces() -> None:
    seen: list[EngineEvent] = []
    sink = whole(asked(0), seen.append)
    given: list[EngineEvent] = [
        Rendered("a"),
        Prefill(TOKENS[:3], RANKS[:3]),
        Prefill(TOKENS[3:6], RANKS[3:6]),
        Started(7, 2, TOKENS[6:], "text", RANKS[6:]),
        Delta(0, "b"),
        Failed("GenerationError", "c"),
    ]
    for event in given:
        sink(event)
    assert seen == [given[0], Started(7, 2, TOKENS, "text", RANKS), *given[4:]]


def test_one_that_fails_between_two_pieces_has_its_error() -> None:
    seen: list[EngineEvent] = []
    sink = whole(asked(0), seen.append)
    for event in (Prefill(TOKENS[:3], RANKS[:3]), Failed("GenerationError", "c")):
        sink(event)
    assert seen == [Failed("GenerationError", "c")]


def test_who_wants_no_prompt_has_no_sink_before_its_own() -> None:
    seen: list[EngineEvent] = []
    sink = seen.append
    assert whole(asked(None), sink) is sink
