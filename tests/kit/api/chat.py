"""What `lmi chat` makes of an answer."""

from __future__ import annotations

from lmi.handler.commands.chat.client import Answer, Piece

__all__ = ["Answer", "Piece"]
