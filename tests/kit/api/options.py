"""Settings, made in one way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lmi.model.options import Settings, load_settings, read_properties, settings_of
from lmi.model.options.adapter_options import AdapterOptions
from lmi.model.options.environment.tgi import TGI
from lmi.model.options.environment.vllm_image import ARGUMENTS, PREFIX
from lmi.model.options.finding import Finding
from lmi.model.options.media_rules import MediaRules
from lmi.model.options.option import Option
from lmi.model.options.table import OPTIONS, option_named

__all__ = [
    "ARGUMENTS", "OPTIONS", "PREFIX", "TGI", "AdapterOptions", "Finding", "MediaRules", "Option", "load_settings",
    "make_settings", "notes_of", "option_named", "read_properties", "settings_of", "typed_settings",
]  # fmt: skip

NAMES = {"model_dir": "/model", "model_id": "/model", "model_name": "/model"}


def make_settings(directory: Path | None = None, /, **options: str) -> Settings:
    """What `options`, as texts, mean: on top of those of a model directory, which is read, or alone."""
    if directory is None:
        return settings_of(options, model_dir="/opt/ml/model")
    return load_settings(directory, environment={}, overrides=options)


def typed_settings(**fields: Any) -> Settings:
    """Settings with these fields, as values; none that an option decides in another way than by its own field."""
    return Settings(**{**NAMES, **fields})


def notes_of(settings: Settings) -> list[str]:
    """What a start logs of them."""
    return [note.message for note in settings.notes]
