"""Images that vLLM's core has: they are not sent again, nothing else keeps them, no order of requests changes that."""

from __future__ import annotations

import gc
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from ....kit.api.options import make_settings
from ....kit.api.types import Beams, Conversation, Delta, Event, Failed, Generation, MediaFile, Sampling
from ....kit.engines.backends import NUMBERS
from ....kit.engines.start import in_process
from ....kit.hosts.host import model_directory
from ....kit.models import vision as vision_model
from ....kit.models.pictures import noise

pytestmark = pytest.mark.engine

EDGE = 336
"""Of a picture as the model gets it: 2.3 MB of numbers."""
PART = {"type": "image_url", "image_url": {"url": "taken from the images"}}


@pytest.fixture(scope="module")
def folder(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    model = vision_model.build(folder / "built", demo_model)
    for file in model.glob("*processor_config.json"):
        file.write_text(file.read_text().replace(f'"longest_edge": {vision_model.EDGE}', f'"longest_edge": {EDGE}'))
    return model_directory(model, folder / "model", {})


@pytest.fixture(scope="module")
def backend(folder: Path) -> Iterator[Any]:
    engine = in_process(make_settings(folder, limit_mm_per_prompt=json.dumps({"image": 3})))
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def small(folder: Path) -> Iterator[Any]:
    """One whose core keeps three pictures, and caches no prompts: what it needs of a picture it needs each time."""
    options = {"mm_processor_cache_gb": "0.007", "enable_prefix_caching": "false"}
    engine = in_process(make_settings(folder, limit_mm_per_prompt=json.dumps({"image": 3}), **options))
    yield engine
    engine.close()


def asked(pictures: int = 1, **sampling: Any) -> Generation:
    parts = [*[PART] * pictures, {"type": "text", "text": "What is it?"}]
    return Generation(
        request_id="r",
        prompt=Conversation(messages=({"role": "user", "content": parts},)),
        sampling=Sampling(**{"temperature": 0.0, "max_tokens": 4, **sampling}),
    )


def prepare(backend: Any, *seeds: int, **sampling: Any) -> Any:
    pictures = [MediaFile(noise(600, 600, seed), f"image {seed}") for seed in seeds]
    return backend.prepare(next(NUMBERS), asked(len(seeds), **sampling), pictures)


def ended(backend: Any) -> dict[int, list[Event]]:
    events: dict[int, list[Event]] = {}
    while backend.busy:
        for number, event in backend.step():
            events.setdefault(number, []).append(event)
    return events


def answers(backend: Any, *prepared: Any) -> list[str]:
    """The texts of requests that are sent one after the other."""
    for one in prepared:
        backend.add(one)
    events = ended(backend)
    failed = [event for one in prepared for event in events[one.number] if isinstance(event, Failed)]
    assert not failed, failed
    return ["".join(e.text for e in events[one.number] if isinstance(e, Delta)) for one in prepared]


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each request takes to the core."""
    from vllm.v1.engine.core_client import AsyncMPClient
    from vllm.v1.serial_utils import MsgpackEncoder

    found: list[int] = []
    encoder: Any = MsgpackEncoder()
    client: Any = AsyncMPClient
    send = client.add_request_async

    async def watched(self: Any, request: Any) -> None:
        found.append(sum(memoryview(part).nbytes for part in encoder.encode(request)))
        await send(self, request)

    monkeypatch.setattr(client, "add_request_async", watched)
    return found


@pytest.mark.parametrize("n", [1, 3])
def test_an_image_crosses_once(backend: Any, sizes: list[int], n: int) -> None:
    seed = 1000 + n
    first = answers(backend, prepare(backend, seed, n=n))
    again = answers(backend, prepare(backend, seed, n=n))
    both = answers(backend, prepare(backend, seed, seed + 10, n=n))
    assert first == again != [""]
    assert both != first
    assert sizes[0] > 1 << 20
    assert all(size <= 10_000 for size in sizes[1 : 2 * n])
    assert 1 << 20 < sizes[2 * n] < sizes[0] + 10_000
    assert all(size <= 10_000 for size in sizes[2 * n + 1 :])
    assert len(sizes) == 3 * n


def test_a_search_sends_its_image_once(backend: Any, sizes: list[int]) -> None:
    answers(backend, prepare(backend, 1100, beams=Beams(width=2)))
    assert len(sizes) > 4
    assert sizes[0] > 1 << 20
    assert all(size <= 10_000 for size in sizes[1:])


def test_images_do_not_pile_up_in_the_engines_process(backend: Any) -> None:
    """80 different ones of 2.3 MB, as the model gets them; the core has a process of its own."""
    process = psutil.Process()
    for seed in range(20):
        answers(backend, prepare(backend, seed, max_tokens=1))
    gc.collect()
    before = process.memory_info().rss
    for seed in range(20, 100):
        answers(backend, prepare(backend, seed, max_tokens=1))
    gc.collect()
    assert process.memory_info().rss - before <= 64 << 20


def test_one_that_is_never_sent_changes_nothing(backend: Any, sizes: list[int]) -> None:
    """It is refused, or its client goes away, after its images were made."""
    prepare(backend, 1200)
    later = prepare(backend, 1200)
    answers(backend, later)
    assert [size > 1 << 20 for size in sizes] == [True]


def test_what_could_not_be_sent_is_not_taken_for_sent(backend: Any) -> None:
    (expected,) = answers(backend, prepare(backend, 1300))
    broken = prepare(backend, 1301)
    # Its client has no form for it on the wire.
    broken.requests[0].cache_salt = object()
    backend.add(broken)
    assert isinstance(ended(backend)[broken.number][-1], Failed)
    # Twice: what the core has now, too.
    for _ in range(2):
        assert len(answers(backend, prepare(backend, 1301))[0]) > 0
        assert answers(backend, prepare(backend, 1300)) == [expected]


def test_what_the_core_has_lost_is_sent_again(backend: Any) -> None:
    """One request fails for it, as the core has nothing to look at; the next is well."""
    (expected,) = answers(backend, prepare(backend, 1400))
    backend.ask_core("reset_mm_cache")
    # The prompt's cache and the tower's have it still: another text before it.
    lost = prepare(backend, 1400)
    lost.requests[0].cache_salt = "another"
    backend.add(lost)
    failed = ended(backend)[lost.number][-1]
    assert isinstance(failed, Failed)
    assert (failed.kind, failed.message) == ("GenerationError", "the engine failed while generating")
    assert answers(backend, prepare(backend, 1400)) == [expected]


def test_no_order_parts_the_core_from_what_is_known_of_it(small: Any, sizes: list[int]) -> None:
    """Requests that overtake each other between their rendering and their sending, and some that are given up there,
    with more pictures than the core keeps.
    """
    choices = [(2001,), (2002,), (2003,), (2004,), (2005,), (2001, 2004), (2005, 2002), (2003, 2003)]
    alone = {seeds: answers(small, prepare(small, *seeds))[0] for seeds in choices}
    assert len({*alone.values()}) > 4
    draw = random.Random(7)
    for _ in range(12):
        seeds = [draw.choice(choices) for _ in range(5)]
        prepared = [(one, prepare(small, *one)) for one in seeds]
        draw.shuffle(prepared)
        del prepared[draw.randrange(5)]
        given_up = prepare(small, *draw.choice(choices))
        small.add(given_up)
        small.abort([given_up.number])
        assert answers(small, *(request for _, request in prepared)) == [alone[one] for one, _ in prepared]
    small_ones = [size for size in sizes if size <= 10_000]
    assert len(small_ones) > 5, "pictures that the core keeps are not sent"
