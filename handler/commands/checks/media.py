"""What `lmi check` says of images, audio and videos: which of them a model takes, and what would decode them."""

from __future__ import annotations

from collections.abc import Iterator

from ....model.engine import MANY, EngineInfo
from ....model.media.parts import WORDS
from ....model.options.finding import Finding, fact, warning

__all__ = ["of_media"]

PATHS = "/v1/audio/transcriptions, /v1/audio/translations"


def of_media(info: EngineInfo, missing: str) -> Iterator[Finding]:
    """What there is to say of an engine that a start would bring up; nothing of one that reads text alone. `missing`:
    the packages by which it would hear, with commas between them."""
    if info.transcribes:
        alone = "" if info.answers else ", and does nothing else"
        yield fact(f"the model writes audio down ({PATHS}){alone}")
    kinds = [word + _limit(most) for kind, word in WORDS.items() if (most := info.limit(kind))]
    if kinds and info.answers:
        yield fact(f"a prompt may have {', '.join(kinds)}")
    if missing:
        lacking = f"audio will be refused: what decodes it is not installed here: {missing}"
        yield warning(f"{lacking}; pip install {missing.replace(',', '')}")


def _limit(most: int) -> str:
    return "" if most >= MANY else f" (up to {most})"
