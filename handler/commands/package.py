"""`lmi package`: a model directory with this handler unpacked beside serving.properties, as one model.tar.gz.

    model.tar.gz
    ├── serving.properties     and all else that the model directory holds
    └── lmi/                   this package, found by `option.entryPoint=lmi.handler`
        ├── formatters/
        ├── handler/
        └── model/

DJL puts the model directory on the worker's PYTHONPATH: nothing is installed in the container and no network is needed.
The same model directory and the same version of the handler give the same bytes.
"""

from __future__ import annotations

import gzip
import sys
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ... import formatters, handler, model
from ...model.errors import LmiError
from ...model.options.properties import read_properties

__all__ = ["PackageError", "Progress", "package"]

SUFFIXES = (".tar.gz", ".tgz")
LAYERS = {
    "formatters": Path(formatters.__path__[0]),
    "handler": Path(handler.__path__[0]),
    "model": Path(model.__path__[0]),
}
"""The handler's own sources as they are imported here, from an installation or an editable one."""
ENTRY_POINT = "lmi.handler"

LEFT_OUT = {
    "__pycache__", ".cache", ".DS_Store", ".git", ".hypothesis", ".idea", ".ipynb_checkpoints", ".lmi", ".mypy_cache",
    ".pytest_cache", ".ruff_cache", ".venv", ".vscode",
}  # fmt: skip
"""What stays behind; `.lmi` is the handler's own, with the adapters that were registered on this machine."""
LEFT_OUT_SUFFIXES = (".pyc", ".pyo", "~")

LARGE = 200_000_000
COMPRESSION = 1
"""Weights hardly shrink at any level, and the higher ones are ten times slower."""

Progress = Callable[[str, int, int], None]
"""Called with the name of the file being written, the bytes read so far and the bytes in all."""


class PackageError(LmiError):
    """The model directory cannot be packaged as it is; the message says what to change."""


@dataclass(frozen=True)
class Member:
    """One file or folder of the archive, and where its content comes from (None: a folder)."""

    name: str
    source: Path | None = None
    size: int = 0
    executable: bool = False


def package(
    model_dir: Path, output: Path, *, progress: Progress | None = None, warn: Callable[[str], None] | None = None
) -> None:
    """Writes `model_dir` and the handler to the archive `output`, which appears only once it is whole.

    `warn` gets a sentence for each likely mistake; that and the progress go to stderr by default. Raises PackageError
    where there is no serving.properties, where a `lmi` of somebody else would collide with ours, and where a file
    cannot be packaged.
    """
    if not output.name.endswith(SUFFIXES):
        raise PackageError(f"{output}: the archive's name must end in {' or '.join(SUFFIXES)}")
    properties = model_dir / "serving.properties"
    if not properties.is_file():
        raise PackageError(f"{model_dir} is no model directory of DJL Serving: it has no serving.properties")
    _refuse_a_foreign_lmi(model_dir)
    _check_entry_point(model_dir, properties, warn or _print_warning)

    partial = output.with_name(f".{output.name}.part")
    skipped = {output.absolute(), partial.absolute()}
    members = sorted((*_members_of_model(model_dir, skipped), *members_of_handler()), key=lambda member: member.name)
    try:
        with partial.open("wb") as file:
            _write(file, members, progress or _progress_of_large())
        partial.replace(output)
    finally:
        partial.unlink(missing_ok=True)


def members_of_handler() -> Iterator[Member]:
    """The folder lmi/ of the archive."""
    yield Member("lmi")
    for layer, folder in LAYERS.items():
        yield from _members_of_source(folder, f"lmi/{layer}")


def _members_of_source(folder: Path, name: str) -> Iterator[Member]:
    yield Member(name)
    for entry in folder.iterdir():
        if entry.is_dir():
            # Folders of other files are the local server's page.
            if (entry / "__init__.py").is_file():
                yield from _members_of_source(entry, f"{name}/{entry.name}")
        elif entry.suffix == ".py" or entry.name == "py.typed":
            yield Member(f"{name}/{entry.name}", entry, entry.stat().st_size)


def _members_of_model(model_dir: Path, skipped: set[Path]) -> Iterator[Member]:
    for entry in sorted(model_dir.iterdir()):
        # What an earlier packaging, or a wheel unpacked by hand, left there is replaced as a whole.
        if entry.name != "lmi" and not entry.name.startswith("lmi_handler-"):
            yield from _members_of_path(entry, entry.name, skipped, within=(model_dir.resolve(),))


