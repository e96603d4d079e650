"""msgspec's structs are made known to it where their modules are loaded, by decoders of their own.

Where two threads are the first to decode one type, msgspec (0.22) reads what the other has half made: the
process ends by a signal, or a thread never returns. Of eight threads at once that happened in a quarter of the runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..kit.paths import ROOT
from ..kit.rows import each_row

SOURCES = {
    path.relative_to(ROOT).as_posix(): path.read_text("utf-8")
    for layer in ("model", "formatters", "handler")
    for path in sorted((ROOT / layer).rglob("*.py"))
}
KNOWN = {"Any", "Raw", "bool", "bytes", "dict", "float", "int", "list", "msgspec", "object", "str", "tuple"}
"""Names in types that msgspec knows from its own start."""


def faults(source: str) -> Iterator[str]:
    """Calls within functions that are given a type of the project's."""
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        for call in ast.walk(function):
            if not isinstance(call, ast.Call) or not ast.unparse(call.func).startswith("msgspec."):
                continue
            given = [word.value for word in call.keywords if word.arg == "type"]
            if call.func.attr == "convert":  # type: ignore[attr-defined]
                given += call.args[1:2]
            names = {name.id for one in given for name in ast.walk(one) if isinstance(name, ast.Name)}
            if names - KNOWN:
                yield ast.unparse(call)


def test_no_function_is_the_first_to_decode_a_struct() -> None:
    alias = {"formatters/common/prompts.py": ["msgspec.convert(given, TokenIds)"]}
    """A tuple of integers."""
    found = {path: [*faults(source)] for path, source in SOURCES.items()}
    assert {path: calls for path, calls in found.items() if calls and calls != alias.get(path)} == {
        "model/options/option.py": ["msgspec.json.decode(text.encode(), type=type)"]  # of fields of our own, at start
    }


@each_row(
    ("source", "found"),
    [
        ("def f(d):\n    return msgspec.json.decode(d, type=Kept)", 1),
        ("def f(d):\n    return msgspec.convert(d, dict[str, Kept])", 1),
        ("def f(d):\n    return msgspec.json.decode(d, type=dict[str, msgspec.Raw])", 0),
        ("_decode = msgspec.json.Decoder(Kept).decode", 0),
    ],
)
def test_what_is_found(source: str, found: int) -> None:
    assert len([*faults(source)]) == found
