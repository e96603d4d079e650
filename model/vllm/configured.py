"""What of a start needs no weights, in one place: a start does it first, and `lmi check` does nothing else.

Settings --make_core--> vLLM's configuration, tokenizer --ChatRenderer--> templates, parsers --> Configured
Configured --start.py--> the core is up
"""

from __future__ import annotations

from typing import NamedTuple

from ..errors import StartError
from ..options import Settings
from ..process.ending.start_errors import start_error
from ..text.chat_template import chat_template
from .core import Core
from .pooling.activation import activation_of
from .pooling.rerankers import PairTemplate, template_of
from .request.chat import ChatRenderer
from .start import make_config, make_core
from .typical import Typical

__all__ = ["Configured", "configured", "refusal", "runs_here"]


class Configured(NamedTuple):
    """A model whose core is still to be started."""

    core: Core
    chat: ChatRenderer
    typical: Typical
    pairs: PairTemplate | None
    """Of a model that scores pairs; None: it needs none."""


def configured(settings: Settings) -> Configured:
    """Raises OptionError, StartError for a part of vLLM that is missing, and whatever vLLM raises."""
    typical = Typical(settings)
    core = make_core(settings, None if settings.pools else typical)
    return Configured(core, ChatRenderer(core, settings), typical, _pairs(core, settings) if settings.scores else None)


def _pairs(core: Core, settings: Settings) -> PairTemplate | None:
    config = core.model_config.hf_config.to_dict()
    # Raises for one that is not known.
    activation_of(config)
    if (given := chat_template(settings)) is not None:
        return PairTemplate(given)
    own = getattr(core.get_tokenizer(), "chat_template", None)
    return template_of(settings, config, own if isinstance(own, str) else None)


def refusal(settings: Settings) -> StartError | None:
    """What a start with these settings would end with before it reads weights; None: nothing of that."""
    try:
        if settings.parallel.follows:
            make_config(settings, Typical(settings))
        else:
            configured(settings)
    except Exception as error:  # noqa: BLE001 - told
        return start_error(error, settings)
    return None


def runs_here() -> bool:
    """Whether this machine has a device that the installed vLLM runs on: without one it makes no configuration."""
    from vllm.platforms import current_platform

    return not current_platform.is_unspecified()
