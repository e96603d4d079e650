"""Tables of fields: defaults, names that are one parameter's, what is served with its default alone, unknown names."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from lmi.formatters.common.fields import MAX_LOGGED_NAMES, Parameter, Table

from ...kit.answers.forms import FORMS
from ...kit.api.conversation import Anything, Boolean, Integer, Texts
from ...kit.api.dialects import forget_logged_names
from ...kit.api.errors import ParameterError, PayloadError, RequestError, UnsupportedError
from ...kit.api.options import typed_settings
from ...kit.api.types import Response
from ...kit.rows import each_row

IGNORING, STRICT = typed_settings(), typed_settings(unknown_parameters="error")
ROWS = (
    Parameter("size", Integer(1, 5), 3, "size", equivalents={4: 3}),
    Parameter("length", Integer(1), 3, "size"),
    Parameter("stop", Texts(), (), "stop"),
    Parameter("idle", Anything(), None),
    Parameter("mark", Boolean(), False, "mark", default_only=True, why="nobody can"),
    Parameter("voice", Anything(), None, default_only=True),
)
TABLE, NEEDED = Table(ROWS), Table(ROWS, ("size",))


@each_row(
    ("given", "values", "names"),
    [
        ({}, {}, {}),
        (dict.fromkeys(TABLE), {}, {}),
        ({"size": 1}, {"size": 1}, {"size": "a.size"}),
        ({"size": 4}, {}, {"size": "a.size"}),
        ({"size": 2, "length": 2.0}, {"size": 2}, {"size": "a.size"}),
        ({"size": 3, "length": 3}, {}, {"size": "a.size"}),
        ({"stop": []}, {}, {"stop": "a.stop"}),
        ({"idle": {"odd": 1}, "mark": False}, {}, {"mark": "a.mark"}),
    ],
)
def test_what_is_read(given: Any, values: dict[str, Any], names: dict[str, str]) -> None:
    assert TABLE.read("a", given, STRICT) == ({"size": 3, "stop": (), "mark": False, **values}, names)


@each_row(
    ("table", "given", "error", "message"),
    [
        (TABLE, 5, PayloadError, "a: expected an object, got 5"),
        (TABLE, {"size": 6}, ParameterError, "a.size: expected an integer from 1 to 5, got 6"),
        # A default that is said is a value, too.
        (TABLE, {"length": 3, "size": 2}, ParameterError,
         "a.size: the same parameter as a.length, which has another value; set only one of them"),
        (TABLE, {"mark": True}, UnsupportedError,
         "a.mark: expected False, the only value that is supported (nobody can), got True"),
        (TABLE, {"voice": {}}, UnsupportedError, "a.voice: not supported"),
        (TABLE, {"odd": 1}, UnsupportedError, "a.odd: unknown field"),
        (TABLE, {"sizes": 1}, UnsupportedError, "a.sizes: unknown field; did you mean a.size?"),
        (NEEDED, {}, PayloadError, "a.size: expected an integer from 1 to 5, but there is no such field"),
        (NEEDED, {"size": None}, PayloadError, "a.size: expected an integer from 1 to 5, got None"),
    ],
)  # fmt: skip
def test_what_is_refused(table: Table, given: Any, error: type[RequestError], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        table.read("a", given, STRICT)
    assert (type(caught.value), caught.value.message) == (error, message)
    assert caught.value.param == message.partition(":")[0]


def test_an_unknown_field_is_ignored_with_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not with its value, which may be a secret; and unknown names cannot fill the log."""
    forget_logged_names(monkeypatch)
    with caplog.at_level(logging.WARNING):
        for place in ("a", "a", ""):
            values, _ = TABLE.read(place, {"odd": "secret", "nothing": None, "two\nlines" + "x" * 1000: 1}, IGNORING)
            assert values == TABLE.read("", {}, IGNORING)[0]
        long = "two lines" + "x" * 55
        told = [f"unknown request field ignored: {name}" for name in ("a.odd", f"a.{long}", "odd", long)]
        assert caplog.messages == told
        TABLE.read("a", {f"odd{number}": 1 for number in range(2 * MAX_LOGGED_NAMES)}, IGNORING)
    assert len(caplog.messages) == MAX_LOGGED_NAMES


@each_row("name", FORMS)
def test_each_dialect_reads_by_tables(name: str) -> None:
    """An unknown field is refused where the option says so, and is named; null is the same as leaving it out."""
    form = FORMS[name]
    form.asked(STRICT, odd=None)
    answer = form.answer(STRICT, odd=1)
    assert isinstance(answer, Response)
    assert isinstance(answer.failure, UnsupportedError)
    assert (answer.failure.param, answer.failure.message) == ("odd", "odd: unknown field")
    form.asked(IGNORING, odd=1)
