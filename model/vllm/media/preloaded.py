"""Imports in the process from which those that decode are forked what they need."""

from __future__ import annotations

from .decoding import warm_up

warm_up()
