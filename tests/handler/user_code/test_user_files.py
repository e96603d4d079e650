"""Model directories with a user's own files, through the real DJL engine."""

from __future__ import annotations

import asyncio
import tarfile
from pathlib import Path

import pytest

from ...demo.model import question
from ...kit.api.handler import package_model as package
from ...kit.djl import hosting
from ...kit.hosts.host import Streamed, begun, client, djl_host, model_directory, without_lmi

pytestmark = [
    pytest.mark.once,
    pytest.mark.engine,
    pytest.mark.djl,
    pytest.mark.anyio,
    pytest.mark.skipif(hosting.available() is not None, reason=str(hosting.available())),
]

ASKED = question("plain")
ENDLESS = question("endless").prompt


@pytest.mark.parametrize("mode", ["rolling", "async"])
async def test_a_packaged_model_beside_a_users_own_files(mode: str, demo_model: Path, tmp_path: Path) -> None:
    """The interpreter has vLLM but no lmi; the user's files neither shadow ours nor are shadowed by them."""
    directory = model_directory(demo_model, tmp_path / "source", {"option.entryPoint": "model.py"})
    (directory / "model.py").write_text(
        "import handler, formatters\n"
        "from lmi.handler import handle\n"
        "assert handler.MINE == formatters.MINE == 'the user\\'s'\n"
        "print('MODEL', handler.__file__, formatters.__file__, flush=True)\n"
    )
    (directory / "handler.py").write_text("MINE = 'the user\\'s'\n")
    (directory / "formatters").mkdir()
    (directory / "formatters" / "__init__.py").write_text("MINE = 'the user\\'s'\n")
    archive = tmp_path / "model.tar.gz"
    package(directory, archive)
    unpacked = tmp_path / "unpacked"
    with tarfile.open(archive) as tar:
        tar.extractall(unpacked, filter="data")
    python = without_lmi(tmp_path / "venv")
    with djl_host(unpacked, tmp_path / "log", mode=mode, python=python) as host:
        async with client(host) as http:
            answer = await http.post({"inputs": ASKED.prompt, "parameters": {"max_new_tokens": 200}})
            streamed = await http.stream({"inputs": ASKED.prompt, "stream": True})
        log = host.log_text()
    assert answer.json() == {"generated_text": ASKED.answer}
    assert len(streamed.documents) > 1
    assert f"MODEL {unpacked / 'handler.py'} {unpacked / 'formatters' / '__init__.py'}" in log


async def test_reset_rollingbatch_aborts_what_was_running(demo_model: Path, tmp_path: Path) -> None:
    """A user's handle that once returns too few contents makes Java forget its requests and ask for a reset."""
    directory = model_directory(demo_model, tmp_path / "model", {"option.entryPoint": "model.py"})
    (directory / "model.py").write_text(
        "from pathlib import Path\n"
        "from lmi.handler import handle as lmi_handle\n"
        "from lmi.handler.djl.worker import worker\n"
        "spoil, seen = Path('spoil'), Path('seen')\n"
        "def handle(inputs):\n"
        "    reset = inputs.get_property('reset_rollingbatch')\n"
        "    output = lmi_handle(inputs)\n"
        "    if reset:\n"
        "        seen.write_text(str(worker().running))\n"
        "    if spoil.exists():\n"
        "        spoil.unlink()\n"
        "        output.content.keys.pop(), output.content.values.pop()\n"
        "    return output\n"
    )
    with djl_host(directory, tmp_path / "log", mode="rolling") as host:
        async with client(host) as http:
            streams = [Streamed() for _ in range(4)]
            request = {"inputs": ENDLESS, "parameters": {"max_new_tokens": 1900}, "stream": True}
            tasks = [asyncio.create_task(http.stream(request, streamed)) for streamed in streams]
            await begun(streams)
            (directory / "spoil").touch()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert all(len(streamed.lines) < 1900 for streamed in streams)
            answer = await http.post({"inputs": ASKED.prompt, "parameters": {"max_new_tokens": 200}})
    assert answer.json() == {"generated_text": ASKED.answer}
    # Of five generations that had been started, the new one alone was left running.
    assert (directory / "seen").read_text() == "1"


def test_the_cause_of_a_failed_start_reaches_the_host(demo_model: Path, tmp_path: Path) -> None:
    directory = model_directory(demo_model, tmp_path / "model", {"option.max_model_length": "2"})
    with pytest.raises(hosting.HostError, match=r"Failed to initialize model: .*max_model_len\b"):
        djl_host(directory, tmp_path / "log", mode="rolling")


def test_the_cause_of_a_failed_start_is_logged_in_async_mode(demo_model: Path, tmp_path: Path) -> None:
    """The worker ends the host, which cannot be told (start_failure.py), so the log is all that tells."""
    directory = model_directory(demo_model, tmp_path / "model", {"option.tensor_paralel_degree": "2"})
    with pytest.raises(hosting.HostError, match=r"start failed: .*tensor_parallel_degree"):
        djl_host(directory, tmp_path / "log", mode="async")


def test_a_value_error_of_model_py_fails_the_start(demo_model: Path, tmp_path: Path) -> None:
    """djl_python swallows it, and would serve without the formatter."""
    directory = model_directory(demo_model, tmp_path / "model", {})
    (directory / "model.py").write_text("raise ValueError('no such table')\n")
    with pytest.raises(hosting.HostError, match=r"Failed to initialize model: .*model\.py: ValueError: no such table"):
        djl_host(directory, tmp_path / "log", mode="rolling")
