"""The demo model's tokenizer: byte-level BPE learned from the built-in texts, and a ChatML template.

Only ASCII texts are learned from, so every byte of any other character is a token of its own: the demo answers cross
token boundaries inside characters, which is what streaming code gets wrong first.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .answers import FALLBACK, QUESTIONS, SYSTEM

VOCABULARY = 640
"""Number of token ids. A multiple of 64, so that engines need not pad it."""

BOS, EOS, TURN, PAD = "<s>", "<|im_end|>", "<|im_start|>", "<pad>"
SPECIAL = (PAD, BOS, TURN, EOS)
"""Left out of the text where special tokens are skipped."""

MARKERS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
"""Single tokens that stay in the text, since parsers of reasoning and tool calls look for them there."""

CHAT_TEMPLATE = """\
{{- bos_token }}
{%- set system = messages[0].content if messages[0].role == 'system' else '' %}
{%- if system or tools %}
    {{- '<|im_start|>system\\n' + system }}
    {%- if tools %}
        {{- '\\n\\n' if system else '' }}
        {{- 'You can call these functions:\\n<tools>' }}
        {%- for tool in tools %}
            {{- '\\n' + (tool | tojson) }}
        {%- endfor %}
        {{- '\\n</tools>\\nA call is written <tool_call>\\n{"name": NAME, "arguments": OBJECT}\\n</tool_call>' }}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'tool' %}
        {{- '<|im_start|>tool\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
    {%- elif message.role != 'system' or not loop.first %}
        {{- '<|im_start|>' + message.role + '\\n' + (message.content or '') }}
        {%- for call in message.tool_calls or [] %}
            {%- set function = call.function %}
            {%- set arguments = function.arguments %}
            {{- '\\n' if message.content or not loop.first else '' }}
            {{- '<tool_call>\\n{"name": ' + (function.name | tojson) + ', "arguments": ' }}
            {{- arguments if arguments is string else arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and not enable_thinking %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""
"""ChatML with tools in Hermes form. `enable_thinking=False` opens the answer with an empty reasoning block."""


def save_tokenizer(directory: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json. The same bytes at every call."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer: Any = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    size = VOCABULARY - len(SPECIAL) - len(MARKERS)
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(), trainer)
    if tokenizer.get_vocab_size() != size:
        raise ValueError(f"the built-in texts give {tokenizer.get_vocab_size()} tokens, not {size}")
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in MARKERS])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, tokenizer.token_to_id(BOS))]
    )
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOS,
        "pad_token": PAD,
        "additional_special_tokens": [TURN],
        "model_max_length": 2048,
        "padding_side": "left",
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def _texts() -> list[str]:
    """The ASCII texts that the model reads or writes, without the tokens that are added whole."""
    texts = [SYSTEM, FALLBACK, CHAT_TEMPLATE]
    for asked in QUESTIONS:
        texts += [asked.prompt, asked.answer, *asked.tool_results, asked.follow_up or ""]
        texts += [json.dumps(tool) for tool in asked.tools or ()]
    texts = [text for text in texts if text.isascii()]
    for token in (*SPECIAL, *MARKERS):
        texts = [text.replace(token, "") for text in texts]
    return texts
