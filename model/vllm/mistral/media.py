"""The prompt of a conversation with images or audio. mistral-common writes the place of each by itself, and reads it
from its URL for that; vLLM's server has it do so, and reads each a second time.

    messages with media --> pictures and samples, in their order --------------------- processor --> prompt
                        `-> messages with stand-ins --mistral-common--> token ids ----'

A stand-in is an empty picture of the same size, or of that to which mistral-common makes it smaller, or silence of the
same length: nothing else of an image or of audio says how it is written. So no URL of a client's comes here, nor a file
that mistral-common does not read, and a picture that vLLM has turned upright (Exif) has the place of what it is then.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from importlib import import_module
from io import BytesIO
from typing import Any

from ..library.parts import part

__all__ = ["render_media"]

Message = dict[str, Any]


def render_media(
    core: Any,
    messages: Iterable[Message],
    decoded: Sequence[Any],
    chat: Any,
    tokenize: Any,
    extras: dict[str, Any] | None = None,
) -> Any:
    """The prompt as vLLM's renderer gives it; raises what that raises.

    Of `messages` parts of the type image_pil are pictures, and those of the type audio_url have the numbers of what
    `decoded` holds as their URLs; `chat` and `tokenize` are vLLM's ChatParams and TokenizeParams, `extras` what vLLM's
    renderer puts into a prompt beside them.
    """
    found = _Found(core, decoded)
    apply = part("vllm.renderers.mistral:safe_apply_chat_template")
    stand_ins = [found.message(message) for message in messages]
    ids: list[int] = apply(core.get_tokenizer(), stand_ins, **chat.get_apply_chat_template_kwargs())
    media = {kind: items for kind, items in (("image", found.pictures), ("audio", found.sounds)) if items}
    # No names of them, said as the renderer of conversations says it: 0.26 knows an image by its pixels otherwise.
    names = {kind: [None] * len(items) for kind, items in media.items()}
    given = {"prompt_token_ids": ids, "multi_modal_data": media, "multi_modal_uuids": names}
    parsed = part("vllm.renderers.inputs.preprocess:parse_model_prompt")(core.model_config, given)
    (prompt,) = core.renderer.render_cmpl([parsed], tokenize, prompt_extras=extras, skip_mm_cache=True)
    return prompt


class _Found:
    """The media of one conversation, in their order, with stand-ins in their places."""

    def __init__(self, core: Any, decoded: Sequence[Any]) -> None:
        self._core = core
        self._instruct = core.get_tokenizer().instruct
        self._decoded = decoded
        self.pictures: list[Any] = []
        self.sounds: list[Any] = []
        """Each the samples and their rate."""

    def message(self, message: Message) -> Message:
        """A message with stand-ins."""
        content = message.get("content")
        return {**message, "content": [self._part(one) for one in content]} if isinstance(content, list) else message

    def _part(self, one: Message) -> Message:
        if one["type"] == "image_pil":
            self.pictures.append(one["image_pil"])
            longest: int = self._instruct.image_encoder.image_config.max_image_size
            return {"type": "image_url", "image_url": {"url": _stand_in(one["image_pil"].size, longest)}}
        if one["type"] == "audio_url":
            sound = self._decoded[int(one["audio_url"]["url"])]
            self.sounds.append(sound)
            return {"type": "audio_url", "audio_url": {"url": self._silence(sound)}}
        return one

    def _silence(self, sound: Any) -> str:
        """As long as what the model hears of a sound."""
        soundfile: Any = import_module("soundfile")
        import numpy as np

        items = self._core.renderer.mm_processor.info.parse_mm_data({"audio": [sound]})
        samples = items["audio"].get_audio_length(0)
        rate: int = self._instruct.audio_encoder.audio_config.sampling_rate
        file = BytesIO()
        soundfile.write(file, np.zeros(samples, np.int16), rate, format="FLAC")
        return f"data:audio/flac;base64,{base64.b64encode(file.getvalue()).decode()}"


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
