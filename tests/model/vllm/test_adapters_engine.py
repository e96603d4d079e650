"""Twelve adapters on an engine that keeps eight of them: what may be asked of one, and what may become of its files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ...demo.model import question
from ...kit.adapters import write_adapter
from ...kit.engines.asked import Asked
from ...kit.engines.backends import PICK
from ...kit.engines.beams import Reference
from ...kit.models.adapted import BASE, PROMPTS, Adapted, adapted, adapted_directory
from ...kit.models.merged import Greedy, merge

pytestmark = pytest.mark.engine

MOST = 8
SLOTS, KEPT, MANY = 4, 8, 12
NAMES = ("all", "stable")
"""Those whose answers are known; there are others beside them."""
SLIGHT = "slight"
"""One that changes next to nothing, so that the model still knows its answers."""


@pytest.fixture(scope="module")
def adapters(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Adapted:
    return adapted(demo_model, tmp_path_factory.mktemp("adapters"), NAMES, most=MOST, count=2)


def config_of(model_dir: Path) -> Any:
    return json.loads((model_dir / "config.json").read_text())


@pytest.fixture(scope="module")
def served(demo_model: Path, adapters: Adapted, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """With `many0` to `many8` too, of ranks from 1 to 16."""
    properties = {
        "option.max_loras": str(SLOTS),
        "option.max_cpu_loras": str(KEPT),
        "option.tool_call_parser": "hermes",
        "option.structured_outputs_config": '{"disable_any_whitespace": true}',
    }
    directory = adapted_directory(demo_model, tmp_path_factory.mktemp("served") / "model", properties)
    folder = directory / "adapters"
    for name, source in adapters.folders.items():
        shutil.copytree(source, folder / name)
    config = config_of(demo_model)
    write_adapter(folder / SLIGHT, config, scale=0.01)
    for number in range(MANY - len(NAMES) - 1):
        write_adapter(folder / f"many{number}", config, rank=1 + 5 * number % 16, seed=100 + number)
    with Asked(directory) as asked:
        yield asked


def folders(served: Asked) -> dict[str, Path]:
    assert served.service.adapters is not None
    return {entry.adapter.name: Path(entry.adapter.path) for entry in served.service.adapters.registered()}


def register(served: Asked, name: str, folder: Path) -> None:
    registry = served.service.adapters
    assert registry is not None
    registry.load(registry.enter(name, str(folder)))


def unregister(served: Asked, name: str) -> None:
    assert served.service.adapters is not None
    served.service.adapters.unregister(name)


def push_out(served: Asked) -> None:
    """Lets the engine forget what it has not been asked for just now."""
    assert all(answer.status == 200 for answer in served.posts([served.body(f"many{n}", "x", 1) for n in range(KEPT)]))


def test_twelve_with_eight_in_memory(served: Asked, demo_model: Path, tmp_path: Path) -> None:
    """Each alone, then all at once, each three times."""
    there = folders(served)
    assert len(there) == MANY
    known = {
        name: Greedy(merge(demo_model, folder, tmp_path / name)).clear(PROMPTS, MOST, 1)[0]
        for name, folder in there.items()
    }
    for name, expected in known.items():
        assert served.named(name, expected.prompt, MOST).text == expected.text, name
    bodies = [served.body(name, expected.prompt, MOST) for name, expected in known.items()] * 3
    for answer, (name, expected) in zip(served.posts(bodies), [*known.items()] * 3, strict=True):
        assert answer.text == expected.text, name


def test_others_are_loaded_while_all_slots_are_in_use(served: Asked, adapters: Adapted) -> None:
    """What is loaded takes a slot at once: whoever had it gets it back, or another, and generates as if alone."""
    bodies = [served.body(f"many{n}", "Tell me", 200, ignore_eos_token=True) for n in range(SLOTS)]
    alone = [served.post(body).text for body in bodies]
    opened = [served.open(body) for body in bodies]
    beside = 0
    while beside < 8 and not any(one.finished for one in opened):
        register(served, f"new{beside}", adapters.folders["all"])
        unregister(served, f"new{beside}")
        beside += 1
    # One of them ran to its end beside all of these answers, however slow the machine is.
    assert beside > 1
    assert [served.wait(one).text for one in opened] == alone


def prompt_logprobs(directory: Path, prompt: str) -> list[float]:
    """Of each token of a prompt but the first, by transformers."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    ids = torch.tensor([AutoTokenizer.from_pretrained(directory)(prompt)["input_ids"]])
    with torch.no_grad():
        probabilities = model(ids).logits.log_softmax(-1)[0]
    return [float(probabilities[place, token]) for place, token in enumerate(ids[0][1:])]


def test_log_probabilities_of_prompts_beside_other_requests(
    served: Asked, adapters: Adapted, demo_model: Path, tmp_path: Path
) -> None:
    """Those of an adapter's own model, of the model itself too, in the step in which others are computed."""
    directories = {BASE: demo_model} | {
        name: merge(demo_model, adapters.folders[name], tmp_path / name) for name in NAMES
    }
    beside = served.open(served.body("many0", "Tell me", 200, ignore_eos_token=True))
    prompts = ("Who wrote Hamlet?", "Tell me about it")
    asked = [(name, prompt) for prompt in prompts for name in directories]
    bodies = [served.body(name, prompt, 2, details=True, decoder_input_details=True) for name, prompt in asked]
    for (name, prompt), answer in zip(asked, served.posts(bodies), strict=True):
        assert answer.status == 200, answer.body
        told = [token["log_prob"] for token in answer.json["details"]["prefill"][1:]]
        assert told == pytest.approx(prompt_logprobs(directories[name], prompt), abs=1e-3), name
    assert served.wait(beside).status == 200


