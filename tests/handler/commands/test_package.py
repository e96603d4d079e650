"""What reaches the container: the wheel, and the archive that `lmi package` writes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Mapping
from email import message_from_bytes
from pathlib import Path

import pytest

from lmi.handler.commands import package as package_module
from lmi.handler.commands.package import PackageError, package

from ...kit.adapters import LLAMA, write_adapter
from ...kit.paths import ROOT
from ...kit.rows import each_row

LAYERS = ("formatters", "handler", "model")


def ours() -> set[str]:
    """The files of the repository that make the package, by their names in it."""
    return {
        f"lmi/{path.relative_to(ROOT).as_posix()}"
        for layer in LAYERS
        for path in (ROOT / layer).rglob("*")
        if path.suffix == ".py" or path.name == "py.typed"
    }


def directory(path: Path, files: Mapping[str, str]) -> Path:
    """A model directory with these files."""
    for name, content in {"serving.properties": "option.entryPoint=lmi.handler\n", **files}.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, errors="surrogateescape")
    return path


def silent(message: str) -> None:
    raise AssertionError(f"warned: {message}")


def packaged(model_dir: Path, tmp_path: Path) -> tuple[Path, list[tarfile.TarInfo]]:
    """The archive of a model directory, unpacked, and its members."""
    output, unpacked = tmp_path / "model.tar.gz", tmp_path / "unpacked"
    package(model_dir, output, warn=silent)
    with tarfile.open(output) as tar:
        tar.extractall(unpacked, filter="data")
        return unpacked, tar.getmembers()


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with everything that this one has except lmi, however that is installed here."""
    home = tmp_path_factory.mktemp("bare")
    venv.create(home, symlinks=True, with_pip=False)
    (there,) = home.glob("lib/python*/site-packages")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if entry.suffix != ".pth" and not entry.name.startswith(("lmi", "__editable__")):
            (there / entry.name).symlink_to(entry)
    return home / "bin" / "python"


def run(python: Path, code: str, model_dir: Path) -> list[str]:
    """The lines that `code` prints where the host would run it: in the model directory, which is on PYTHONPATH."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        [python, "-c", code],
        cwd=model_dir,
        env={**environment, "PYTHONPATH": str(model_dir), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


USERS_OWN = {
    "model.py": "OWNER = 'user'\nfrom lmi.handler import handle\n",
    "handler.py": "OWNER = 'user'\n",
    "formatters/__init__.py": "OWNER = 'user'\n",
    "formatters/base.py": "OWNER = 'user'\n",
}


def test_the_handler_is_found_beside_the_users_own_modules(tmp_path: Path, bare_python: Path) -> None:
    """Each of its modules, but what needs vLLM, where it is nowhere else; and before one that is installed."""
    unpacked, _ = packaged(directory(tmp_path / "mine", USERS_OWN), tmp_path)
    names = {name[:-3].replace("/", ".").removesuffix(".__init__") for name in ours() if name.endswith(".py")}
    # Only in DJL's worker is there a djl_python.
    djl = {f"lmi.handler.djl.{name}" for name in ("worker", "convert", "reading")}
    others = djl | {"lmi.handler.user_code.formatters.djl_formatters"}
    standing = sorted(name for name in names - others if not name.startswith("lmi.model.vllm."))
    code = f"""
import importlib
for name in {standing}:
    print(importlib.import_module(name).__file__)
import formatters.base, handler, model
assert {{formatters.OWNER, formatters.base.OWNER, handler.OWNER, model.OWNER}} == {{"user"}}
import lmi.handler
assert model.handle is lmi.handler.handle
"""
    found = run(bare_python, code, unpacked)
    assert len(found) == len(standing) > 200
    assert all(Path(file).is_relative_to(unpacked / "lmi") for file in found)
    code = "import lmi.formatters as f, lmi.handler as h, lmi.model.errors as e\nfor m in (f, h, e): print(m.__file__)"
    found = run(Path(sys.executable), code, unpacked)
    assert [Path(file).is_relative_to(unpacked / "lmi") for file in found] == [True] * 3


@pytest.fixture
def without_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive of the model directory alone: it is written in no time."""
    monkeypatch.setattr(package_module, "LAYERS", {})


def test_the_archive_holds_the_directory_and_the_handler(tmp_path: Path) -> None:
    mine = directory(tmp_path / "mine", {"weights/a.safetensors": "w", "model.py": "", "adapters/one/x.bin": "x"})
    for rubbish in ("__pycache__/model.pyc", ".git/HEAD", "weights/.cache/lock", "model.py~", ".lmi/adapters.json"):
        directory(mine, {rubbish: "rubbish"})
    (mine / "start.sh").write_text("")
    (mine / "start.sh").chmod(0o700)
    _, members = packaged(mine, tmp_path)
    files = {member.name: member for member in members if member.isfile()}
    assert set(files) - ours() == {
        "adapters/one/x.bin",
        "model.py",
        "serving.properties",
        "start.sh",
        "weights/a.safetensors",
    }
    assert set(files) >= ours()
    assert {member.mode for member in members if member.isdir()} == {0o755}
    assert {name for name, member in files.items() if member.mode != 0o644} == {"start.sh"}


