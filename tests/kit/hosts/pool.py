"""Running hosts that tests share: one for each kind and set of options, however many test files ask for it.

    tests -> fixtures `host`, `chat_server`, `hosts` -> HostPool.get -> tests/kit/hosts/host.py: start

Every start of an engine that tests share goes through here. At most LIMIT hosts run at a time in a process: what was
asked for longest ago ends first, as two cores and a test's patience do not carry more.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import mkdtemp

import pytest

from ..djl import hosting
from .host import WITHOUT_JAVA, Host, model_directory, start

__all__ = ["CHAT", "EVERY", "STREAMING", "HostPool"]

LIMIT = 3
CHAT: Mapping[str, str] = {
    "option.tool_call_parser": "hermes",
    "option.reasoning_parser": "qwen3",
    "option.served_model_name": "demo",
    # The model was taught to write JSON, but not to stop putting spaces between.
    "option.structured_outputs_config": '{"disable_any_whitespace": true}',
}
"""The demo model's parsers of tool calls and of reasoning: what every dialect can be asked with."""

_CONTAINER, _ASYNC, _DYNAMIC = (
    pytest.param(kind, marks=[pytest.mark.once, pytest.mark.hosts]) for kind in ("container", "async", "dynamic")
)
STREAMING = pytest.mark.parametrize("host", ["server", "rolling", _ASYNC], indirect=True)
EVERY = pytest.mark.parametrize("host", ["server", "rolling", _CONTAINER, _ASYNC, _DYNAMIC], indirect=True)
"""The hosts of what is marked `contract`: `make test` has the first two, `make test-hosts` the others."""

Key = tuple[str, tuple[tuple[str, str], ...]]


class HostPool:
    """Hosts of the demo model. For one thread."""

    def __init__(self, demo_model: Path, folder: Path) -> None:
        self._demo_model = demo_model
        self._folder = folder
        self._running: dict[Key, Host] = {}

    def get(self, kind: str, properties: Mapping[str, str] = CHAT) -> Host:
        """A host of `kind` ("server", "container", "rolling", "async", "dynamic"); skips where Java is missing.

        It may end with a later `get`: a test asks for its own.
        """
        if kind not in WITHOUT_JAVA and (missing := hosting.available()):
            pytest.skip(missing)
        key = (kind, tuple(sorted(properties.items())))
        host = self._running.pop(key, None)
        if host is None:
            while len(self._running) >= LIMIT:
                self._running.pop(next(iter(self._running))).stop()
            folder = Path(mkdtemp(prefix=f"{kind}-", dir=self._folder))
            host = start(kind, model_directory(self._demo_model, folder / "model", properties), folder / "log")
        self._running[key] = host
        return host

    def close(self) -> None:
        while self._running:
            self._running.popitem()[1].stop()
