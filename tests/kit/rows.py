"""Tables of cases in one item of pytest: an item of its own costs several times what most cases cost."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterable
from functools import partial, wraps
from typing import Any

import pytest

__all__ = ["Failed", "each_row"]

Test = Callable[..., Any]
Failed: type[BaseException] = pytest.fail.Exception
"""What a test with rows that fail raises."""
# A row that skips would take those after it along.
FAULTS = (Exception, pytest.fail.Exception, pytest.skip.Exception)


def each_row(
    names: str | tuple[str, ...], values: Iterable[Any], ids: Callable[[Any], Any] | Iterable[Any] | None = None
) -> Callable[[Test], Test]:
    """As `pytest.mark.parametrize`, but all rows are one item, which runs each of them and names all that fail.

    The rows share the test's fixtures: a test that leaves something in one of them is parametrized instead. One that is
    a coroutine runs on an event loop of each row's.
    """
    arguments = [names] if isinstance(names, str) else [*names]
    table = _table(arguments, list(values), ids)
    if not table:
        raise ValueError(f"a table of {', '.join(arguments)} without rows checks nothing")

    def decorate(test: Test) -> Test:
        run = partial(_on_loop, test) if inspect.iscoroutinefunction(test) else test

        @wraps(test)
        def looped(*args: Any, **fixtures: Any) -> None:
            __tracebackhide__ = True
            told = [(index, _fault(partial(run, *args, **fixtures, **row))) for index, (_, row) in enumerate(table)]
            failed = [f"{index}: {table[index][0]()}\n{fault}" for index, fault in told if fault]
            if failed:
                pytest.fail("\n\n".join((f"{len(failed)} of {len(table)} rows:", *failed)), pytrace=False)

        signature = inspect.signature(test)
        fixtures = [parameter for name, parameter in signature.parameters.items() if name not in arguments]
        vars(looped)["__signature__"] = signature.replace(parameters=fixtures)
        return looped

    return decorate


def _on_loop(test: Callable[..., Coroutine[Any, Any, None]], *args: Any, **named: Any) -> None:
    asyncio.run(test(*args, **named))


def _fault(run: Callable[[], None]) -> str:
    """What pytest would show of it; "" of a row that passes."""
    __tracebackhide__ = True
    try:
        run()
    except FAULTS as error:
        return str(pytest.ExceptionInfo.from_exception(error).getrepr(style="short"))
    return ""


def _table(
    arguments: list[str], values: list[Any], ids: Callable[[Any], Any] | Iterable[Any] | None
) -> list[tuple[Callable[[], Any], dict[str, Any]]]:
    """What tells each row's name, which takes longer than many rows do, and its arguments."""
    given = None if ids is None or callable(ids) else list(ids)
    if given is not None and len(given) != len(values):
        raise ValueError(f"{len(values)} rows, {len(given)} ids")
    shown = ids if callable(ids) else "{!r:.60}".format
    table: list[tuple[Callable[[], Any], dict[str, Any]]] = []
    for index, value in enumerate(values):
        row, name = value if len(arguments) > 1 else (value,), given and given[index]
        if isinstance(value, type(pytest.param())):
            if value.marks:
                raise ValueError(f"row {index} has marks, which are for items")
            row, name = value.values, value.id or name
        tell = partial(_named, shown, row) if name is None else partial(str, name)
        table.append((tell, dict(zip(arguments, row, strict=True))))
    return table


def _named(shown: Callable[[Any], Any], row: Iterable[Any]) -> str:
    return ", ".join(str(shown(one)) for one in row)
