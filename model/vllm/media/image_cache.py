"""What vLLM's core has of a model's images: that is neither made nor sent again, and no process but the core keeps it.

    rendering   an image's hash --> the core has it: only its place in the prompt is made; it has not: its tensors too
    sending     `send`: without the tensors that the core has

The core drops what was used longest ago, in the order in which requests reach it, and vLLM's sender has the same keys
by the same rules. Its own server asks the sender while it renders; but requests that are refused between rendering and
sending, or overtake each other there, would part the two. So here the sender is asked when a request is sent.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cache
from typing import Any

from ..library.internals import read_images_by
from ..library.parts import part

__all__ = ["ImageCache", "image_cache"]

FEWEST = 256
"""Images whose places are known before it is looked which of them the core has dropped."""


class ImageCache:
    """One core's. Images are rendered on one thread at a time, and requests are sent on the event loop."""

    def __init__(self, sender: Any) -> None:
        self._sender = sender
        self._places: dict[str, Any] = {}
        """How each image is written in a prompt (vLLM's ResolvedPromptUpdates)."""
        self._most = FEWEST
        self.whole = False
        """Whether an image is to be made whatever the core has; for the thread that renders."""

    # Rendering.

    def is_known(self, key: str) -> bool:
        """Whether the core has an image, and its place can be made without it."""
        return not self.whole and key in self._places and self._sender.is_cached_item(key)

    def made(self, key: str, item: tuple[Any, Any] | None) -> tuple[Any, Any]:
        """The tensors and the place of an image: of one that was made itself, else (None) none and as they were."""
        if item is None:
            return None, self._places[key]
        self._places[key] = item[1]
        if len(self._places) > self._most:
            self._places = {key: place for key, place in self._places.items() if self._sender.is_cached_item(key)}
            self._most = max(FEWEST, 2 * len(self._places))
            self._places[key] = item[1]
        return item

    # Sending.

    def dropped(self, features: Sequence[Any]) -> bool:
        """Whether the core has dropped one of a request's images since it was rendered without it."""
        return any(one.data is None and not self._sender.is_cached_item(_key(one)) for one in features)

    def send(self, features: Sequence[Any]) -> list[Any]:
        """A request's images as the core needs them; to be sent at once. Other requests may share `features`."""
        for one in features:
            self._sender.touch_sender_cache_item(_key(one))
        sent = [copy.copy(one) for one in features]
        for one in sent:
            item = None if one.data is None else (one.data, ())
            one.data, _ = self._sender.get_and_update_item(item, _key(one))
        return sent

    def distrust(self) -> None:
        """The core may not have got what it was sent: everything is sent again."""
        # All of it: what the core has beside that is older and goes first, but the rest of a part would not.
        self._sender.clear_cache()


def _key(feature: Any) -> str:
    """As the core's receiver has it (BaseMultiModalReceiverCache)."""
    return str(feature.mm_hash or feature.identifier)


def image_cache(config: Any, renderer: Any) -> ImageCache | None:
    """That of a model with images, from which its renderer reads from now on; None where its core keeps none.

    Of several copies of a model none does, nor does the core where images are to lie in shared memory: there vLLM's
    renderer has a cache of its own.
    """
    sender, images = renderer.mm_processor_cache, config.model_config.multimodal_config
    if sender is None or images.mm_processor_cache_type != "lru" or config.parallel_config.data_parallel_size > 1:
        return None
    # Not the renderer's, which vLLM fills and clears while it warms up.
    made = ImageCache(type(sender)(config.model_config))
    read_images_by(renderer, _reader_class()(made))
    return made


@cache
def _reader_class() -> Any:
    base: Any = part("vllm.multimodal.cache:BaseMultiModalProcessorCache")

    class Reader(base):  # type: ignore[misc]
        """What vLLM's processor of images asks. It changes nothing of what is known of the core."""

        def __init__(self, images: ImageCache) -> None:
            self._images = images

        def is_cached_item(self, mm_hash: str) -> bool:
            return self._images.is_known(mm_hash)

        def get_and_update_item(self, mm_item: tuple[Any, Any] | None, mm_hash: str) -> tuple[Any, Any]:
            return self._images.made(mm_hash, mm_item)

        def touch_sender_cache_item(self, mm_hash: str) -> None:
            pass

        def clear_cache(self) -> None:
            pass

        def make_stats(self, *, delta: bool = False) -> Any:
            return part("vllm.utils.cache:CacheInfo")(hits=0, total=0)

    return Reader
