"""The table of examples."""

from __future__ import annotations

from lmi.handler.server.playground.examples import EXAMPLES

from ....kit.api.dialects import DIALECTS


def test_entries_do_not_repeat() -> None:
    keys = [(one.dialect, one.path, one.title) for one in EXAMPLES]
    assert len(set(keys)) == len(keys)


def test_every_dialect_has_an_entry() -> None:
    assert {one.dialect for one in EXAMPLES} == {dialect.name for dialect in DIALECTS}


def test_entries_are_of_dialects_and_routes_that_there_are() -> None:
    routes = {(dialect.name, route.path) for dialect in DIALECTS for route in dialect.routes}
    named = {(one.dialect, path) for one in EXAMPLES for path in (one.path, one.stream_path)}
    assert {one for one in named if one[1] not in ("", "/invocations")} <= routes
