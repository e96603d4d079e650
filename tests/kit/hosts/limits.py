"""How long the local server waits for its clients, in seconds."""

from __future__ import annotations

from lmi.handler.server.body_reading import DISCARD_TIMEOUT_S, PATIENCE_S
from lmi.handler.server.connections.connection import HEAD_S
from lmi.handler.server.sockets import KEEP_ALIVE_S

__all__ = ["DISCARD_TIMEOUT_S", "HEAD_S", "KEEP_ALIVE_S", "PATIENCE_S"]
