"""The prompt of a conversation with images. mistral-common writes an image's place by itself, and reads the image from
its URL for that; vLLM's server has it do so, and reads each image a second time.

    messages with pictures --> pictures, in their order ------------------------------ processor --> prompt
                           `-> messages with stand-ins --mistral-common--> token ids -'

A stand-in is an empty picture in a data URL, of the same size or of that to which mistral-common makes it smaller:
nothing else of an image says how it is written. So no URL of a client's comes here, and a picture that vLLM has turned
upright (Exif) has the place of what it is then.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from io import BytesIO
from typing import Any

from ..library.parts import part

__all__ = ["render_pictures"]

Message = dict[str, Any]


def render_pictures(
    core: Any, messages: Iterable[Message], chat: Any, tokenize: Any, extras: dict[str, Any] | None = None
) -> Any:
    """The prompt as vLLM's renderer gives it; raises what that raises.

    Of `messages` parts of the type image_pil are pictures; `chat` and `tokenize` are vLLM's ChatParams and
    TokenizeParams, `extras` what vLLM's renderer puts into a prompt beside them.
    """
    pictures: list[Any] = []
    apply = part("vllm.renderers.mistral:safe_apply_chat_template")
    tokenizer = core.get_tokenizer()
    longest: int = tokenizer.instruct.image_encoder.image_config.max_image_size
    stand_ins = [_without_pictures(message, pictures, longest) for message in messages]
    ids: list[int] = apply(tokenizer, stand_ins, **chat.get_apply_chat_template_kwargs())
    # No names of images, said as the renderer of conversations says it: 0.26 knows an image by its pixels otherwise.
    names = {"image": [None] * len(pictures)}
    given = {"prompt_token_ids": ids, "multi_modal_data": {"image": pictures}, "multi_modal_uuids": names}
    parsed = part("vllm.renderers.inputs.preprocess:parse_model_prompt")(core.model_config, given)
    (prompt,) = core.renderer.render_cmpl([parsed], tokenize, prompt_extras=extras, skip_mm_cache=True)
    return prompt


def _without_pictures(message: Message, pictures: list[Any], longest: int) -> Message:
    """A message with stand-ins, whose sides have at most `longest` pixels; its pictures are added to `pictures`."""
    content = message.get("content")
    if not isinstance(content, list):
        return message
    parts: list[Message] = []
    for one in content:
        if one["type"] == "image_pil":
            pictures.append(one["image_pil"])
            one = {"type": "image_url", "image_url": {"url": _stand_in(one["image_pil"].size, longest)}}
        parts.append(one)
    return {**message, "content": parts}


def _stand_in(size: tuple[int, int], longest: int) -> str:
    """An empty picture that has as many tokens as one of `size`, in pixels. mistral-common makes those with a side
    above `longest` smaller (ImageEncoder._image_to_num_tokens); here that takes no time and memory by the pixel. Colors
    would be converted if it had others."""
    from PIL import Image

    width, height = size
    if (ratio := max(size) / longest) > 1:
        size = max(round(width / ratio), 1), max(round(height / ratio), 1)
    file = BytesIO()
    Image.new("RGB", size).save(file, "PNG", compress_level=1)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
