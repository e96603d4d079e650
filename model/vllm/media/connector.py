"""What vLLM's renderer asks for the audio and videos of a conversation: they are decoded already.

    messages, {"type": "audio_url", "audio_url": {"url": "2"}} --renderer--> Connector --> what `decoded` holds as 2

So vLLM never sees a URL that it could fetch. It chooses its connector by a name (VLLM_MEDIA_CONNECTOR), for which it
has a registry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from ..library.parts import part

__all__ = ["decoded", "use_connector"]

_items: list[Any] = []


@cache
def use_connector() -> None:
    """Has vLLM's renderers of this process ask here."""
    base: Any = part("vllm.multimodal.media.connector:MediaConnector")

    class Connector(base):  # type: ignore[misc]
        """Gives what `decoded` holds."""

        def fetch_audio(self, audio_url: str) -> Any:
            return _items[int(audio_url)]

        def fetch_video(self, video_url: str, **_: Any) -> Any:
            return _items[int(video_url)]

    registry: Any = part("vllm.multimodal.media.connector:MEDIA_CONNECTOR_REGISTRY")
    registry.register(part("vllm.envs:VLLM_MEDIA_CONNECTOR"))(Connector)


@contextmanager
def decoded(items: Sequence[Any]) -> Iterator[None]:
    """While it is open `items` are what URLs name by their numbers; on one thread at a time."""
    _items[:] = items
    try:
        yield
    finally:
        _items.clear()
