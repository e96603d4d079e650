"""What a message repeats of what a client has sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ..kit.api.errors import RequestError

MAX = 120


def shown(given: Any) -> str:
    beginning = "field: expected something, got "
    message = RequestError.of("field", given, "something").message
    assert message.startswith(beginning)
    return message.removeprefix(beginning)


TEXT = st.text(alphabet="ab'\"\\é", max_size=30)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
)


@given(JSON)
def test_it_is_the_beginning_of_the_values_repr(value: Any) -> None:
    text = repr(value)
    assert shown(value) == (text if len(text) <= MAX else text[:MAX] + "...")


class Counted(list[int]):
    """Counts which of its members are looked at."""

    seen = 0

    def __iter__(self) -> Iterator[int]:
        for one in super().__iter__():
            self.seen += 1
            yield one


def test_of_a_large_value_no_more_is_looked_at() -> None:
    """Its whole repr would take longer than to read the body."""
    value = Counted(range(100_000))
    assert shown({"a": value}) == "{'a': " + str([*range(100)])[: MAX - 6] + "..."
    assert value.seen < MAX