def test_beams(served: Asked, adapters: Adapted, demo_model: Path, tmp_path: Path) -> None:
    """Those of transformers' own search on the merged model; beside those of the model itself."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    directories = {BASE: demo_model, "all": merge(demo_model, adapters.folders["all"], tmp_path / "all")}
    bodies = {name: served.body(name, "Tell me", MOST, num_beams=3, details=True) for name in directories}
    opened = {name: served.open(body) for name, body in bodies.items()}
    for name, directory in directories.items():
        model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
        reference = Reference(model.eval(), AutoTokenizer.from_pretrained(directory))
        best, _ = reference.beams("Tell me", num_beams=3, max_new_tokens=MOST)[0]
        tokens = served.wait(opened[name]).json["details"]["tokens"]
        assert tuple(token["id"] for token in tokens) == best, name


def test_several_sequences(served: Asked, adapters: Adapted) -> None:
    """Greedy ones are all the same; drawn ones are the adapter's own, and the same again with the same seed."""
    known = adapters.one("all")
    asked = {"prompt": known.prompt, "max_tokens": MOST, "n": 3}
    greedy = served.post({**asked, "temperature": 0, "model": "all"})
    assert [choice["text"] for choice in greedy.json["choices"]] == [known.text] * 3
    drawn = {
        name: [choice["text"] for choice in served.post({**asked, "seed": 3, "model": name}).json["choices"]]
        for name in ("all", "stable", "none")
    }
    assert len({tuple(texts) for texts in drawn.values()}) == len(drawn)
    assert len(set(drawn["all"])) == 3
    again = served.post({**asked, "seed": 3, "model": "all"}).json["choices"]
    assert [choice["text"] for choice in again] == drawn["all"]


def test_a_list_of_prompts(served: Asked, adapters: Adapted) -> None:
    """Of one adapter, and of one for each."""
    known = adapters.answers["all"]
    asked = {"prompt": [one.prompt for one in known], "max_tokens": MOST, "temperature": 0}
    told = served.post({**asked, "adapters": "all"}).json["choices"]
    assert [choice["text"] for choice in told] == [one.text for one in known]
    mixed = [adapters.one(name) for name in ("stable", BASE, "all")]
    asked["prompt"] = [one.prompt for one in mixed]
    told = served.post({**asked, "adapters": ["stable", BASE, "all"]}).json["choices"]
    assert [choice["text"] for choice in told] == [one.text for one in mixed]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_chat_with_tools(served: Asked, stream: bool) -> None:
    """The answer is read as the model's own is, and where a call is forced every adapter makes one."""
    asked = question("tool_call")
    messages = [{"role": "user", "content": asked.prompt}]
    body = {"messages": messages, "tools": asked.tools, "temperature": 0, "stream": stream}

    def calls(**more: Any) -> list[tuple[str, Any]]:
        answer = served.post({**body, **more}, path="/v1/chat/completions")
        assert answer.status == 200, answer.body
        found: dict[int, list[str]] = {}
        for line in answer.lines:
            message = line["choices"][0]["delta" if stream else "message"] if line["choices"] else {}
            for at, call in enumerate(message.get("tool_calls") or []):
                parts = found.setdefault(call.get("index", at), ["", ""])
                parts[0] += call["function"].get("name") or ""
                parts[1] += call["function"].get("arguments") or ""
        return [(name, json.loads(arguments)) for name, arguments in found.values()]

    assert calls(model=SLIGHT) == calls() != []
    choice = {"type": "function", "function": {"name": "pick"}}
    ((name, arguments),) = calls(model="all", tools=[PICK], tool_choice=choice)
    assert (name, arguments["city"] in ("Paris", "Rome")) == ("pick", True)


@pytest.mark.parametrize("fault", ["removed", "changed", "cut"])
def test_files_that_do_not_stay_as_they_were(
    served: Asked, adapters: Adapted, demo_model: Path, tmp_path: Path, fault: str
) -> None:
    """As long as it is in memory nothing is read; then its requests are told, and nobody else notices."""
    known = adapters.one("all")
    folder = shutil.copytree(adapters.folders["all"], tmp_path / "mine")
    register(served, fault, folder)
    assert served.named(fault, known.prompt, MOST).text == known.text
    if fault == "removed":
        shutil.rmtree(folder)
    elif fault == "changed":
        write_adapter(folder, config_of(demo_model), seed=77)
    else:
        weights = folder / "adapter_model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-100])
    assert served.named(fault, known.prompt, MOST).text == known.text
    push_out(served)
    process = served.engine.process_id
    several = served.posts([served.body(fault, known.prompt), *[served.body("stable", "x", 2)] * 4] * 2)
    assert [answer.status for answer in several] == [424, 200, 200, 200, 200] * 2
    cause = "is not there any more" if fault == "removed" else "have changed since it was registered"
    for answer in (several[0], several[5]):
        assert answer.error.startswith(f"adapter {fault} could not be loaded: ")
        assert cause in answer.error
    assert served.engine.process_id == process
    unregister(served, fault)
    if fault == "changed":
        register(served, fault, folder)
        assert served.named(fault, known.prompt, MOST).text != known.text
        unregister(served, fault)
    assert served.named("all", known.prompt, MOST).text == known.text
