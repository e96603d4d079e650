"""How many small faults the tests notice: python -P .ci/mutants.py SEED COUNT [JOBS], by way of `make mutants`  (-P: coverage.py beside it is another)

Chooses COUNT mutants of model/, handler/ and formatters/ by SEED, each line of code as likely as another: the same for the same commit and seed, and
those of a smaller COUNT are the first ones of a larger. Each is made in a clone of HEAD in .cache/mutants, where the tests run that execute
its line: the units first, then those of engines; then, whatever they execute, the tests of the folder that mirrors the file's and
tests/contract. Where a fault at import is concerned, any test of the file's counts. What fails a test, or hangs it, is killed.

The operators are mutmut's, which know arguments, strings and branches (cosmic-ray's do not), and one that turns conditions round. mutmut itself
would leave out methods with decorators and tables at module level, and cannot choose tests of engines. Needs unshare (util-linux):
processes of a mutant end with it, and none can reach another's.

Results: .cache/mutants/results-SEED.json and .txt; what is there of the same commit is not run again. Exit status 1: one survived.
"""

from __future__ import annotations

import ast
import difflib
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
"""In the conditions of what does not run here."""
STRINGS = (cst.SimpleString, cst.FormattedString, cst.ConcatenatedString)
TYPING = ("cast", "TypeVar", "NewType", "getLogger")
MAPS = {
    "units": ["-m", "unit", "tests/model", "tests/handler", "tests/formatters"],
    "engines": ["-m", "engine and not slow and not timing and not hosts", "tests/model", "tests/formatters", "tests/oracles"],
}
LIMITS = {"units": 240, "engines": 420, "rest": 480}
"""Seconds for one mutant's tests of a kind; a unit test alone has 60."""
MOST = 600
"""Tests of one kind for one mutant: those of its own file first, then by lot."""


def negation(node: cst.If | cst.While) -> list[cst.CSTNode]:
    """`if a` becomes `if not (a)`: mutmut has it for `not a`, comparisons and a if b else c alone."""
    inner = node.test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return [node.with_changes(test=cst.UnaryOperation(cst.Not(), inner), whitespace_before_test=cst.SimpleWhitespace(" "))]


OPERATORS: list[Any] = [*mutation_operators, (cst.If, negation)]


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
        if place and not place.start.line <= self.line <= place.end.line or self._without_behaviour(node):
            return False
        if place and place.start.line == self.line:
            for kind, operator in OPERATORS:
                if isinstance(node, kind) and not self._too_plain(node, operator, place.start.column):
                    self.found += [(operator.__name__, node, other) for other in operator(node)]
        return True

    def _without_behaviour(self, node: cst.CSTNode) -> bool:
        match node:
            case cst.Annotation() | cst.Import() | cst.ImportFrom() | cst.Decorator() | cst.Raise() | cst.Assert():
                return True
            case cst.Expr(value=cst.SimpleString() | cst.ConcatenatedString()):
                return True
            case _ if isinstance(node, STRINGS):
                return " " in self.code(node)  # words for people
            case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value="__all__" | "__slots__"))]):
                return True
            case cst.AnnAssign(annotation=cst.Annotation(annotation=cst.Name(value="TypeAlias"))):
                return True
            case cst.If():
                return ELSEWHERE.search(self.code(node.test)) is not None
            case cst.Arg(keyword=cst.Name(value="strict")):
                return True  # of zip: it holds what another rule has made sure of
            case cst.Call():
                called = self.code(node.func)
                words = any(isinstance(arg.value, STRINGS) and " " in self.code(arg.value) for arg in node.args)
                return words or called.split(".")[-1] in TYPING or called.startswith(("log.", "logger.", "warnings."))
        return False

    def _too_plain(self, node: cst.CSTNode, operator: Any, column: int) -> bool:
        """What any test notices: a module's names and several names at once made None, len(None)."""
        match node:
            case cst.Call(func=cst.Name(value="len" | "isinstance")):
                return True
            case cst.Assign(targets=[cst.AssignTarget(target=cst.Tuple())]):
                return True
        return operator is operator_assignment and column == 0


