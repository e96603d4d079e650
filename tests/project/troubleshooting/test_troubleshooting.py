"""docs/troubleshooting.md has every error code and every line at WARNING and above, and none that there is not."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator

import msgspec

from ...kit.api.dialects import DIALECTS
from ...kit.api.errors import LmiError
from ...kit.api.options import typed_settings
from ...kit.api.types import Request
from ...kit.paths import DOCS, ROOT
from ...kit.rows import each_row
from .lines import OTHERS_TEXT, findings_in, lines_in, passed_on, returned_by, strays

LAYERS = ("model", "handler", "formatters")
SOURCES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for layer in LAYERS
    for path in sorted((ROOT / layer).rglob("*.py"))
}
PAGE = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
HEADING = "## Lines of the log"
"""What stands before it is about errors, what stands after it about lines."""
CODE = re.compile(r"`([^`]+)`")

MADE_ELSEWHERE: dict[str, Callable[[], Iterator[str]]] = {
    "formatters/common/fields.py": lambda: _of_all(lambda source: passed_on(source, "log_once")),
    "model/options/load.py": lambda: _of_all(lambda source: findings_in(source, "warning"), "model/options/"),
    "model/vllm/library/parts.py": lambda: returned_by(SOURCES["model/vllm/library/version.py"], "warning"),
}
"""By file that logs what was made elsewhere, once each, what that may be."""


def _of_all(find: Callable[[str], Iterator[str]], under: str = "") -> Iterator[str]:
    for path, source in SOURCES.items():
        if path.startswith(under):
            yield from find(source)


def rows(text: str) -> list[list[str]]:
    """The cells of the tables' rows whose first one begins with code."""
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]


ERRORS, _, LINES = PAGE.partition(HEADING)
ERROR_ROWS = rows(ERRORS)
LINE_ROWS = rows(LINES)


def test_each_line_of_the_log_is_told() -> None:
    """By its fixed text, once, and there is none that nothing logs."""
    told = Counter(text for row in LINE_ROWS for text in CODE.findall(row[0]))
    logged = {text for source in SOURCES.values() for text in lines_in(source)} - {OTHERS_TEXT}
    logged |= {text for made in MADE_ELSEWHERE.values() for text in made()}
    assert len(logged) > 90
    assert sorted(logged - told.keys()) == []
    assert sorted(told.keys() - logged) == []
    assert [text for text, count in told.items() if count > 1] == []


def test_what_was_made_elsewhere_is_known() -> None:
    """A new line without a text of its own would be on no page."""
    found = Counter(path for path, source in SOURCES.items() for text in lines_in(source) if text == OTHERS_TEXT)
    assert found == dict.fromkeys(MADE_ELSEWHERE, 1)
    assert all(len({*made()}) >= 1 for made in MADE_ELSEWHERE.values())


def test_no_line_is_overlooked() -> None:
    assert {path: found for path, source in SOURCES.items() if (found := strays(source))} == {}


def test_each_row_says_why_and_what_to_do() -> None:
    assert [row[0] for row in ERROR_ROWS if len(row) != 6 or not all(row)] == []
    assert [row[0] for row in LINE_ROWS if len(row) != 3 or not all(row)] == []


def kinds(kind: type[LmiError] = LmiError) -> Iterator[type[LmiError]]:
    """It and what is derived from it in model/errors.py."""
    if kind.__module__ == LmiError.__module__:
        yield kind
    for below in kind.__subclasses__():
        yield from kinds(below)


def seen(kind: type[LmiError]) -> list[str]:
    """What clients see of an error, as the page's cells: statuses, Anthropic's type, TGI's."""
    settings, request = typed_settings(), Request(b"{}")
    answers = {dialect.name: dialect.refuse(kind("why", "field"), None, request, settings) for dialect in DIALECTS}
    statuses = {name: answer.status for name, answer in answers.items()}
    assert statuses["dynamic"] == statuses["lmi"], "of LMI's two forms"
    others = {"LMI": statuses["lmi"], "TGI": statuses["tgi"], "Azure": statuses["azure"]}
    rest = {status for name, status in statuses.items() if name not in {"dynamic", "lmi", "tgi", "azure"}}
    assert rest == {kind.status}
    told = [str(kind.status), *(f"{name} {status}" for name, status in others.items() if status != kind.status)]
    anthropics = msgspec.json.decode(answers["anthropic"].body)["error"]["type"]
    tgis = msgspec.json.decode(answers["tgi"].body)["error_type"]
    return [", ".join(told), f"`{anthropics}`", f"`{tgis}`"]


def test_each_error_code_is_told() -> None:
    """Once, with what clients see of it in each dialect; and there is none that no error has."""
    told = {code: row[1:4] for row in ERROR_ROWS for code in CODE.findall(row[0])}
    assert len(told) == len(ERROR_ROWS)
    assert told == {kind.code: seen(kind) for kind in kinds()}


@each_row(
    ("source", "found"),
    [
        ("log.warning('a %s, %5.1f s, %-3d and %r', 1, 2, 3, 4)", ["a …, … s, … and …"]),
        ("log.error('a' 'b')", ["ab"]),
        ("log.exception(f'{a}: no %s')", ["…: no %s"]),
        ("log.info('a')\nlog.debug('b')", []),
        ("log.log(level, 'a %s', 1)", ["a …"]),
        ("log.critical('%s', cause)", [OTHERS_TEXT]),
        ("def f(text):\n    log.warning(text)", [OTHERS_TEXT]),
        ("def f():\n    text = 'a'\n    log.warning(text)", ["a"]),
        ("class A:\n    async def f(self):\n        if x:\n            log.error('%s.%s went', x, y)", ["… went"]),
        ("task.exception()\nOutput().error('a')", []),
    ],
)
def test_what_a_source_logs(source: str, found: list[str]) -> None:
    assert [*lines_in(source)] == found


@each_row(
    ("source", "found"),
    [
        ("Finding('warning', 'a')", ["a"]),
        ("Finding('note', 'a')", []),
        ("reader.note('name', ' has no effect', 'warning')", ["… has no effect"]),
        ("reader.note('name', f'={value} is', level='warning')", ["… is"]),
        ("reader.note('name', ' is the word warning')", []),
        ("def f():\n    why = f'{a} is'\n    Finding('warning', why)", ["… is"]),
    ],
)
def test_what_is_found_of_options(source: str, found: list[str]) -> None:
    assert [*findings_in(source, "warning")] == found


@each_row(
    ("source", "found"),
    [
        ("log = logging.getLogger(__name__)", []),
        ("logger = logging.getLogger(__name__)", ["logger = logging.getLogger(__name__)"]),
        ("logging.warning('a')", ["logging.warning"]),
        ("logging.getLogger('a').error('b')", ["logging.getLogger('a').error"]),
        ("tell = log.warning", ["log.warning"]),
        ("log.warning('a')\nerror.error", []),
    ],
)
def test_what_is_overlooked(source: str, found: list[str]) -> None:
    assert strays(source) == found
