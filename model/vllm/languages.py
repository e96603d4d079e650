"""What language is spoken, of models that are asked for it before they write down what is said: a request of one token.

audio --Detections.add--> the core --read--> its language --Requests.transcribe--> a request for each piece
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..errors import GenerationError
from ..events import EngineEvent, Failed
from .aside import Aside
from .core import Core
from .request.prepared import Prepared

__all__ = ["Detections"]


class Detections:
    """Those that run on one engine."""

    def __init__(
        self,
        core: Core,
        aside: Aside,
        again: Callable[[Prepared, list[int]], Prepared],
        add: Callable[[int, Prepared], None],
    ) -> None:
        """`again` prepares a generation anew, by what the model has said; `add` starts it then."""
        self._core = core
        self._aside = aside
        self._again = again
        self._add = add
        self._running: dict[str, tuple[int, Prepared]] = {}
        """By their vLLM requests' names."""

    @property
    def busy(self) -> bool:
        """Whether one runs."""
        return bool(self._running)

    def add(self, number: int, prepared: Prepared) -> None:
        """Asks for the language."""
        (request,) = prepared.requests
        name = request.request_id = self._core.name(number, "language")
        self._core.add(request)
        self._running[name] = number, prepared

    def abort(self, numbers: Sequence[int]) -> None:
        """Ends those of these generations."""
        names = [name for name, (number, _) in self._running.items() if number in numbers]
        for name in names:
            del self._running[name]
        if names:
            self._core.abort(names)

    def read(self, output: Any) -> list[tuple[int, EngineEvent]]:
        """What an EngineCoreOutput brings; nothing where it is not of one."""
        number, prepared = self._running.pop(output.request_id, (0, None))
        if prepared is None:
            return []
        ids = [*output.new_token_ids]
        if not ids:
            reason = self._core.failure(output.request_id) or "the engine failed while finding out the language"
            return [(number, Failed.of(GenerationError(reason)))]

        self._aside.make(
            number, partial(self._again, prepared, ids), prepared.generation.request_id, partial(self._add, number)
        )
        return []