def choose(seed: str, count: int) -> list[dict[str, Any]]:
    """The mutants: file, line, operator, before, after; and code, the whole file's."""
    files = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    lines = sorted({(file, getattr(node, "lineno", 0)) for file in files for node in ast.walk(ast.parse(file.read_text()))})
    read = functools.cache(lambda file: MetadataWrapper(cst.parse_module(file.read_text())))
    lot, chosen = random.Random(seed), list[dict[str, Any]]()
    for path, line in lot.sample(lines, len(lines)):
        file, wrapper = path.relative_to(ROOT).as_posix(), read(path)
        module, visitor = wrapper.module, Sites(wrapper.module, line)
        wrapper.visit(visitor)
        if not visitor.found:
            continue
        operator = lot.choice(sorted({name for name, _, _ in visitor.found}))
        _, node, other = lot.choice([site for site in visitor.found if site[0] == operator])
        code = module.deep_replace(node, other).code
        try:
            compile(code, file, "exec")
        except SyntaxError:
            continue
        changed = [row for row in difflib.ndiff(module.code.splitlines(), code.splitlines()) if row[0] in "+-"]
        before, after = ("\n".join(row[2:].strip() for row in changed if row[0] == sign) for sign in "-+")
        if before != after:
            chosen.append({"file": file, "line": line, "operator": operator, "before": before, "after": after, "code": code})
        if len(chosen) == count:
            break
    return chosen


def clone(number: int) -> Path:
    """A clone of HEAD with an environment of its own."""
    tree = FOLDER / f"tree-{number}"
    if not tree.exists():
        subprocess.run(["git", "clone", "--quiet", "--shared", ROOT, tree], check=True)
    subprocess.run(["git", "fetch", "--quiet", ROOT, "HEAD"], cwd=tree, check=True)
    subprocess.run(["git", "checkout", "--quiet", "--force", "--detach", "FETCH_HEAD"], cwd=tree, check=True)
    for name in KEPT:
        if (ROOT / ".cache" / name).exists() and not (tree / ".cache" / name).exists():
            shutil.copytree(ROOT / ".cache" / name, tree / ".cache" / name, symlinks=True)
    subprocess.run(["make", "--silent", "unit", "ARGS=--version", f"UV={os.environ['UV']}"], cwd=tree, check=True)
    return tree


