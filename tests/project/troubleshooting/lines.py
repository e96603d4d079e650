"""The lines at WARNING and above that sources log, read without importing them.

A line is told by its fixed text, with `…` for what differs: `log.error("request %s: %s", ...)` logs `request …: …`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

__all__ = ["OTHERS_TEXT", "findings_in", "lines_in", "passed_on", "returned_by", "strays"]

OTHERS_TEXT = "…"
"""A line that says no more than what was made elsewhere."""
LEVELS = {"warn", "warning", "error", "exception", "critical", "fatal"}
LOGGER = "log"
"""What each module calls its logger."""
PLACEHOLDER = re.compile(r"%[-#0 +]*\d*(?:\.\d+)?[a-zA-Z]")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def lines_in(source: str) -> Iterator[str]:
    """Each line that a file logs at these levels, as often as it does; at a level that is chosen, too."""
    for call, names in _calls(ast.parse(source)):
        if not isinstance(call.func, ast.Attribute) or not _is_name(call.func.value, LOGGER):
            continue
        if call.func.attr in LEVELS:
            yield _text(call.args[0], names)
        elif call.func.attr == "log":
            yield _text(call.args[1], names)


def passed_on(source: str, function: str) -> Iterator[str]:
    """The same of a function that logs what it is given: what each call gives it first."""
    for call, names in _calls(ast.parse(source)):
        if _is_name(call.func, function):
            yield _text(call.args[0], names)


def returned_by(source: str, function: str) -> Iterator[str]:
    """The texts that a function of the file returns."""
    for made in ast.walk(ast.parse(source)):
        if isinstance(made, Function) and made.name == function:
            for node in ast.walk(made):
                if isinstance(node, ast.Return) and isinstance(node.value, ast.JoinedStr):
                    yield _text(node.value, {})


def findings_in(source: str, level: str) -> Iterator[str]:
    """What a file says of options at `level`: `Finding(LEVEL, TEXT)`, or `note(NAME, TEXT, LEVEL)`, where what the
    option is called goes before.
    """
    for call, names in _calls(ast.parse(source)):
        given = [*call.args, *(word.value for word in call.keywords if word.arg == "level")]
        if not any(isinstance(one, ast.Constant) and one.value == level for one in given):
            continue
        if _is_name(call.func, "Finding"):
            yield _text(given[1], names)
        elif isinstance(call.func, ast.Attribute) and call.func.attr == "note":
            yield _short(OTHERS_TEXT + _text(given[1], names))


def strays(source: str) -> list[str]:
    """What a file logs by, where `lines_in` does not see it: loggers of other names, and their methods as values."""
    tree = ast.parse(source)
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and "getLogger(__name__)" in ast.unparse(node.value):
            found += [ast.unparse(node)] if not _is_name(node.targets[0], LOGGER) else []
        elif isinstance(node, ast.Attribute) and node.attr in LEVELS:
            of_root = _is_name(node.value, "logging") or "getLogger(" in ast.unparse(node.value)
            as_value = _is_name(node.value, LOGGER) and id(node) not in called
            found += [ast.unparse(node)] if of_root or as_value else []
    return found


def _calls(tree: ast.Module) -> Iterator[tuple[ast.Call, Mapping[str, ast.expr]]]:
    """Each call, with what the names of its function were given there."""
    yield from _calls_under(tree, {})


def _calls_under(node: ast.AST, names: Mapping[str, ast.expr]) -> Iterator[tuple[ast.Call, Mapping[str, ast.expr]]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            yield child, names
        yield from _calls_under(child, _given_in(child) if isinstance(child, Function) else names)


def _given_in(function: Function) -> dict[str, ast.expr]:
    assigned = (node for node in ast.walk(function) if isinstance(node, ast.Assign))
    return {node.targets[0].id: node.value for node in assigned if isinstance(node.targets[0], ast.Name)}


def _text(node: ast.expr, names: Mapping[str, ast.expr]) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return _short(PLACEHOLDER.sub(OTHERS_TEXT, text))
        case ast.JoinedStr(values=parts):
            # A percent sign there is one.
            told = (str(part.value) if isinstance(part, ast.Constant) else OTHERS_TEXT for part in parts)
            return _short("".join(told))
        case ast.Name(id=name) if name in names:
            return _text(names[name], {})
    return OTHERS_TEXT


def _short(text: str) -> str:
    return re.sub(r"…(?:[.=]?…)+", OTHERS_TEXT, text)


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
