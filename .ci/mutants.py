"""How many small faults the tests notice: python -P .ci/mutants.py SEED COUNT [JOBS], as `make mutants` runs it.

Chooses COUNT mutants by SEED, one line of code as likely as another: the same for the same sources, and those of a
smaller COUNT first. Where SEED is the .json of an earlier run, they are those of it whose lines are still there.

Each is made in a clone of HEAD in .cache/mutants. There run, until one fails: the unit tests of its module's own file,
those that execute its line, the engine's tests of that file and of its folder, and tests/contract. A line that runs at
import is executed by all that execute others of its file. A test that hangs has noticed it, too.

mutmut has the operators: it knows arguments, strings and branches, which cosmic-ray does not. It does not run them: it
would leave out methods with decorators and tables at module level, and what runs in a process of its own. unshare
(util-linux) keeps each run's processes apart; -P because coverage.py lies beside this file.

The table is in .cache/mutants/*.txt and .json; what is there of the same sources is not run again. Exit status 1: one
survived.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import os
import queue
import random
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import libcst as cst
from coverage import CoverageData
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators, operator_assignment

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".cache/mutants"
PACKAGES = ("model", "handler", "formatters")
KEPT = ("demo-model", "vocabularies", "djl-host")
"""Of .cache: what tests would make anew in each clone."""
ELSEWHERE = re.compile(r"TYPE_CHECKING|cuda|win32|darwin")
"""In conditions of what does not run here."""
STRINGS = (cst.SimpleString, cst.FormattedString, cst.ConcatenatedString)
CALLS = re.compile(r"((log|logger|warnings)\..*|(.*\.)?(cast|TypeVar|NewType|getLogger))")
"""What is called for people, or for type checkers."""
UNITS, ENGINES = ("-m", "unit"), ("-m", "not unit and not slow and not timing")
LIMIT = 600
"""Seconds for one mutant's tests of a kind; a test has 120."""
MOST = 600
"""Tests that execute a line, by lot."""


def negation(node: cst.If) -> list[cst.CSTNode]:
    """`if a` becomes `if not (a)`: mutmut has it for comparisons and `not a` alone."""
    inner = node.test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    space = cst.SimpleWhitespace(" ")
    return [node.with_changes(test=cst.UnaryOperation(cst.Not(), inner), whitespace_before_test=space)]


class Sites(cst.CSTVisitor):
    """What can be changed on a line: the operator's name, the node, and what takes its place."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, module: cst.Module, line: int) -> None:
        self.code = module.code_for_node
        self.line = line
        self.found: list[tuple[str, cst.CSTNode, cst.CSTNode]] = []
        super().__init__()

    def on_visit(self, node: cst.CSTNode) -> bool:
        place = self.get_metadata(PositionProvider, node, None)
        if (place and not place.start.line <= self.line <= place.end.line) or self._without_behaviour(node):
            return False
        if place and place.start.line == self.line:
            for kind, operator in [*mutation_operators, (cst.If, negation)]:
                if isinstance(node, kind) and not self._noticed_by_any(node, operator, place.start.column):
                    self.found += [(operator.__name__, node, other) for other in operator(node)]
        return True

    def _without_behaviour(self, node: cst.CSTNode) -> bool:
        match node:
            case cst.Annotation() | cst.Import() | cst.ImportFrom() | cst.Decorator() | cst.Raise() | cst.Assert():
                return True
            case cst.Expr(value=cst.SimpleString() | cst.ConcatenatedString()):
                return True
            case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value="__all__" | "__slots__"))]):
                return True
            case cst.AnnAssign(annotation=cst.Annotation(annotation=cst.Name(value="TypeAlias"))):
                return True
            case cst.Arg(keyword=cst.Name(value="strict")):  # of zip
                return True
            case cst.If():
                return ELSEWHERE.search(self.code(node.test)) is not None
            case cst.Call():
                return any(map(self._words, node.args)) or CALLS.fullmatch(self.code(node.func)) is not None
        return self._words(node)

    def _words(self, node: cst.CSTNode) -> bool:
        text = node.value if isinstance(node, cst.Arg) else node
        return isinstance(text, STRINGS) and " " in self.code(text)

    def _noticed_by_any(self, node: cst.CSTNode, operator: Any, column: int) -> bool:
        match node:
            case cst.Call(func=cst.Name(value="len" | "isinstance")):
                return True
            case cst.Assign(targets=[cst.AssignTarget(target=cst.Tuple())]):
                return True
        return operator is operator_assignment and column == 0


def changed(old: str, new: str, around: int = 0) -> tuple[str, str]:
    """The lines that differ, with so many more on either side."""
    was, now = old.splitlines(keepends=True), new.splitlines(keepends=True)
    least = min(len(was), len(now))
    start = next((at for at in range(least) if was[at] != now[at]), least)
    end = next((at for at in range(least - start) if was[-1 - at] != now[-1 - at]), least - start)
    start, end = max(0, start - around), max(0, end - around)
    return "".join(was[start : len(was) - end]), "".join(now[start : len(now) - end])


def choose(seed: str, count: int) -> list[dict[str, Any]]:
    """The mutants: number, file, line, operator; old and new, their lines with three around; code, the whole file's."""
    files = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    nodes = ((file, node) for file in files for node in ast.walk(ast.parse(file.read_text())))
    lines = sorted({(file, getattr(node, "lineno", 0)) for file, node in nodes})
    read = functools.cache(lambda file: MetadataWrapper(cst.parse_module(file.read_text())))
    lot, chosen = random.Random(seed), list[dict[str, Any]]()
    for path, line in lot.sample(lines, len(lines)):
        wrapper, file = read(path), path.relative_to(ROOT).as_posix()
        wrapper.visit(sites := Sites(wrapper.module, line))
        if not sites.found:
            continue
        operator = lot.choice(sorted({name for name, _, _ in sites.found}))
        _, node, other = lot.choice([site for site in sites.found if site[0] == operator])
        code = wrapper.module.deep_replace(node, other).code
        try:
            compile(code, file, "exec")
        except SyntaxError:
            continue
        old, new = changed(wrapper.module.code, code, 3)
        if old != new:
            place = {"number": len(chosen), "file": file, "line": line, "operator": operator}
            chosen.append({**place, "old": old, "new": new, "code": code})
        if len(chosen) == count:
            break
    return chosen


