"""What the process has imported from which those that decode are forked."""

from __future__ import annotations

import warnings

from .decoding import warm_up

# Each of them runs the module that the engine's process runs, as `multiprocessing` has it; it is imported here already.
warnings.filterwarnings("ignore", category=RuntimeWarning, module="runpy")
warm_up()