def _members_of_path(path: Path, name: str, skipped: set[Path], within: tuple[Path, ...]) -> Iterator[Member]:
    """`path` and what is below it. Links are followed: a snapshot in a hub's cache is links to what stays behind."""
    if path.name in LEFT_OUT or path.name.endswith(LEFT_OUT_SUFFIXES) or path.absolute() in skipped:
        return
    if path.is_dir():
        real = path.resolve()
        if real in within:
            raise PackageError(f"{path} is a link to a folder that contains it")
        yield Member(name)
        for entry in sorted(path.iterdir()):
            yield from _members_of_path(entry, f"{name}/{entry.name}", skipped, (*within, real))
    elif path.is_file():
        status = path.stat()
        yield Member(name, path, status.st_size, executable=bool(status.st_mode & 0o100))
    elif path.is_symlink():
        raise PackageError(f"{path} is a link to {path.readlink()}, which does not exist")
    else:
        raise PackageError(f"{path} is neither a file nor a folder")


def _write(file: BinaryIO, members: list[Member], progress: Progress) -> None:
    total = sum(member.size for member in members)
    done = 0
    with (
        gzip.GzipFile(filename="", mode="wb", compresslevel=COMPRESSION, fileobj=file, mtime=0) as zipped,
        tarfile.TarFile(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT, copybufsize=1 << 20) as tar,
    ):
        for member in members:
            info = tarfile.TarInfo(member.name)  # owner and group 0, time 0
            if member.source is None:
                info.type, info.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(info)
                continue
            info.size, info.mode = member.size, 0o755 if member.executable else 0o644
            with member.source.open("rb") as content:
                tar.addfile(info, _Content(content, member.name, done, total, progress))
            done += member.size


class _Content:
    """A file that reports how far it has been read: weights pass through in pieces, never as a whole."""

    def __init__(self, content: BinaryIO, name: str, done: int, total: int, progress: Progress) -> None:
        self._content, self._name, self._done, self._total, self._progress = content, name, done, total, progress

    def read(self, size: int = -1, /) -> bytes:
        piece = self._content.read(size)
        if len(piece) < size:
            raise PackageError(f"{self._name} became shorter while it was read")
        self._done += len(piece)
        self._progress(self._name, self._done, self._total)
        return piece


def _refuse_a_foreign_lmi(model_dir: Path) -> None:
    if (module := model_dir / "lmi.py").exists():
        raise PackageError(f"{module} would hide the handler's package lmi: rename it")
    folder = model_dir / "lmi"
    if not folder.exists():
        return
    entries = {entry.name for entry in folder.iterdir()} if folder.is_dir() else set[str]()
    strangers = sorted(entries - set(LAYERS) - LEFT_OUT)
    if strangers or not (folder / "handler" / "__init__.py").is_file():
        which = f" (it holds {', '.join(strangers[:3])})" if strangers else ""
        raise PackageError(f"{folder} is not a packaged handler{which}: rename it, the handler is unpacked there")


def _check_entry_point(model_dir: Path, properties: Path, warn: Callable[[str], None]) -> None:
    entry = read_properties(properties.read_bytes().decode("latin-1")).get("option.entryPoint", "").strip()
    if not entry:
        if not (model_dir / "model.py").is_file():
            warn(
                f"{properties} has no option.entryPoint and there is no model.py: "
                f"the handler is used with option.entryPoint={ENTRY_POINT}"
            )
        return
    as_module = model_dir.joinpath(*entry.split("."))
    if entry != ENTRY_POINT and not any(
        path.is_file() for path in (model_dir / entry, as_module.with_suffix(".py"), as_module / "__init__.py")
    ):
        warn(
            f"option.entryPoint={entry} in {properties} is neither {ENTRY_POINT} nor a file of {model_dir}: "
            "the packaged handler will not be used"
        )


def _print_warning(message: str) -> None:
    print(f"warning: {message}", file=sys.stderr)


def _progress_of_large() -> Progress:
    """Prints every tenth of what takes more than some seconds."""
    shown = 0

    def show(name: str, done: int, total: int) -> None:
        nonlocal shown
        tenths = 10 * done // max(total, 1)
        if total >= LARGE and tenths > shown:
            shown = tenths
            print(f"package: {10 * tenths} % of {total / 1e9:.1f} GB ({name})", file=sys.stderr, flush=True)

    return show
