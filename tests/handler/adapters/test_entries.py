"""The table of registrations."""

from __future__ import annotations

from lmi.handler.adapters.entries import Entries, Entry

from ...kit.api.engine import Adapter
from ...kit.api.errors import AdapterError


def entry(name: str, number: int = 1, alias: str | None = None) -> Entry:
    return Entry(Adapter(name, number, f"/adapters/{name}"), "api", alias)


def test_a_name_goes_before_an_alias() -> None:
    entries = Entries()
    aliased, named = entry("a", alias="b"), entry("b", 2)
    entries.add(aliased)
    assert entries.get("b") is aliased
    assert entries.named("b") is None
    entries.add(named)
    assert entries.get("b") is named
    assert entries.all() == [aliased, named]


def test_what_has_been_replaced_is_dropped_without_its_successor() -> None:
    entries = Entries()
    old, new = entry("a", 1, alias="alias"), entry("a", 2, alias="alias")
    entries.add(old)
    entries.drop(old)
    entries.add(new)
    entries.drop(old)
    assert entries.get("a") is entries.get("alias") is new
    assert entries.holds(new)
    assert not entries.holds(old)


def test_only_what_is_not_loaded_yet_or_has_code_has_code() -> None:
    entries = Entries()
    loading, failed = entry("a"), entry("b", 2)
    entries.add(loading)
    entries.add(failed)
    assert entries.has_code
    loading.ready.set_result(None)
    assert entries.has_code
    failed.ready.set_exception(AdapterError("it does not fit"))
    assert failed.failed
    assert not entries.has_code
