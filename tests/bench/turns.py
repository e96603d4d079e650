"""The order in which the bench measures, and what each answer is held against once it has come.

    for each repeat, workload, number of connections:  the layers that are up, in turns --> Measured --> Figures

The reference of an answer is the engine alone's text for the same prompt. Where the engine alone is not among the
layers, each of them is asked once more, for the dialect's other form, and no clock runs meanwhile.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from lmi.model.errors import StartError

from .engines import FloorLayer
from .figures import Figures, Measured, figures
from .layers import Layer
from .workloads import Workload, other_form, prompts

__all__ = ["Turns"]

TRIES = 3
FIRST_WARM = 500_000
"""The number of the first prompt that warms up; those that are measured are below."""
Turn = tuple[int, str, int]
"""Which repeat, workload and number of connections."""


class Turns:
    """The runs of layers that are up, in their order."""

    def __init__(
        self,
        workloads: Sequence[Workload],
        connections: Sequence[int],
        arguments: argparse.Namespace,
        layers: Sequence[Layer],
        say: Callable[[str], None],
    ) -> None:
        """`layers` are all that there will be; `of` is then called with those that are up."""
        self._workloads = workloads
        self._connections = connections
        self._tokens: int = arguments.tokens
        self._rounds: int = arguments.rounds
        self._repeat: int = arguments.repeat
        self._words: int = arguments.words
        self._warm_up: int = arguments.warm_up or min(256, 4 * max(connections))
        self._say = say
        self._total = len(layers) * self._repeat * len(workloads) * len(connections)
        self._done = 0
        self._begun = time.monotonic()
        self._alone = any(isinstance(layer, FloorLayer) for layer in layers)
        self.broken: list[str] = []
        """Runs that were made again, and why."""
        self._references: dict[Turn, list[str]] = {}
        """The engine alone's texts."""

    def of(self, layers: Sequence[Layer], repeats: Iterable[int]) -> Iterator[Figures]:
        """Warms each of them up, then measures them in turns: in these of the repeats."""
        for layer in layers:
            for number, workload in enumerate(self._workloads):
                # What is compiled or allocated at first use is not measured: Java compiles what has run ten thousand
                # times, and a frame costs it three times as much before. A request's own costs need as many requests.
                asked = prompts(self._warm_up, FIRST_WARM + number * self._warm_up, self._words)
                self._whole(layer, workload, asked, max(self._connections))
        first = 0
        for repeat in repeats:
            for workload in self._workloads:
                for connections in self._connections:
                    requests = max(connections * self._rounds, min(connections * 6, 96))
                    asked = prompts(requests, first, self._words)
                    first += requests
                    # In another order each time: whoever comes first gains or loses nothing by it.
                    start = repeat % len(layers)
                    turn = (*layers[start:], *layers[:start])
                    found = [(layer, self._run(layer, workload, asked, connections)) for layer in turn]
                    for layer, measured in found:
                        if isinstance(layer, FloorLayer):
                            self._references[repeat, workload.name, connections] = measured.texts
                    for layer, measured in found:
                        yield figures(measured, self._reference(layer, measured, asked, repeat), repeat)

    def _run(self, layer: Layer, workload: Workload, asked: Sequence[str], connections: int) -> Measured:
        run = self._whole(layer, workload, asked, connections)
        self._done += 1
        left = (time.monotonic() - self._begun) / self._done * (self._total - self._done)
        self._say(
            f"[{self._done}/{self._total}, {left / 60:.0f} min left] {layer.name}: {workload.name}, "
            f"{connections} connections: {figures(run).rate:,.0f} tokens/s"
        )
        return run

    def _whole(self, layer: Layer, workload: Workload, asked: Sequence[str], connections: int) -> Measured:
        """A run in which no connection was lost. Of hundreds of runs one such must not cost all; it is told of."""
        for _ in range(TRIES):
            try:
                return layer.run(workload, asked, self._tokens, connections)
            except ConnectionError as error:  # noqa: PERF203 - one at a time
                self.broken.append(f"{layer.name}, {workload.name}, {connections} connections: {error}")
                self._say(f"a run is made again: {self.broken[-1]}")
        raise StartError(f"{TRIES} runs broke off: {self.broken[-1]}")

    def _reference(self, layer: Layer, measured: Measured, asked: Sequence[str], repeat: int) -> Sequence[str]:
        """Texts for the prompts; none where each token has come in a record of its own, or none can be had."""
        workload = measured.workload
        if self._alone:
            return self._references[repeat, workload.name, measured.connections]
        if workload.counts:
            return ()
        try:
            return self._whole(layer, other_form(workload), asked, measured.connections).texts
        except StartError as refused:
            self._say(f"nothing to compare the texts of {workload.name} with: {refused}")
            return ()
