"""Tools that `lmi chat` is given: a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmi.handler.commands.chat.talk import read_tools

from ....kit.api.errors import OptionError


def test_tools(tmp_path: Path) -> None:
    file = tmp_path / "tools.json"
    assert read_tools(None) == []
    for encoding in ("utf-8", "utf-8-sig"):
        file.write_text('[{"type": "function"}]', encoding)
        assert read_tools(file) == [{"type": "function"}]
    for text in ("{", '{"type": "function"}'):
        file.write_text(text)
        with pytest.raises(OptionError, match="--tools"):
            read_tools(file)
