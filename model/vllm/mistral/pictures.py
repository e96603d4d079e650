"""The prompt of a conversation with images. mistral-common writes an image's place by itself, and reads the image from
its URL for that; vLLM's server has it do so, and reads each image a second time.

    messages with pictures --> pictures, in their order ------------------------------ processor --> prompt
                           `-> messages with stand-ins --mistral-common--> token ids -'

A stand-in is an empty picture of the same size, in a data URL: nothing else of an image says how it is written. So no
URL of a client's comes here, and a picture that vLLM has turned upright (Exif) has the place of what it is then.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from io import BytesIO
from typing import Any

from ..library.parts import part

__all__ = ["render_pictures"]

Message = dict[str, Any]


def render_pictures(core: Any, messages: Iterable[Message], chat: Any, tokenize: Any) -> Any:
    """The prompt as vLLM's renderer gives it; raises what that raises.

    Of `messages` parts of the type image_pil are pictures; `chat` and `tokenize` are vLLM's ChatParams and
    TokenizeParams.
    """
    pictures: list[Any] = []
    apply = part("vllm.renderers.mistral:safe_apply_chat_template")
    stand_ins = [_without_pictures(message, pictures) for message in messages]
    ids: list[int] = apply(core.get_tokenizer(), stand_ins, **chat.get_apply_chat_template_kwargs())
    # No names of images, said as the renderer of conversations says it: 0.26 knows an image by its pixels otherwise.
    names = {"image": [None] * len(pictures)}
    given = {"prompt_token_ids": ids, "multi_modal_data": {"image": pictures}, "multi_modal_uuids": names}
    parsed = part("vllm.renderers.inputs.preprocess:parse_model_prompt")(core.model_config, given)
    (prompt,) = core.renderer.render_cmpl([parsed], tokenize, skip_mm_cache=True)
    return prompt


def _without_pictures(message: Message, pictures: list[Any]) -> Message:
    """A message with stand-ins; its pictures are added to `pictures`."""
    content = message.get("content")
    if not isinstance(content, list):
        return message
    parts: list[Message] = []
    for one in content:
        if one["type"] == "image_pil":
            pictures.append(one["image_pil"])
            one = {"type": "image_url", "image_url": {"url": _stand_in(one["image_pil"].size)}}
        parts.append(one)
    return {**message, "content": parts}


def _stand_in(size: tuple[int, int]) -> str:
    """An empty picture of a size in pixels: a few dozen kilobytes. Colors would be converted if it had others."""
    from PIL import Image

    file = BytesIO()
    Image.new("RGB", size).save(file, "PNG", compress_level=1)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
