"""Other people's clients, run as processes: tests/clients/*.py, and examples of README and docs/.

Those that clash with what the engine needs have an environment of their own, `.venv-clients`: `make clients` builds it,
and `make test` and `make test-newest` do so first.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..paths import CLIENT_SCRIPTS, ROOT

ENVIRONMENT = Path(os.environ.get("LMI_CLIENTS_ENV") or ROOT / ".venv-clients")
"""Where the clients are installed."""
TIMEOUT = 240.0
OURS = Path(sys.executable)
"""The interpreter of this environment."""


def theirs() -> Path:
    """The interpreter of the clients' environment; fails the test where there is none."""
    python = ENVIRONMENT / "bin" / "python"
    assert python.exists(), f"{ENVIRONMENT} is missing: `make clients` builds it"
    return python


def run_python(
    python: Path, arguments: Sequence[str], variables: Mapping[str, str] | None = None, *, errors: bool = False
) -> str:
    """What a Python process prints; the test fails, with what it wrote to standard error, unless it ends with 0.

    errors: what it writes to standard error belongs to it.
    """
    # The hub's client in offline mode refuses the test's own server too.
    foreign = ("PYTHONHOME", "HF_HUB_OFFLINE", "OPENAI_", "AWS_", "AZURE_", "LANGSMITH_", "LITELLM_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    if python != OURS:
        kept.pop("PYTHONPATH", None)
    # Without it litellm downloads a list of prices when it is imported.
    kept |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_PROXY": "*", **(variables or {})}
    done = subprocess.run(
        [str(python), *arguments],
        check=False,
        env=kept,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, f"{arguments[0][:200]} ended with {done.returncode}:\n{done.stderr[-6000:]}"
    return done.stdout + done.stderr if errors else done.stdout


def run_client(script: str, url: str, *asked: object, python: Path | None = None) -> Any:
    """The summary that tests/clients/`script` prints last; each of `asked` is an argument, a text or JSON."""
    arguments = [
        str(CLIENT_SCRIPTS / script),
        url,
        *(one if isinstance(one, str) else json.dumps(one) for one in asked),
    ]
    return json.loads(run_python(python or theirs(), arguments).splitlines()[-1])
