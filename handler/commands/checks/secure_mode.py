"""What `lmi check` says of SageMaker's secure mode: what this handler judges, and what DJL Serving does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from ....model.options import Settings
from ....model.options.finding import Finding, fact, warning
from ...model_code import entry_point_of
from ...secure_mode import SCRIPTS, SecureMode

__all__ = ["of_secure_mode"]

OF_DJL = "files, serving.properties, OPTION_* and the entry point are DJL Serving's to judge"


def of_secure_mode(settings: Settings, secure: SecureMode, environment: Mapping[str, str]) -> Iterator[Finding]:
    """What there is to say once nothing that this handler judges is forbidden (handler/secure_mode.py)."""
    yield fact(f"secure mode: variables and adapters good, with {', '.join(sorted(secure.controls))}; {OF_DJL}")
    entry = entry_point_of(settings, environment)
    if not entry and Path(settings.model_dir, "model.py").is_file():
        entry = "model.py"
    if SCRIPTS in secure.controls and entry and not entry.startswith("djl_python."):
        prohibited = f"DJL Serving prohibits the entry point {entry} ({SCRIPTS})"
        yield warning(f"{prohibited}: such an endpoint cannot run this handler", "entryPoint")