def pytest(tree: Path, arguments: list[str], limit: float | None) -> tuple[int | None, str]:
    """pytest's exit status, None where the time is over, and what it says."""
    (tree / ".cache/arguments").write_text("\n".join(arguments))
    namespace = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    # The shell takes in what is left without a parent, as the first process of a namespace has to.
    inside = [*namespace, "bash", "-c", '"$@"; exit $?', "init", "nice", "-n", "19"]
    command = [*inside, ".venv/bin/python", "-P", "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "@.cache/arguments"]
    with (tree / ".cache/output").open("w+") as output:
        try:
            status = subprocess.run(command, cwd=tree, stdout=output, stderr=output, timeout=limit).returncode
        except subprocess.TimeoutExpired:
            status = None
        output.seek(0)
        return status, output.read()


def tests_of(mutant: dict[str, Any], data: CoverageData) -> list[str]:
    """The tests that execute its line; those of its file where that runs at import."""
    file = next((name for name in data.measured_files() if name.endswith(f"/{mutant['file']}")), None)
    by_line = data.contexts_by_lineno(file) if file else {}
    ran = by_line.get(mutant["line"], [])
    contexts = ran if any(ran) else {context for some in by_line.values() for context in some} if "" in ran else set()
    tests = sorted({context.rpartition("|")[0] for context in contexts if context})
    random.Random(0).shuffle(tests)
    mirror = f"tests/{mutant['file'].removesuffix('.py')}"
    near = (mirror.replace(Path(mirror).name, f"test_{Path(mirror).name}"), f"{Path(mirror).parent}/")
    return sorted(tests, key=lambda test: [not test.startswith(name) for name in near])[:MOST]


def stages(mutant: dict[str, Any], data: dict[str, CoverageData]) -> dict[str, list[str]]:
    """By kind, the arguments of pytest."""
    mirror = Path("tests", mutant["file"]).parent
    found = {kind: tests_of(mutant, data[kind]) for kind in MAPS}
    there = [str(mirror)] if (ROOT / mirror).is_dir() else []
    rest = ["-m", "not unit and not slow and not timing", *there, "tests/contract"]
    return {"units": ["--timeout=60", *found["units"]] if found["units"] else [], "engines": found["engines"], "rest": rest}


def killed(tree: Path, mutant: dict[str, Any], data: dict[str, CoverageData]) -> str | None:
    """The test that notices it; None: it survived."""
    path = tree / mutant["file"]
    original, was = path.read_text(), path.stat().st_mtime_ns
    try:
        path.write_text(mutant["code"])
        # Bytecode is told from older one by the second and the size alone.
        os.utime(path, ns=(was, was + 1_000_000_000 * (mutant["number"] + 1)))
        for kind, arguments in stages(mutant, data).items():
            if not arguments:
                continue
            status, said = pytest(tree, ["-x", *arguments], LIMITS[kind])
            if status == 4:  # tests that are named for what is in a table
                files = dict.fromkeys(argument.partition("::")[0] for argument in arguments)
                status, said = pytest(tree, ["-x", *files], LIMITS[kind])
            failed = re.search(r"^(?:FAILED|ERROR) (\S+\.py\S*)", said, re.MULTILINE)
            if status not in (0, 5, None):
                return failed[1] if failed else f"exit status {status}"
            if status is None and " [" not in said:
                return f"timeout before the first test's end ({kind})"
        return None
    finally:
        path.write_text(original)
        os.utime(path, ns=(was, was))


def main(seed: str, count: str, jobs: str = "2") -> int:
    """Runs what is left to run; the exit status."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    trees = [clone(number) for number in range(int(jobs))]
    sources = subprocess.run(["git", "ls-tree", "HEAD", *PACKAGES, "tests"], cwd=ROOT, check=True, capture_output=True).stdout
    commit = hashlib.sha256(sources).hexdigest()[:12]
    data = {}
    for kind, arguments in MAPS.items():
        file = FOLDER / f"{kind}-{commit}.coverage"
        if not file.exists():
            print(f"mutants: which lines the {kind} execute (many minutes, once a commit)", flush=True)
            os.environ["COVERAGE_FILE"] = str(file.with_suffix(".part"))
            pytest(trees[0], ["--cov", "--cov-context=test", "--cov-report=", *arguments], None)
            file.with_suffix(".part").rename(file)
        data[kind] = CoverageData(str(file))
        data[kind].read()
    results = FOLDER / f"results-{seed}-{commit}.json"
    done: dict[str, Any] = json.loads(results.read_text()) if results.exists() else {}
    waiting: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    mutants = [{"number": number, **mutant} for number, mutant in enumerate(choose(seed, int(count)))]
    for mutant in mutants:
        if str(mutant["number"]) not in done:
            waiting.put(mutant)

    def work(tree: Path) -> None:
        while not waiting.empty():
            mutant = waiting.get()
            by = killed(tree, mutant, data)
            done[str(mutant["number"])] = {**mutant, "code": None, "killed": by}
            results.write_text(json.dumps(done, indent=1))
            print(table(done[str(mutant["number"])]), flush=True)

    threads = [threading.Thread(target=work, args=(tree,)) for tree in trees]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = [done[str(mutant["number"])] for mutant in mutants]
    results.with_suffix(".txt").write_text("\n".join(map(table, rows)) + "\n")
    survivors = sum(row["killed"] is None for row in rows)
    print(f"mutants: {len(rows) - survivors} of {len(rows)} killed: {results.with_suffix('.txt')}")
    return int(survivors > 0)


def table(row: dict[str, Any]) -> str:
    """One mutant, as text."""
    fate = f"killed by {row['killed']}" if row["killed"] else "SURVIVED"
    return f"{row['number']:>3} {row['file']}:{row['line']} {row['operator']}\n      {row['before']!r}\n   -> {row['after']!r}\n    {fate}"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
