"""Where things are, so that no test counts folders."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = [
    "ACTED",
    "AGENT_SCRIPTS",
    "CACHE",
    "CLIENT_SCRIPTS",
    "DOCS",
    "ENGINE_FAULTS",
    "PARROT",
    "PLAYED",
    "README",
    "REQUIRED",
    "ROOT",
    "TESTS",
    "USER_CODE",
]

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
CACHE = ROOT / ".cache"
"""What a run may leave behind: the demo model, DJL's jars."""
README = ROOT / "README.md"
DOCS = ROOT / "docs"
"""The pages for readers; README links to them."""
AGENT_SCRIPTS = TESTS / "agents" / "scripts"
"""Scripts that drive other people's agents."""
CLIENT_SCRIPTS = TESTS / "clients" / "scripts"
"""Scripts that drive other people's clients."""
ENGINE_FAULTS = TESTS / "kit" / "faults" / "engine"
"""On PYTHONPATH, the engine's process runs an engine that fails as it is told to."""
PARROT = TESTS / "kit" / "parrot"
"""The same, with an engine that says the demo model's answers by heart."""
ACTED = TESTS / "kit" / "acted"
"""The same, with vLLM on a core that is only acted."""
PLAYED = TESTS / "kit" / "played"
"""The same, with vLLM on a core that says what scripts say."""
USER_CODE = TESTS / "kit" / "user_code"
"""Files as users write them."""
REQUIRED = frozenset(os.environ.get("LMI_REQUIRE", "").split(","))
"""Tools of which "java", "chromium", "axe", "vocabularies", "agents", "models", "espeak" and "go" may be missing
elsewhere, and tests that need them are skipped; here they fail."""
