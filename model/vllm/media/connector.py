"""What vLLM's renderer asks for the audio and videos of a conversation: they are decoded already.

    messages, {"type": "audio_url", "audio_url": {"url": "2"}} --renderer--> Connector --> what `decoded` holds as 2

So vLLM never sees a URL that it could fetch. It chooses its connector by a name (VLLM_MEDIA_CONNECTOR), for which it
has a registry.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from ..library.parts import part

__all__ = ["decoded", "use_connector"]

_items: list[Any] = []
_sounds: dict[int, Any] = {}
"""Of videos whose sound is wanted, by their numbers."""


@cache
def use_connector() -> None:
    """Has vLLM's renderers of this process ask here."""
    base: Any = part("vllm.multimodal.media.connector:MediaConnector")

    class Connector(base):  # type: ignore[misc]
        """Gives what `decoded` holds."""

        def fetch_audio(self, audio_url: str) -> Any:
            number = int(audio_url)
            return _sounds[number] if number in _sounds else _items[number]

        def fetch_video(self, video_url: str, **_: Any) -> Any:
            return _items[int(video_url)]

        def fetch_image_embedding(self, data: str) -> Any:
            number, _, name = data.partition(":")
            return _items[int(number)][name]

    registry: Any = part("vllm.multimodal.media.connector:MEDIA_CONNECTOR_REGISTRY")
    registry.register(part("vllm.envs:VLLM_MEDIA_CONNECTOR"))(Connector)


@contextmanager
def decoded(items: Sequence[Any], sounds: Mapping[int, Any]) -> Iterator[None]:
    """While it is open `items` are what URLs name by their numbers, `sounds` what is heard in those that are videos; on
    one thread at a time."""
    _items[:] = items
    _sounds.update(sounds)
    try:
        yield
    finally:
        _items.clear()
        _sounds.clear()
