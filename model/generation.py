"""What to generate: the engine-neutral form that every dialect's request is turned into.

The values travel from the host's process to the engine's as msgpack, hence msgspec's structs. They are validated
once, by the dialect that made them: an engine only checks what it alone can know (the context's length, what it
supports). What it finds wrong it names by its path in a Generation: `prompt`, `sampling.max_tokens`,
`prompt.tools[1].parameters`, `prompt.messages[0].content[2].url`. What clients call that, dialects know
(formatters/client_fields.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from .conversation import Message
from .former_fields import (
    FormerBeams,
    FormerConversation,
    FormerGeneration,
    FormerScoring,
    FormerStructuredOutput,
)
from .former_names import former_names

__all__ = [
    "Beams",
    "Conversation",
    "Embedding",
    "Generation",
    "Prompt",
    "Sampling",
    "Scoring",
    "StructuredOutput",
    "Transcription",
    "nth_seed",
]


class Conversation(FormerConversation, msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Messages that the model's chat template turns into a prompt.

    The answer to a conversation is split: reasoning and tool calls are taken out of the text by the parsers that the
    options name, and come as `Delta.reasoning` and `Delta.calls`.
    """

    messages: tuple[Message | dict[str, Any], ...]
    """A message may be a dict in OpenAI's form, too (role, content, tool_calls, tool_call_id, name ...), which the
    template gets as it is."""
    tools: tuple[dict[str, Any], ...] = ()
    """In OpenAI's form: {"type": "function", "function": {"name", "description", "parameters", "strict"}}.

    With "defer_loading": true beside "function" it may be called, and the template does not get it: the messages
    describe it.

    strict: whether the arguments are to fit the schema by guided decoding. Where it is not said, those of a forced call
    are. Without a forced call vLLM sees to it for the parsers that know their form (structural tags).
    """
    tool_choice: str | None = None
    """none, auto, required, or None where there are no tools; with `function` a name is forced."""
    function: str | None = None
    """The name of the one function that must be called."""
    parallel_tool_calls: bool = True
    template_arguments: dict[str, Any] = {}
    """Further variables of the template (`chat_template_kwargs`)."""
    processor_arguments: dict[str, Any] = {}
    """Of the model's processor of media, beside the endpoint's own (`mm_processor_kwargs`)."""
    reader_arguments: dict[str, dict[str, Any]] = {}
    """Of what reads images, audio and videos, by their kinds (`media_io_kwargs`)."""
    chat_template: str | None = None
    """The template, where it is not the model's."""
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    """Go on with the last message instead of beginning a new one."""
    add_special_tokens: bool = False
    """Whether the tokenizer adds its special tokens to what the template made."""
    include_reasoning: bool = True

    @property
    def forced(self) -> bool:
        """Whether a tool must be called."""
        return bool(self.tools) and (self.function is not None or self.tool_choice == "required")


Prompt = str | tuple[int, ...] | Conversation
"""Text, which the tokenizer turns into tokens; token ids, taken as they are; or messages."""


