"""What of a start needs no weights, in one place: a start does it first, and `lmi check` does nothing else.

Settings --make_core--> vLLM's configuration, tokenizer --ChatRenderer, transcriber--> templates, parsers --> Configured
Configured --start.py--> the core is up
"""

from __future__ import annotations

from typing import NamedTuple

from ..engine import EngineInfo
from ..errors import StartError
from ..options import Settings
from ..process.ending.start_errors import start_error
from ..text.chat_template import chat_template
from .core import Core
from .library.version import vllm_version
from .pooling.activation import activation_of
from .pooling.rerankers import PairTemplate, template_of
from .request.chat import ChatRenderer
from .request.transcription import Transcriber, transcriber
from .start import make_config, make_core
from .typical import Typical

__all__ = ["Configured", "configured", "runs_here", "tried"]


class Configured(NamedTuple):
    """A model whose core is still to be started."""

    core: Core
    chat: ChatRenderer
    typical: Typical
    pairs: PairTemplate | None
    """Of a model that scores pairs; None: it needs none."""
    writer: Transcriber | None
    """What audio is written down with; None: nothing."""

    @property
    def info(self) -> EngineInfo:
        """What the engine will say of itself, of one that generates."""
        limits, writer = self.chat.media.limits, self.writer
        return EngineInfo(engine="vllm", version=vllm_version(), context=self.core.model_config.max_model_len,
            images=limits["image"], audio=limits["audio"], video=limits["video"], image_embeds=limits["image_embeds"],
            transcribes=writer is not None, answers=not (writer and writer.alone),
        )  # fmt: skip


def configured(settings: Settings) -> Configured:
    """Raises OptionError, StartError for a part of vLLM that is missing, and whatever vLLM raises."""
    typical = Typical(settings)
    core = make_core(settings, None if settings.pools else typical)
    chat = ChatRenderer(core, settings)
    pairs = _pairs(core, settings) if settings.scores else None
    return Configured(core, chat, typical, pairs, None if settings.pools else transcriber(core, chat.media))


def _pairs(core: Core, settings: Settings) -> PairTemplate | None:
    config = core.model_config.hf_config.to_dict()
    # Raises for one that is not known.
    activation_of(config)
    if (given := chat_template(settings)) is not None:
        return PairTemplate(given)
    own = getattr(core.get_tokenizer(), "chat_template", None)
    return template_of(settings, config, own if isinstance(own, str) else None)


def tried(settings: Settings) -> Configured | StartError | None:
    """What a start with these settings would come to before it reads weights, or end with; None: a follower's, which
    has no more than a configuration."""
    try:
        if not settings.parallel.follows:
            return configured(settings)
        make_config(settings, Typical(settings))
    except Exception as error:  # noqa: BLE001 - told
        return start_error(error, settings)
    return None


def runs_here() -> bool:
    """Whether this machine has a device that the installed vLLM runs on: without one it makes no configuration."""
    from vllm.platforms import current_platform

    return not current_platform.is_unspecified()
