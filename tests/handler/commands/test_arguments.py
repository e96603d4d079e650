"""What arguments of the command line mean."""

from __future__ import annotations

import pytest

from lmi.handler.commands.arguments import required_key


@pytest.mark.parametrize("key", ["key", "key\n", "key\r\n", " \tkey \n\n"])
def test_blanks_and_line_ends_around_a_key_are_none_of_it(key: str) -> None:
    """A secret that was made of a file ends with a line end."""
    assert required_key(None, {"LMI_API_KEY": key}) == "key"
    assert required_key(key, {"LMI_API_KEY": "another"}) == "key"
