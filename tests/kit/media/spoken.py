"""Sentences that are spoken, for a model that writes down what it hears: by espeak-ng, which Debian has.

Where it is missing, what needs it is skipped; not where LMI_REQUIRE names "espeak".
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from ..packages import missing

__all__ = ["SENTENCES", "SPEEDS", "spoken", "words"]

PROGRAM = "espeak-ng"
VOICE = "en-us"
TIMEOUT_S = 60.0
SPEEDS = (150, 130, 170)
"""Words a minute, the usual one first. Whisper tiny.en writes down each sentence right at each of them."""
SENTENCES = (
    "The kitchen window looks out over a small garden.",
    "The doctor told him to drink more water.",
    "Nobody knew who had left the door open.",
    "Can you help me carry this heavy table?",
    "The farmer sold his horses and bought a tractor.",
    "The boat was slowly drifting away from the shore.",
    "My sister is learning to play the violin.",
    "The soup needs a little more salt and pepper.",
    "The old bridge was painted green last summer.",
    "We need a longer ladder to reach the window.",
    "Our teacher told us a story about the moon.",
    "The snow on the mountain is very deep.",
    "You should never leave the house without a map.",
    "The river was too wide for the horse to cross.",
    "Somebody stole the money from the office.",
    "My uncle lives alone in a small village.",
    "The sailors were happy to see land again.",
    "Where is the nearest hospital, please?",
    "She wanted to show me her new house.",
    "The dog was waiting for us in the garden.",
)


def spoken(text: str, speed: int = SPEEDS[0]) -> bytes:
    """A WAV of it: one channel, 22,050 samples of 16 bits a second."""
    program = shutil.which(PROGRAM)
    if program is None:
        missing(f"{PROGRAM} is not on PATH: Debian's package {PROGRAM}", "espeak")
    with tempfile.TemporaryDirectory() as folder:
        # To its standard output it would write a header without the length.
        file = Path(folder) / "spoken.wav"
        command = [program, "-v", VOICE, "-s", str(speed), "-w", str(file), "--", text]
        subprocess.run(command, check=True, capture_output=True, timeout=TIMEOUT_S)
        return file.read_bytes()


def words(text: str) -> list[str]:
    """What was said, whatever the signs and the capitals."""
    return re.findall(r"[a-z']+", text.lower())
