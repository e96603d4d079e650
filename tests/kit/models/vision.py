"""A model that takes images, made on the spot: Idefics3 of a tiny tower and a tiny Llama, with random weights.

Its answers mean nothing, but they are greedy, and other images give other answers. An image is cut into tiles by its
shape: a square one into four, one that is twice as wide as high into two.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

TILE, EDGE, PATCH, SCALE = 56, 112, 14, 2
TOKENS = (TILE // PATCH) ** 2 // SCALE**2
"""Of a tile in the prompt."""
SPECIAL = (
    "<fake_token_around_image>", "<image>", "<global-img>", "<end_of_utterance>",
    *(f"<row_{row}_col_{column}>" for row in (1, 2) for column in (1, 2)),
)  # fmt: skip


def template_of(**shown: str) -> str:
    """A template that takes parts, and says itself where media stand: `shown` has what it writes, by their kinds."""
    cases = "".join(
        f"{{%- {'el' if at else ''}if part.type == '{kind}' %}}{{{{- '{text}' }}}}"
        for at, (kind, text) in enumerate(shown.items())
    )
    return (
        "{%- for message in messages %}\n"
        "    {{- '<|im_start|>' + message.role + '\\n' }}\n"
        "    {%- if message.content is string %}{{- message.content }}{%- else %}\n"
        "        {%- for part in message.content %}\n"
        f"            {cases}{{%- else %}}{{{{- part.text }}}}{{%- endif %}}\n"
        "        {%- endfor %}\n"
        "    {%- endif %}\n"
        "    {{- '<|im_end|>\\n' }}\n"
        "{%- endfor %}\n"
        "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}\n"
    )


OPENAI_TEMPLATE = template_of(image="<image>")

STRING_TEMPLATE = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
"""Takes text; vLLM puts what else there is before it."""


def copy_tokenizer(demo_model: Path, directory: Path) -> None:
    """The demo model's, into a directory that does not exist yet."""
    directory.mkdir(parents=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(demo_model / name, directory / name)


def build(directory: Path, demo_model: Path) -> Path:
    """Makes the model in `directory`, which must not exist, with the demo model's tokenizer."""
    import torch
    from transformers import (
        AutoTokenizer,
        Idefics3Config,
        Idefics3ForConditionalGeneration,
        Idefics3ImageProcessor,
        Idefics3Processor,
    )

    copy_tokenizer(demo_model, directory)
    tokenizer: Any = AutoTokenizer.from_pretrained(directory)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", *SPECIAL]})
    tokenizer.chat_template = OPENAI_TEMPLATE
    ids = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    config = Idefics3Config(
        text_config={
            "model_type": "llama",
            "vocab_size": 704,
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 32,
            "max_position_embeddings": 2048,
            "initializer_range": 0.2,
            **ids,
        },
        vision_config={
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": TILE,
            "patch_size": PATCH,
        },
        scale_factor=SCALE,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        **ids,
    )
    torch.manual_seed(7)
    model: Any = Idefics3ForConditionalGeneration(config).float()
    with torch.no_grad():
        for part in (model.model.vision_model, model.model.connector):
            for parameter in part.parameters():
                parameter.normal_(0, 0.3)
    model.save_pretrained(directory)
    Idefics3Processor(
        image_processor=Idefics3ImageProcessor(size={"longest_edge": EDGE}, max_image_size={"longest_edge": TILE}),
        tokenizer=tokenizer,
        image_seq_len=TOKENS,
        chat_template=OPENAI_TEMPLATE,
    ).save_pretrained(directory)
    generation = {"do_sample": False, "eos_token_id": tokenizer.eos_token_id}
    (directory / "generation_config.json").write_text(json.dumps(generation))
    (directory / "strings.jinja").write_text(STRING_TEMPLATE)
    return directory
