"""Images in the results of calls: whether a chat template shows them there, by what it makes of a trial.

yes     they stay there, as in vLLM's server
no      they follow in a message of the user's (text/template_messages.py): most templates write a result as text
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...conversation import Media, Message
from .prompts.roles import MARK, USER

__all__ = ["holds_media", "shows_images"]

EDGE = 64
"""Pixels of the trial's image: processors refuse very small ones."""
FORM = "'type'"
"""What shows that a template has written parts as Python writes them."""
CALLED = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "functions.look:0", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
}
RESULT = {
    "role": "tool",
    "tool_call_id": "functions.look:0",
    "content": [{"type": "text", "text": MARK}, {"type": "image_url", "image_url": {"url": "0"}}],
}
TRIAL: list[dict[str, Any]] = [USER, CALLED, RESULT]


def holds_media(messages: Sequence[Message | dict[str, Any]]) -> bool:
    """Whether a result has more than text."""
    return any(
        isinstance(one, Message)
        and one.role == "tool"
        and not isinstance(one.content, str)
        and any(isinstance(part, Media) for part in one.content)
        for one in messages
    )


def shows_images(render: Callable[[list[dict[str, Any]], bytes], str]) -> bool:
    """Whether a template shows a result's text and its image; `render` gives the prompt of messages with one picture,
    and raises what templates and processors raise: vLLM's does where an image has no place in the prompt.
    """
    try:
        text = render(TRIAL, _picture())
    except (MemoryError, OSError):
        # The machine's fault, not the template's.
        raise
    except Exception:  # noqa: BLE001 - templates and processors raise anything
        return False
    return MARK in text and FORM not in text


def _picture() -> bytes:
    from io import BytesIO

    from PIL import Image as Picture

    file = BytesIO()
    Picture.new("RGB", (EDGE, EDGE), "white").save(file, "PNG")
    return file.getvalue()