def chosen_before(results: Path) -> Iterator[dict[str, Any]]:
    """Those of an earlier run, as far as their lines are there."""
    for mutant in json.loads(results.read_text()).values():
        path = ROOT / mutant["file"]
        text = path.read_text() if path.exists() else ""
        if text.count(mutant["old"]) == 1:
            line = text[: text.index(mutant["old"])].count("\n") + 4
            yield {**mutant, "line": line, "code": text.replace(mutant["old"], mutant["new"])}
        else:
            print(f"mutants: no longer there: {row(mutant)}", flush=True)


def clone(number: int) -> Path:
    """A clone of HEAD with an environment of its own."""
    tree = FOLDER / f"tree-{number}"
    if not tree.exists():
        subprocess.run(["git", "clone", "--quiet", "--shared", ROOT, tree], check=True)
    subprocess.run(["git", "fetch", "--quiet", ROOT, "HEAD"], cwd=tree, check=True)
    subprocess.run(["git", "checkout", "--quiet", "--force", "--detach", "FETCH_HEAD"], cwd=tree, check=True)
    for kept in KEPT:
        if (ROOT / ".cache" / kept).exists() and not (tree / ".cache" / kept).exists():
            shutil.copytree(ROOT / ".cache" / kept, tree / ".cache" / kept, symlinks=True)
    subprocess.run(["make", "--silent", "unit", "ARGS=--version", f"UV={os.environ['UV']}"], cwd=tree, check=True)
    return tree


def pytest(tree: Path, *arguments: str, limit: float | None = LIMIT, **variables: str) -> tuple[int | None, str]:
    """pytest's exit status, None where the time is over, and what it says."""
    (tree / ".cache/arguments").write_text("\n".join(arguments))
    root = [] if os.geteuid() == 0 else ["--map-root-user"]
    command = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", *root]
    # A namespace's first process takes in those whose parent has ended: the shell does.
    command += ["bash", "-c", '"$@"; exit $?', "init", "nice", "-n", "19", ".venv/bin/python", "-P", "-m", "pytest"]
    command += ["-q", "-n", "0", "-p", "no:cacheprovider", "@.cache/arguments"]
    with (tree / ".cache/output").open("w+") as output:
        try:
            ended = subprocess.run(
                command,
                cwd=tree,
                env={**os.environ, **variables},
                stdout=output,
                stderr=output,
                timeout=limit,
                check=False,
            )
            status = ended.returncode
        except subprocess.TimeoutExpired:
            status = None
        output.seek(0)
        return status, output.read()


def executed(tree: Path, sources: str) -> CoverageData:
    """Which units execute which lines of a clean tree; kept for the same sources."""
    file = FOLDER / f"{sources}.coverage"
    if not file.exists():
        print("mutants: which lines the unit tests execute (ten minutes, once for the same sources)", flush=True)
        covering = ("-n", "2", "--cov", "--cov-context=test", "--cov-report=")
        folders = (f"tests/{package}" for package in PACKAGES)
        pytest(tree, *covering, *UNITS, *folders, limit=None, COVERAGE_FILE=str(file.with_suffix(".part")))
        file.with_suffix(".part").rename(file)
    data = CoverageData(str(file))
    data.read()
    return data


