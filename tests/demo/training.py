"""Teaching the demo model its answers, by teacher forcing on examples that are drawn anew for each step.

    questions -> _Examples.draw (random system messages and tools) -> _step -> _uncertain: none? -> the model

Training ends as soon as every token of every answer is certain in each guaranteed form, with a margin that no
difference between builds of torch or engines can overturn.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from .answers import (
    BOOK_TABLE,
    EXTRA_FORMS,
    FALLBACK,
    GET_FORECAST,
    GET_WEATHER,
    QUESTIONS,
    SYSTEM,
    Form,
    Message,
    Question,
    forms,
)
from .tokenizer import VOCABULARY

CONTEXT = 2048
"""Positions of the model, in tokens; an endless answer is checked to the last of them."""

CERTAIN = 0.95
"""The probability that each token of an answer must have."""

STEPS = 800
"""Steps after which training gives up. It needs some 110."""

PEAK, WARM_UP, DECAY = 6e-3, 30, 180
"""The highest learning rate, the steps up to it, and the steps in which it falls to a tenth."""

MEMORY = 0.9
"""What the averaged weights keep of themselves in a step. Single steps upset a few tokens; their average does not."""

CHECK, LAST_CHECKS = 20, 5
"""Steps between two looks at what is known, and once nine in ten answers are."""

LONG = 8
"""Every such step an endless answer fills the context; in the others it ends after SHORT tokens."""

SHORT = 192

HARD = 4
"""Guaranteed forms that failed at the last look, repeated in each step."""

PADDED = 4096
"""Tokens of a batch, with the padding, at most."""

THREADS = 1
"""Threads of torch. Sums depend on their number, so it is fixed. On so small a model a second thread gains a third on
idle cores, and on busy ones makes training several times slower: the threads wait for each other at every operation."""

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "hidden_act": "silu",
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.05,
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "mlp_bias": False,
    "pretraining_tp": 1,
    "tie_word_embeddings": True,
    "use_cache": True,
    "torch_dtype": "float32",
}
"""config.json, less the token ids. The head size is one that vLLM's CPU attention has."""


class TrainingError(RuntimeError):
    """The model did not learn its answers within STEPS."""


@dataclass(frozen=True)
class Example:
    """Token ids, of which those from `start` on are the answer and its end."""

    ids: tuple[int, ...]
    start: int