class StructuredOutput(FormerStructuredOutput, msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the text must conform to: exactly one of the fields is set."""

    json_schema: str | None = None
    """A JSON schema, as JSON text."""
    json_object: bool = False
    """Any JSON object."""
    regex: str | None = None
    choice: tuple[str, ...] = ()
    grammar: str | None = None
    """In EBNF, as xgrammar reads it, or in Lark's form."""
    structural_tag: str | None = None
    """Where which of these hold, as JSON text in xgrammar's form."""


class Beams(FormerBeams, msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Beam search: of all continuations the likeliest are followed, instead of drawing one."""

    width: int
    """How many are followed at once; at least 2."""
    length_penalty: float = 1.0
    """A sequence's rank is the sum of its log-probabilities divided by its length to this power: above 0 is in favour
    of longer ones."""
    early_stopping: bool | Literal["never"] = False
    """When to end, once `width` sequences are complete. True: at once. False: when the likeliest that goes on is no
    better by now than the worst of them. "never": when it cannot become better."""


def nth_seed(seed: int, index: int) -> int:
    """What sequence `index` of a generation draws with: `seed` + `index`, as 64 bits hold it.

    Beyond the largest integer the smallest follows: engines keep seeds in tensors (vLLM's model runner V2 in an int64),
    and what does not fit would end their core for everyone.
    """
    return (seed + index + 2**63) % 2**64 - 2**63


FITTING: Final = -1
"""Of `Sampling.truncate`: what the context has room for beside max_tokens."""


class Sampling(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How tokens are chosen and when to stop. None means the default of the model's generation_config, or neutral."""

    temperature: float | None = None
    """0 is greedy."""
    top_p: float | None = None
    """In (0, 1]."""
    top_k: int | None = None
    """0 is all tokens."""
    min_p: float | None = None
    typical_p: float | None = None
    """In (0, 1]; None is 1, neutral."""
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    """Of 64 bits; None is random; sequence i of n uses `nth_seed(seed, i)`."""
    n: int = 1
    """How many sequences."""
    best_of: int | None = None
    """How many to generate for the n likeliest of them (model/search/best_of.py); above n, and not streamed. None:
    n."""
    beams: Beams | None = None
    """Beam search, whose n best sequences come, best first: not streamed, greedy, and without penalties, logit_bias,
    bad_words, allowed_token_ids, guide, thinking_token_budget, extra_args and best_of."""
    max_tokens: int | None = None
    """Tokens to generate at most, per sequence; None is the rest of the context."""
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    """Strings that end the sequence; none of them empty."""
    stop_token_ids: tuple[int, ...] = ()
    include_stop: bool = False
    """Whether the stop string (or stop token) stays in the text."""
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    logprobs: int | None = None
    """None: no log-probabilities; 0: of the chosen token; k: of the k most likely as well."""
    prompt_logprobs: int | None = None
    """The same for the prompt's tokens (they are returned by `Started.prefill`)."""
    logit_bias: dict[int, float] | None = None
    bad_words: tuple[str, ...] = ()
    allowed_token_ids: tuple[int, ...] | None = None
    """The only tokens that may be generated, at least one; None: all."""
    truncate: int | None = None
    """Keep only so many tokens of the prompt; FITTING: as many as fit."""
    cut: Literal["left", "right"] = "left"
    """The end at which `truncate` cuts."""
    structured_output: StructuredOutput | None = None
    thinking_token_budget: int | None = None
    """After so many tokens of reasoning the engine ends it; None: when the model does."""
    extra_args: dict[str, str | int | float | list[str | int | float]] = {}
    """For logits processors of the endpoint's owner, by their names."""


class Embedding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the vector of a prompt is to be like."""

    normalize: bool | None = None
    """Whether its length is 1; None: as the model's pooler is configured, which is yes unless an option says no."""
    dimensions: int | None = None
    """How many of its numbers are wanted, of models that are trained for that (Matryoshka); None: all."""
    truncate: int | bool = False
    """Whether a prompt that is too long for the model is cut to fit; a number: whether it is cut to so many tokens."""
    cut: Literal["left", "right"] = "right"
    """The end at which it is cut."""


class Scoring(FormerScoring, msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a prompt is to be scored: by itself, or together with a second text."""

    document: str | None = None
    """The second text. The prompt, a query, is text then."""
    classes: bool = False
    """Whether what is asked is how probable each of the model's classes is, with their names (Delta.labels). Else it is
    one score, of models that have one class."""
    activation: bool | None = None
    """Whether the model's own activation is applied (sigmoid, softmax); None: as its pooler is configured, which is yes
    unless an option says no. Without it scores are logits."""
    truncate: int | bool = False
    """Whether what is too long for the model is cut to fit; a number: whether it is cut to so many tokens. Of a pair
    the longer text is cut first."""
    cut: Literal["left", "right"] = "right"
    """The end at which texts are cut."""
    query_tokens: int | None = None
    """How many tokens of the query are used at most."""
    document_tokens: int | None = None
    """The same of the document."""
    template_arguments: dict[str, Any] = {}
    """Variables of the template that makes a prompt of a pair, such as `instruction`."""


class Transcription(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is to be written down of what somebody says. The generation's prompt is a text that helps with it: what was
    said before, or how names are spelled; it may be empty.

    Long audio is cut into pieces; piece i is sequence i of the answer (Started.recording), all sampled alike.
    """

    audio: bytes = b""
    """A file; empty where there is a URL."""
    url: str = ""
    """A data URL, or one that the engine's side fetches where the options allow it."""
    translate: bool = False
    """Whether it is to be told in English, or in `to_language`."""
    language: str | None = None
    """What is spoken, as a code of ISO 639-1 (en); None: the model finds out."""
    to_language: str | None = None
    hotwords: str | None = None
    """Words to listen for, of models that take them."""
    timestamps: bool = False
    """Whether tokens that are points in time are wanted in the answer (Recording.first_time)."""


class Generation(FormerGeneration, msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One prompt and what to do with it: go on with it, embed it, score it, or write down what is heard."""

    request_id: str
    """For logs only; need not be unique."""
    prompt: Prompt
    sampling: Sampling = Sampling()
    embedding: Embedding | None = None
    """Set where the prompt is to be embedded; what is for text means nothing then."""
    scoring: Scoring | None = None
    """Set where the prompt is to be scored; the same holds."""
    transcription: Transcription | None = None
    """Set where audio is to be written down; the same holds of Sampling.n and what else makes several answers of one
    prompt."""
    tokenize: bool = False
    """Whether the prompt's tokens are all that is wanted: Started tells them, and nothing is computed. `tokens` asks
    for each of them, `echo` for their text; a prompt may be longer than the context then."""
    stream: bool = False
    """False: the engine reports once, when a sequence has ended."""
    tokens: bool = False
    """Whether the answer shows single tokens; otherwise a Delta carries text only."""
    token_bytes: bool = False
    """Whether Token.raw and TopToken.raw are wanted."""
    priority: int = 0
    """Where the engine goes by priorities (option.scheduling_policy): lower numbers come first."""
    add_special_tokens: bool = True
    """Whether the tokenizer adds its special tokens (a beginning of sequence) to a text prompt."""
    overflow: Literal["clip", "refuse"] = "clip"
    """When prompt and max_tokens exceed the context: end the answer at the context, or refuse the request. A prompt
    that leaves no room for a single token is refused either way."""
    echo: bool = False
    """Whether `Started.text` is wanted."""
    prompt_ids: bool = False
    """Whether `Started.prompt_ids` is wanted."""
    held: bool = False
    """Whether it is held back once it is prepared: its prompt comes as Rendered, and it waits for Engine.release."""
    adapter: str | None = None
    """The LoRA adapter to use, by its registered name."""
    trace: dict[str, str] | None = None
    """The headers of W3C's trace context, for an engine that makes spans."""
    cache_salt: str | None = None
    """Prompts share what is cached of their beginnings only where this is the same: with a secret one nobody else finds
    out by the time that a prompt takes what others have asked."""
    kv_transfer_params: dict[str, Any] | None = None
    """Parameters of this prompt for the connector that transfers KV caches; without a connector they have no effect."""


if not TYPE_CHECKING:  # or type checkers would accept any name
    __getattr__ = former_names(__name__, {"Guide": "StructuredOutput"})