def test_adapters_go_along(tmp_path: Path) -> None:
    """Those of the model directory, and those beside weights that are in a folder of it."""
    mine = directory(
        tmp_path / "mine", {"serving.properties": "option.entryPoint=lmi.handler\noption.model_id=weights\n"}
    )
    names = {
        f"{place}/{name}"
        for place in ("adapters/a", "weights/adapters/b")
        for name in ("adapter_config.json", "adapter_model.safetensors")
    }
    directory(mine, {"adapters/a/model.py": "", "weights/config.json": "{}"})
    for place in ("adapters/a", "weights/adapters/b"):
        write_adapter(mine / place, LLAMA)
    unpacked, members = packaged(mine, tmp_path)
    files = {member.name for member in members if member.isfile()} - ours()
    assert files == names | {"serving.properties", "adapters/a/model.py", "weights/config.json"}
    assert {name for name in names if (unpacked / name).read_bytes() != (mine / name).read_bytes()} == set()


@pytest.mark.usefixtures("without_ours")
def test_the_archive_is_the_same_bytes_each_time(tmp_path: Path) -> None:
    archives: list[bytes] = []
    for turn in ("first", "second"):
        mine = directory(tmp_path / turn, {"b.txt": "b", "a.txt": "a"})
        os.utime(mine / "a.txt", (len(turn), len(turn)))
        package(mine, tmp_path / f"{turn}.tar.gz", warn=silent)
        archives.append((tmp_path / f"{turn}.tar.gz").read_bytes())
    assert archives[0] == archives[1]
    with tarfile.open(tmp_path / "first.tar.gz") as tar:
        names = tar.getnames()
        assert {(member.mtime, member.uid, member.gid, member.uname) for member in tar} == {(0, 0, 0, "")}
    assert names == sorted(names)


def test_a_packaged_directory_is_packaged_again(tmp_path: Path) -> None:
    """The handler that came with an earlier archive, or a wheel that was unpacked there, gives way to this one."""
    mine = directory(tmp_path / "mine", {"w": "w"})
    unpacked, members = packaged(mine, tmp_path)
    directory(unpacked, {"lmi/model/gone.py": "stale", "lmi_handler-0.0.1.dist-info/RECORD": "stale"})
    again = tmp_path / "again"
    again.mkdir()
    _, members_again = packaged(unpacked, again)
    assert [member.name for member in members_again] == [member.name for member in members]


@pytest.mark.usefixtures("without_ours")
def test_links_are_followed(tmp_path: Path) -> None:
    mine = directory(tmp_path / "mine", {})
    blobs = directory(tmp_path / "blobs", {"blob": "weights", "folder/inner": "inner"})
    (mine / "model.safetensors").symlink_to(blobs / "blob")
    (mine / "folder").symlink_to(blobs / "folder")
    unpacked, members = packaged(mine, tmp_path)
    assert not [member for member in members if member.issym()]
    assert (unpacked / "model.safetensors").read_text() == "weights"
    assert (unpacked / "folder" / "inner").read_text() == "inner"


@pytest.mark.usefixtures("without_ours")
def test_the_archive_may_stand_in_the_directory_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(directory(tmp_path / "mine", {}))
    for _ in range(2):
        package(Path(), Path("model.tar.gz"), warn=silent)
        with tarfile.open("model.tar.gz") as tar:
            assert {name for name in tar.getnames() if not name.startswith("lmi")} == {"serving.properties"}
    assert sorted(path.name for path in Path().iterdir()) == ["model.tar.gz", "serving.properties"]


@pytest.mark.usefixtures("without_ours")
def test_weights_are_streamed_and_progress_is_told(tmp_path: Path) -> None:
    size = 8 << 20
    mine = directory(tmp_path / "mine", {})
    (mine / "weights").write_bytes(os.urandom(size))
    seen: list[tuple[str, int, int]] = []
    package(mine, tmp_path / "m.tgz", warn=silent, progress=lambda *told: seen.append(told))
    steps = [done for _, done, _ in seen]
    total = seen[0][2]
    assert total >= size
    assert steps == sorted(steps)
    assert steps[-1] == total
    assert len([name for name, _, _ in seen if name == "weights"]) >= 8, "read in pieces of at most 1 MiB"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        pytest.param({"lmi.py": ""}, "rename it", id="a module named lmi"),
        pytest.param({"lmi/__init__.py": ""}, "rename it", id="a package named lmi"),
        pytest.param({"lmi": "a file"}, "rename it", id="a file named lmi"),
        pytest.param({"lmi/handler/package.py": "", "lmi/tools.py": ""}, "it holds tools.py", id="more than ours"),
    ],
)
def test_a_foreign_lmi_is_refused(tmp_path: Path, files: dict[str, str], said: str) -> None:
    with pytest.raises(PackageError, match=said):
        package(directory(tmp_path / "mine", files), tmp_path / "model.tar.gz")
    assert not (tmp_path / "model.tar.gz").exists()


