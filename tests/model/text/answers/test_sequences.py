"""A stream that is taken apart: the same however many tokens an output brings, and whatever else is wanted of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ....kit.api.engine import (
    ForcedCalls,
    OutputSequence,
    Overdue,
    Pace,
    PlainTokens,
    Reasoning,
    SequenceGroup,
    Splitter,
    TextSplitter,
)
from ....kit.api.types import Delta, Generation, Sampling
from ....kit.rows import each_row

WORDS = ["<think>", "So", " it", " is", "\n", "so", "</think>", "The", " sun", " shines", ".", "\n", "In", " Paris", ""]
THINK, THOUGHT, END = 0, 6, len(WORDS) - 1


class Tokenizer:
    """Of which each token is a word."""

    special_ids = frozenset({END})

    def stream(self, *_: Any) -> Callable[[int | list[int]], str]:
        return lambda ids: "".join(WORDS[one] for one in ([ids] if isinstance(ids, int) else ids))


class Between:
    """A parser that reads reasoning between two tokens."""

    def __init__(self) -> None:
        self.thinks = False

    def parse_delta(self, text: str, ids: list[int], *_: Any, **__: Any) -> Any:
        if THINK in ids or THOUGHT in ids:
            assert len(ids) == 1, "a mark comes by itself"
            self.thinks = THINK in ids
            return None
        reasoning, content = (text, None) if self.thinks else (None, text)
        return SimpleNamespace(reasoning=reasoning, content=content, tool_calls=[])

    def count_reasoning_tokens(self, ids: list[int]) -> int:
        return ids.index(THOUGHT) - ids.index(THINK) - 1

    def parse(self, text: str, *_given: Any, **_named: Any) -> Any:
        thought, _, said = text.removeprefix("<think>").partition("</think>")
        return thought, said, None


def reasoning() -> Splitter:
    parser = Between()
    return Splitter(
        lambda **_: parser,
        None,
        Reasoning(None, None, [], (), str),
        one_call=False,
        show_reasoning=True,
        plain=PlainTokens({"<think>": THINK, "</think>": THOUGHT}),
    )


def forced() -> TextSplitter:
    """No call is written: all of it is text."""
    return TextSplitter(ForcedCalls(None, str), one_call=False)


def answer(splitter: Any, size: int, interval: int, gather_s: float = 0.0, **wanted: Any) -> list[Delta]:
    """What comes of the words, `size` in each of the core's outputs, of which one comes a second.

    `timely`: what gathers is told between them, when its time is over.
    """
    tokens, stop, timely = wanted.pop("tokens", False), wanted.pop("stop", ()), wanted.pop("timely", False)
    sampling = Sampling(stop=stop)
    generation = Generation(request_id="r", prompt="", sampling=sampling, stream=True, tokens=tokens)
    known: Any = Tokenizer()
    group = SequenceGroup(1, generation, sampling, [1], known, frozenset({END}), 1 << 20)
    pace = Pace(interval)
    pace.gather_s = gather_s
    sequence = OutputSequence("r", 0, group, splitter, pace)
    ids = list(range(len(WORDS)))
    outputs = [
        SimpleNamespace(new_token_ids=ids[at : at + size], new_logprobs=None, kv_transfer_params=None, stop_reason=None)
        for at in range(0, len(ids), size)
    ]
    made = []
    for now, output in enumerate(outputs[:-1], 1000):
        pace.step(now)
        made.append(sequence.grow(output))
        if timely and (until := sequence.held_until) is not None and until < pace.now + 1:
            pace.step(until)
            made.append(sequence.overdue())
    return [delta for delta in (*made, sequence.end(outputs[-1], "stop")) if delta is not None]


@each_row("wanted", [{}, {"tokens": True}, {"stop": ("nowhere",)}], ids=["text", "tokens", "stops"])
@each_row(("gather_s", "timely"), [(0.0, False), (3.0, False), (1.5, True)])
@each_row("interval", [1, 4])
@each_row("size", [1, 2, 5])
def test_reasoning_and_text_are_the_same(
    size: int, interval: int, gather_s: float, timely: bool, wanted: dict[str, Any]
) -> None:
    deltas = answer(reasoning(), size, interval, gather_s, timely=timely, **wanted)
    assert "".join(delta.reasoning for delta in deltas) == "So it is\nso"
    assert "".join(delta.text for delta in deltas) == "The sun shines.\nIn Paris"
    shown = [*range(len(WORDS))] if "tokens" in wanted else []
    assert [token.id for delta in deltas for token in delta.tokens] == shown
    (finish,) = [delta.finish for delta in deltas if delta.finish is not None]
    assert (finish.reason, finish.generated_tokens, finish.reasoning_tokens) == ("eos", len(WORDS), 5)


@each_row("wanted", [{}, {"tokens": True}, {"stop": ("nowhere",)}], ids=["text", "tokens", "stops"])
@each_row("size", [1, 3])
def test_text_in_the_place_of_a_forced_call_is_the_same(size: int, wanted: dict[str, Any]) -> None:
    deltas = answer(forced(), size, 1, **wanted)
    assert "".join(delta.text for delta in deltas) == "".join(WORDS)
    shown = [*range(len(WORDS))] if "tokens" in wanted else []
    assert [token.id for delta in deltas for token in delta.tokens] == shown
    assert [delta.finish.generated_tokens for delta in deltas if delta.finish] == [len(WORDS)]


@each_row("stop", [(), ("nowhere",)], ids=["text", "stops"])
def test_text_gathers_from_the_first_delta_on(stop: tuple[str, ...]) -> None:
    deltas = answer(None, 1, 1, 5.0, stop=stop)
    assert [delta.text for delta in deltas] == ["<think>", "So it is\nso", "</think>The sun shines.", "\nIn Paris"]


@each_row("stop", [(), ("nowhere",)], ids=["text", "stops"])
@each_row(("gather_s", "told"), [(1.2, WORDS[:7]), (1.5, ["<think>", "So it", " is\n", "so</think>"])])
def test_text_that_gathers_comes_with_the_nearer_step(stop: tuple[str, ...], gather_s: float, told: list[str]) -> None:
    deltas = answer(None, 1, 1, gather_s, stop=stop)
    assert [delta.text for delta in deltas][: len(told)] == told


@each_row("stop", [(), ("nowhere",)], ids=["text", "stops"])
def test_what_gathers_is_told_when_its_time_is_over(stop: tuple[str, ...]) -> None:
    deltas = answer(None, 1, 1, 1.5, stop=stop, timely=True)
    assert [delta.text for delta in deltas][:5] == ["<think>", "So", " it is", "\n", "so</think>"]
    assert "".join(delta.text for delta in deltas) == "".join(WORDS)


def test_steps_that_take_long_are_told() -> None:
    async def run() -> None:
        woken: list[int] = []
        first = asyncio.Event()

        def wake() -> None:
            woken.append(1)
            first.set()

        overdue = Overdue(asyncio.get_running_loop(), wake)
        overdue.wait(0.01)
        assert not overdue.take()
        # Another step has come.
        overdue.wait(0.0)
        await first.wait()
        assert overdue.take()
        assert not overdue.take()
        await asyncio.sleep(0.03)
        assert woken == [1]

    asyncio.run(asyncio.wait_for(run(), 30))