def tests_of(mutant: dict[str, Any], data: CoverageData) -> list[str]:
    """The tests that execute its line."""
    file = next((name for name in data.measured_files() if name.endswith(f"/{mutant['file']}")), None)
    by_line = data.contexts_by_lineno(file) if file else {}
    ran = set(by_line.get(mutant["line"], []))
    contexts = set().union(*by_line.values()) if ran == {""} else ran
    tests = sorted({context.rpartition("|")[0] for context in contexts - {""}})
    return random.Random(0).sample(tests, min(MOST, len(tests)))


def killed(tree: Path, mutant: dict[str, Any], data: CoverageData) -> str | None:
    """The test that notices it; None: it survived."""
    folder, name = Path("tests", mutant["file"]).parent, Path(mutant["file"]).stem
    near = [path.relative_to(tree).as_posix() for path in sorted((tree / folder).glob("test_*.py"))]
    own = [file for file in near if Path(file).name.startswith(f"test_{name}")]
    others = [*(file for file in near if file not in own), "tests/contract"]
    path = tree / mutant["file"]
    original, was = path.read_text(), path.stat().st_mtime_ns
    try:
        path.write_text(mutant["code"])
        # Bytecode is told from what it was made of by the second and the size alone.
        os.utime(path, ns=(was, was + 1_000_000_000 * (mutant["number"] + 1)))
        for marks, tests in ((UNITS, own), (UNITS, tests_of(mutant, data)), (ENGINES, own), (ENGINES, others)):
            if not tests:
                continue
            status, said = pytest(tree, "-x", "--timeout=120", *marks, *tests)
            if status == 4:  # tests that are called as rows of a table, which is another now
                status, said = pytest(
                    tree, "-x", "--timeout=120", *marks, *dict.fromkeys(test.split("::")[0] for test in tests)
                )
            failed = re.search(r"^(?:FAILED|ERROR) (\S+\.py\S*)", said, re.MULTILINE)
            if status not in (0, 5, None):
                return (failed[1] if failed else f"exit status {status}") + " (timeout)" * ("Failed: Timeout" in said)
            if status is None and not re.search(r"^[.sx]", said, re.MULTILINE):
                return "timeout before a first test's end"
        return None
    finally:
        path.write_text(original)
        os.utime(path, ns=(was, was))


def row(mutant: dict[str, Any]) -> str:
    """One mutant, as text."""
    fate = f"killed by {mutant['killed']}" if mutant["killed"] else "SURVIVED"
    if mutant.get("doubtful"):
        fate = f"DOUBTFUL: {mutant['doubtful']} fails without it, too"
    place = f"{mutant['number']:>3} {mutant['file']}:{mutant['line']} {mutant['operator']}"
    old, new = (" ".join(text.split()) for text in changed(mutant["old"], mutant["new"]))
    return f"{place}\n    {old}\n -> {new}\n    {fate}"


def main(seed: str, count: str, jobs: str = "2") -> int:
    """Runs what is left to run; the exit status."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    listed = subprocess.run(["git", "ls-tree", "HEAD", *PACKAGES, "tests"], cwd=ROOT, check=True, capture_output=True)
    sources = hashlib.sha256(listed.stdout).hexdigest()[:12]
    trees = [clone(number) for number in range(int(jobs))]
    data = executed(trees[0], sources)
    results = FOLDER / f"results-{Path(seed).stem}-{sources}.json"
    done: dict[str, Any] = json.loads(results.read_text()) if results.exists() else {}
    mutants = [*chosen_before(Path(seed))] if seed.endswith(".json") else choose(seed, int(count))
    waiting: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    for mutant in mutants:
        if str(mutant["number"]) not in done:
            waiting.put(mutant)

    def work(tree: Path) -> None:
        while True:
            try:
                mutant = waiting.get_nowait()
            except queue.Empty:
                return
            by = killed(tree, mutant, data)
            # What fails without the mutant, too, has noticed nothing.
            doubtful = by is not None and "::" in by and pytest(tree, re.split(r"\[| \(", by)[0])[0] != 0
            found = {**mutant, "code": None, "killed": None if doubtful else by, "doubtful": by if doubtful else None}
            done[str(mutant["number"])] = found
            results.write_text(json.dumps(done, indent=1))
            print(row(found), flush=True)

    threads = [threading.Thread(target=work, args=(tree,)) for tree in trees]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [done[str(mutant["number"])] for mutant in mutants]
    results.with_suffix(".txt").write_text("\n".join(map(row, found)) + "\n")
    survived = sum(mutant["killed"] is None for mutant in found)
    print(f"mutants: {len(found) - survived} of {len(found)} killed: {results.with_suffix('.txt')}")
    return int(survived > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
