"""README and docs/: what they name is there, and each of their examples is run by some test or says why not."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import lmi.model
from lmi.model.options import load_settings

from ..kit.installed import VERSION
from ..kit.pages import PAGES, Block, blocks_of, prose_of
from ..kit.paths import DOCS, README, ROOT
from ..kit.rows import each_row

ALL_BLOCKS = [block for page in PAGES for block in blocks_of(page)]
LANGUAGES = {"bash", "console", "dockerfile", "html", "js", "json", "properties", "python", "toml", "yaml", ""}
WITH_PYTHON = {
    "README.md": "test_docs_clients.py",
    "agents.md": "documented.py",
    "clients.md": "test_docs_clients.py",
    "containers.md": "test_hooks.py",
    "content-filter.md": "test_examples.py",
    "embeddings.md": "test_embeddings.py",
    "custom-code.md": "test_examples.py",
    "many-adapters.md": "test_many.py",
    "migrating.md": "test_examples.py",
    "own-dialect.md": "test_examples.py",
    "retrieval.md": "test_examples.py",
    "sagemaker.md": "test_sagemaker_requests.py",
    "sessions.md": "test_docs_sessions.py",
}
"""By page, the test that runs its Python."""
PATH = re.compile(r"(?<![\w./-])(?:\.ci|\.requirements|docs|formatters|handler|model|tests)/[\w./-]*")
"""A path from the root of the repository."""
LINK = re.compile(r"\[[^]]*\]\(([^)\s]+)\)")
CITATION = re.compile(r"docs/decisions\.md:(?: (\w(?:[\w' -]*\w)?))?")
"""One of a decision on a wire format, with its heading; on one line, without which it is empty."""
NOTES = re.compile(r"wire.decisions|\bspecs?,? 00\d|djl-contract", re.IGNORECASE)
"""What is not in the repository, and so nobody could look up."""
FOLDERS = ("docs", "formatters", "handler", "model", "tests")
SOURCES = [
    path
    for path in (*ROOT.glob("*"), *(path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*"))))
    if path.suffix in (".py", ".md") and path != Path(__file__)
]


def of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """The page's headings as GitHub names them."""
    headings = re.findall(r"^#+ (.+)$", prose_of(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_there_is_an_index() -> None:
    """Every page is linked to in docs/README.md, and README is short."""
    linked = set(LINK.findall((DOCS / "README.md").read_text(encoding="utf-8")))
    assert {str(page.relative_to(DOCS)) for page in PAGES if page.name != "README.md"} <= linked
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 250
    assert "make serve" in text
    assert "make test" in text


@each_row("page", PAGES, ids=of)
def test_files_that_are_named_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    if page.name == "threat-model.md":
        # Its tests are named from tests/ on; test_threat_model.py looks for them.
        text = "\n".join(line for line in text.splitlines() if not line.startswith("| "))
    named = {name.rstrip(".") for name in PATH.findall(text)}
    missing = sorted(name for name in named if not (ROOT / name).exists())
    assert not missing


@each_row("page", PAGES, ids=of)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in LINK.findall(prose_of(page)):
        target, _, anchor = link.partition("#")
        if target.startswith(("http://", "https://")):
            continue
        file = (page.parent / target).resolve() if target else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(link)
    assert not broken


def uncited(text: str, headings: set[str]) -> list[str]:
    """What a text cites of docs/decisions.md that is none of its headings."""
    return [cited for cited in CITATION.findall(text) if cited not in headings]


def test_decisions_that_are_cited_are_there() -> None:
    """And no notes are cited that readers do not have."""
    page = DOCS / "decisions.md"
    headings = re.findall(r"^###? (.+)$", prose_of(page), re.MULTILINE)
    assert len(headings) == len(set(headings))
    texts = {of(path): path.read_text(encoding="utf-8") for path in SOURCES}
    wrong = {name: uncited(text, {*headings}) for name, text in texts.items()}
    assert {name: cited for name, cited in wrong.items() if cited} == {}
    assert [name for name, text in texts.items() if NOTES.search(text)] == []
    assert sum("docs/decisions.md: " in text for text in texts.values()) >= 20


@each_row(
    ("text", "wrong"),
    [
        ("(docs/decisions.md: Two words)", []),
        ("docs/decisions.md has them", []),
        ("(docs/decisions.md: Two)", ["Two"]),
        ("(docs/decisions.md:\n    Two words)", [""]),
    ],
)
def test_what_is_cited(text: str, wrong: list[str]) -> None:
    assert uncited(text, {"Two words"}) == wrong


def test_where_answers_with_files() -> None:
    """Each row of docs/where.md names one at least, and there are twenty."""
    lines = (DOCS / "where.md").read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("| ") and line not in {"| what | where |", "| --- | --- |"}]
    assert len(rows) >= 20
    for row in rows:
        assert PATH.search(row.split(" | ", 1)[1]) or "`setup.py`" in row, row


def test_commands_of_make_are_told() -> None:
    """Every target of the Makefile is on a page. Whether those in blocks are targets, test_docs_examples.py tries."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    phony = re.findall(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    assert phony
    told = {name for page in PAGES for name in re.findall(r"`?make ([a-z-]+)", page.read_text(encoding="utf-8"))}
    assert set(" ".join(phony).split()) <= told


@each_row("block", ALL_BLOCKS, ids=str)
def test_each_block_is_run_or_excused(block: Block) -> None:
    assert block.language in LANGUAGES
    if block.excused:
        assert block.language in {"bash", "properties", "python"}
    elif block.language == "python":
        assert block.page.name in WITH_PYTHON


def test_tests_of_python_blocks_exist() -> None:
    assert {block.page.name for block in ALL_BLOCKS if block.language == "python"} == set(WITH_PYTHON)
    for test in WITH_PYTHON.values():
        assert len([*(ROOT / "tests").rglob(test)]) >= 1


@each_row("block", [one for one in ALL_BLOCKS if one.language == "json"], ids=str)
def test_json_is_json(block: Block) -> None:
    documents = [block.text] if block.text.startswith("{\n") else block.text.splitlines()
    for document in documents:
        json.loads(document)


PROPERTIES = [one for one in ALL_BLOCKS if one.language == "properties" and not one.excused]


@pytest.mark.parametrize("block", PROPERTIES, ids=str)
def test_properties_are_accepted(block: Block, tmp_path: Path) -> None:
    (tmp_path / "serving.properties").write_text(block.text)
    settings = load_settings(tmp_path, environment={}, overrides={})
    assert settings.host["entryPoint"] == "lmi.handler"
    assert settings.notes == ()


def test_events_are_the_lines() -> None:
    """docs/lmi.md shows one stream in both forms."""
    blocks = [*blocks_of(DOCS / "lmi.md")]
    (events,) = [block.text for block in blocks if block.text.startswith("data: ")]
    lines = "".join(event.removeprefix("data: ") + "\n" for event in events.split("\n\n") if event.strip())
    assert lines in [block.text for block in blocks if block.language == "json"]


def test_the_version_is_the_same_everywhere() -> None:
    """Of the package, in its own words too; of the changelog's head; of the wheel that a page names."""
    assert lmi.model.VERSION == VERSION
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == VERSION
    numbers = [tuple(map(int, heading.split("."))) for heading in headings]
    assert numbers == sorted(set(numbers), reverse=True)
    named = re.findall(r"lmi_handler-(\d[\d.]*)-py3", (DOCS / "deploying.md").read_text(encoding="utf-8"))
    assert set(named) == {VERSION}
