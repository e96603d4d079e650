"""Which versions of vLLM the handler drives: from OLDEST on, tested up to the one before UNTESTED.

installed --refusal--> too old: nothing starts
          --warning--> newer than tested: it starts if its private parts are there and the trial passes
"""

from __future__ import annotations

import re

__all__ = ["VERSIONS", "mixes_rows", "refusal", "vllm_version", "warning"]

VERSIONS = "0.26.0 to 0.32"
"""For messages: the first and the last version that are tested, as `pyproject.toml` has them."""

OLDEST, UNTESTED = (0, 26), (0, 33)
KEEPS_ROWS = (0, 32)
"""The first version that was seen to."""
FORMER = "lmi-handler 0.2.0"
"""The last release for vLLM 0.23 to 0.25 (CHANGELOG.md)."""


def vllm_version() -> str:
    """The installed vLLM's version."""
    from vllm import __version__

    return str(__version__)


def refusal(version: str) -> str | None:
    """Why the handler does not drive a version, in a line; None where it does, or where it is newer than was tested."""
    if (number := _number(version)) is not None and number < OLDEST:
        return f"vLLM {version} is too old: {VERSIONS} is supported; {FORMER} is the last release for older ones"
    return None


def warning(version: str) -> str | None:
    """What is to be said of a version that was not tested; None where it was."""
    number = _number(version)
    if number is None or number >= UNTESTED:
        return f"vLLM {version} was not tested: {VERSIONS} is supported"
    return None


def mixes_rows() -> bool:
    """Whether model runner V1 takes one request's allowed tokens for another's (guides/allowed_ids.py)."""
    number = _number(vllm_version())
    return number is not None and number < KEEPS_ROWS


def _number(version: str) -> tuple[int, int] | None:
    """Major and minor; None for one that does not begin with numbers, as a build without tags has it."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return None if found is None else (int(found[1]), int(found[2]))
