"""Where things are, so that no test counts folders."""

from __future__ import annotations

from pathlib import Path

__all__ = ["CACHE", "CLIENT_SCRIPTS", "DOCS", "ENGINE_FAULTS", "README", "ROOT", "TESTS", "USER_CODE"]

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
CACHE = ROOT / ".cache"
"""What a run may leave behind: the demo model, DJL's jars."""
README = ROOT / "README.md"
DOCS = ROOT / "docs"
"""The pages for readers; README links to them."""
CLIENT_SCRIPTS = TESTS / "clients" / "scripts"
"""Scripts that drive other people's clients."""
ENGINE_FAULTS = TESTS / "kit" / "faults" / "engine"
"""On PYTHONPATH, the engine's process runs an engine that fails as it is told to."""
USER_CODE = TESTS / "kit" / "user_code"
"""Files as users write them."""
