"""Responses do not depend on how tokens come together in events: any split gives the same, streamed or whole."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from lmi.formatters.responses.custom import CustomInput

from ...kit.answers.splits import LETTERS

ESCAPED = st.lists(st.sampled_from([*'"\\/bdunD83eE0 {}:', "input"]), max_size=24).map("".join)


@given(
    st.one_of(LETTERS.map(lambda text: json.dumps({"input": text})), ESCAPED, ESCAPED.map('{{"input": "{}'.format)),
    st.data(),
)
def test_any_split_of_arguments_gives_the_same_input(arguments: str, data: st.DataObject) -> None:
    """Of arguments that are as asked for, of others, of such as are cut off."""
    whole_reader, reader = CustomInput(), CustomInput()
    expected = whole_reader.push(arguments) + whole_reader.rest()
    pieces: list[str] = []
    while arguments:
        size = data.draw(st.integers(1, 5))
        pieces.append(reader.push(arguments[:size]))
        arguments = arguments[size:]
    assert "".join(pieces) + reader.rest() == expected
    expected.encode()


@given(st.text(st.characters(exclude_categories=["Cs"])), st.booleans())
def test_an_input_comes_back(text: str, ascii_only: bool) -> None:
    reader = CustomInput()
    written = json.dumps({"input": text}, ensure_ascii=ascii_only)
    assert reader.push(written) + reader.rest() == text