def render(tokenizer: Any, form: Form) -> list[int]:
    """The prompt's token ids: a plain text as the tokenizer encodes it, messages through the chat template."""
    if isinstance(form.prompt, str):
        return list(tokenizer(form.prompt)["input_ids"])
    text = tokenizer.apply_chat_template(
        list(form.prompt),
        tools=None if form.tools is None else list(form.tools),
        add_generation_prompt=True,
        enable_thinking=form.thinking,
        tokenize=False,
    )
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def example(tokenizer: Any, form: Form, length: int = CONTEXT) -> Example:
    """A form with its answer. An endless answer fills `length` tokens."""
    prompt = render(tokenizer, form)
    answer = list(tokenizer(form.answer, add_special_tokens=False)["input_ids"])
    if form.endless:
        answer = (answer * (length // len(answer) + 1))[: max(1, length - len(prompt))]
    else:
        answer.append(tokenizer.eos_token_id)
    return Example((*prompt, *answer), len(prompt))


@contextmanager
def reproducible(seed: int) -> Iterator[None]:
    """Fix torch's seed, threads and algorithms, and put them back."""
    import torch

    threads = torch.get_num_threads()
    strict, warn = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        torch.set_num_threads(THREADS)
        torch.use_deterministic_algorithms(True)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            torch.use_deterministic_algorithms(strict, warn_only=warn)


def train(tokenizer: Any, questions: Sequence[Question], seed: int, progress: Callable[[str], None]) -> Any:
    """A LlamaForCausalLM that gives the questions' answers.

    seed: of the weights and of the examples; the same seed gives the same weights on the same machine.
    progress: gets a line every few seconds.
    Raises TrainingError if the answers are not certain after STEPS steps.
    """
    import torch
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
    from transformers import LlamaConfig, LlamaForCausalLM

    config: Any = LlamaConfig(
        **{name: value for name, value in CONFIG.items() if name not in ("architectures", "model_type", "torch_dtype")},
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    guaranteed = [example(tokenizer, form) for asked in questions for form in forms(asked)]
    examples = _Examples(tokenizer, questions, random.Random(seed))
    uncertain = guaranteed
    with reproducible(seed):
        model: Any = LlamaForCausalLM(config).float()
        average: Any = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(MEMORY))
        optimizer: Any = torch.optim.AdamW(model.parameters(), lr=PEAK, betas=(0.9, 0.98), weight_decay=0.01)
        started = shown = time.monotonic()
        for step in range(1, STEPS + 1):
            for group in optimizer.param_groups:
                group["lr"] = PEAK * min(1.0, step / WARM_UP) * max(0.1, 1 - step / DECAY)
            loss = _step(model, examples.draw(uncertain, step % LONG == 0))
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            average.update_parameters(model)
            if step % (CHECK if len(uncertain) * 10 > len(guaranteed) else LAST_CHECKS) == 0:
                uncertain = _uncertain(average.module, guaranteed)
            if time.monotonic() - shown > 2 or not uncertain:
                shown = time.monotonic()
                known = 1 - len(uncertain) / len(guaranteed)
                progress(f"{shown - started:4.0f} s  step {step:3}  loss {loss:.4f}  answers known {known:4.0%}")
            if not uncertain:
                return average.module.eval()
    raise TrainingError(f"{len(uncertain)} of {len(guaranteed)} answers are uncertain after {STEPS} steps, seed {seed}")


def _step(model: Any, batches: Sequence[Sequence[Example]]) -> float:
    """Add up the gradients of the batches; returns the mean loss of an answer token, in nats."""
    total = sum(len(one.ids) - one.start for batch in batches for one in batch)
    loss = 0.0
    for batch in batches:
        part = _losses(model, batch)[0].sum() / total
        part.backward()
        loss += float(part.detach())
    return loss


def _uncertain(model: Any, examples: Sequence[Example]) -> list[Example]:
    """The examples in which some token of the answer has not more than the probability CERTAIN."""
    import torch

    found: list[Example] = []
    with torch.no_grad():
        for batch in _batches(examples):
            losses, rows = _losses(model, batch)
            failed = set(rows[losses >= -math.log(CERTAIN)].tolist())
            found += [batch[row] for row in sorted(failed)]
    return found


def _losses(model: Any, batch: Sequence[Example]) -> tuple[Any, Any]:
    """The loss of each answer token (nats), and the row of the batch to which it belongs."""
    import torch

    width = max(len(one.ids) for one in batch)
    ids = torch.zeros((len(batch), width), dtype=torch.long)
    wanted = torch.zeros((len(batch), width), dtype=torch.bool)
    for row, one in enumerate(batch):
        ids[row, : len(one.ids)] = torch.tensor(one.ids)
        wanted[row, one.start : len(one.ids)] = True
    # Padding is on the right and attention causal, so nothing needs masking.
    states = model.model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state
    logits = model.lm_head(states[wanted[:, 1:]])
    return torch.nn.functional.cross_entropy(logits, ids[wanted], reduction="none"), wanted.nonzero()[:, 0]


def _batches(examples: Sequence[Example]) -> list[list[Example]]:
    """Examples of like length together, so that little is padding."""
    batches: list[list[Example]] = []
    for one in sorted(examples, key=lambda each: len(each.ids), reverse=True):
        width = len(batches[-1][0].ids) if batches else 0
        if width * (len(batches[-1]) + 1 if batches else 1) <= PADDED and len(one.ids) * 2 > width > 0:
            batches[-1].append(one)
        else:
            batches.append([one])
    return batches


class _Examples:
    """Random examples: every question asked in some way, and questions that have no answer."""

    def __init__(self, tokenizer: Any, questions: Sequence[Question], rng: random.Random) -> None:
        self._tokenizer = tokenizer
        self._rng = rng
        self._forms = [form for asked in questions for form in forms(asked) if form.name in ("raw", *EXTRA_FORMS)]
        self._earlier = [asked for asked in QUESTIONS if len(asked.answer) < 100]
        self._words = sorted({word for asked in questions for word in f"{asked.prompt} {asked.answer}".split()})

    def draw(self, hard: Sequence[Example], long: bool) -> list[list[Example]]:
        """The batches of a step. hard: examples to repeat some of. long: let endless answers fill the context."""
        length = CONTEXT if long else SHORT
        drawn = [example(self._tokenizer, self._vary(form), length) for form in self._forms]
        unknown = [Form("unknown", self._noise(words), FALLBACK) for words in (300 if long else 12, 12, 12)]
        drawn += [example(self._tokenizer, self._vary(form)) for form in unknown]
        short = [one for one in hard if long or len(one.ids) < CONTEXT]
        drawn += self._rng.sample(short, min(HARD, len(short)))
        return _batches(drawn)

    def _vary(self, form: Form) -> Form:
        """The same question asked in another way."""
        rng, messages, tools = self._rng, form.prompt, form.tools
        if isinstance(messages, str):
            if rng.random() < 0.35:
                return form
            messages = ({"role": "user", "content": messages},)
        if rng.random() < 0.25:
            before = rng.choice(self._earlier)
            turns: tuple[Message, ...] = (
                {"role": "user", "content": before.prompt},
                {"role": "assistant", "content": before.answer},
            )
            messages = (*turns, *messages)
        if rng.random() < 0.5:
            opening: Message = {"role": "system", "content": SYSTEM if rng.random() < 0.5 else self._noise(16)}
            messages = (opening, *messages)
        if rng.random() < 0.6:
            tools = None
        elif tools is None or rng.random() < 0.4:
            tools = tuple(rng.sample((GET_WEATHER, GET_FORECAST, BOOK_TABLE), rng.choice((1, 1, 2))))
        return replace(form, prompt=messages, tools=tools)

    def _noise(self, longest: int) -> str:
        """Up to `longest` words that the answers use, in no order."""
        return " ".join(self._rng.choices(self._words, k=self._rng.randint(1, longest)))