def test_what_cannot_be_packaged_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(PackageError, match=r"no serving\.properties"):
        package(tmp_path / "empty", tmp_path / "model.tar.gz")
    mine = directory(tmp_path / "mine", {})
    with pytest.raises(PackageError, match=r"must end in \.tar\.gz"):
        package(mine, tmp_path / "model.zip")
    (mine / "dangling").symlink_to(tmp_path / "nowhere")
    with pytest.raises(PackageError, match="which does not exist"):
        package(mine, tmp_path / "model.tar.gz")
    (mine / "dangling").unlink()
    (mine / "round").symlink_to(mine)
    with pytest.raises(PackageError, match="a folder that contains it"):
        package(mine, tmp_path / "model.tar.gz")
    (mine / "round").unlink()
    os.mkfifo(mine / "pipe")
    with pytest.raises(PackageError, match="neither a file nor a folder"):
        package(mine, tmp_path / "model.tar.gz")
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == []


@pytest.mark.usefixtures("without_ours")
def test_a_file_that_shrinks_leaves_no_archive(tmp_path: Path) -> None:
    mine = directory(tmp_path / "mine", {"a": "first", "b": "x" * 100_000})

    def shrink(name: str, done: int, total: int) -> None:
        if name == "a":
            (mine / "b").write_text("")

    with pytest.raises(PackageError, match="b became shorter"):
        package(mine, tmp_path / "m.tgz", progress=shrink)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.usefixtures("without_ours")
@each_row(
    ("properties", "files", "said"),
    [
        ("option.entryPoint=lmi.handler", {}, None),
        (" option.entryPoint : lmi.handler ", {}, None),
        ("option.entryPoint=model.py", {"model.py": ""}, None),
        ("option.entryPoint=serve", {"serve.py": ""}, None),
        ("option.entryPoint=my.serve", {"my/serve.py": ""}, None),
        ("option.entryPoint=my", {"my/__init__.py": ""}, None),
        ("engine=Python", {"model.py": ""}, None),
        ("#option.entryPoint=lmi.handler", {}, "has no option.entryPoint"),
        ("option.entryPoint=", {}, "has no option.entryPoint"),
        ("option.entryPoint=lmi.handler\noption.entryPoint=djl_python.huggingface", {}, "djl_python.huggingface in"),
        ("option.entryPoint=model.py", {}, "model.py in"),
        # Latin-1, as Java reads it.
        ("# gr\udcfcn\noption.entryPoint=lmi.handler", {}, None),
    ],
)
def test_an_entry_point_that_is_not_ours_is_warned_of(
    tmp_path: Path, properties: str, files: dict[str, str], said: str | None
) -> None:
    warnings: list[str] = []
    shutil.rmtree(tmp_path / "mine", ignore_errors=True)
    mine = directory(tmp_path / "mine", {**files, "serving.properties": properties})
    package(mine, tmp_path / "model.tar.gz", warn=warnings.append)
    assert [said in warning for warning in warnings if said] == [True] * bool(said)
    assert len(warnings) == bool(said)


def test_the_wheel_holds_the_package_and_nothing_else(tmp_path: Path) -> None:
    """Built as pip builds it, from a copy: a build leaves its traces in the folder of the sources."""
    copy = tmp_path / "sources"
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        directory(copy, {name: (ROOT / name).read_text("utf-8")})
    for name in ours():
        directory(copy, {name.removeprefix("lmi/"): (ROOT / name.removeprefix("lmi/")).read_text("utf-8")})
    # What lies about in a checkout must not come along.
    directory(
        copy,
        {"model/notes.txt": "", "model/__pycache__/x.cpython-311.pyc": "", "tests/test_x.py": "", ".typing/lmi/x": ""},
    )
    code = "import setuptools.build_meta as backend; print(backend.build_wheel('.'))"
    built = subprocess.run(
        [sys.executable, "-c", code], cwd=copy, capture_output=True, text=True, timeout=120, check=False
    )
    assert built.returncode == 0, built.stderr
    wheel = copy / built.stdout.splitlines()[-1]
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        about = {name.partition(".dist-info/")[2]: name for name in archive.namelist() if name not in names}
        metadata = message_from_bytes(archive.read(about["METADATA"]))
        assert archive.read(about["licenses/LICENSE"]) == (ROOT / "LICENSE").read_bytes()
    assert names == ours()
    assert metadata["License-Expression"] == "Apache-2.0"
