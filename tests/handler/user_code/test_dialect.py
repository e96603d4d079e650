"""What a user's dialect does wrong is said by its name and its function's, in the answer to the request alone."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ...kit.api.handler import Exchange, Service, started_service
from ...kit.api.types import Delta, Finish, Request, Started
from ...kit.paths import USER_CODE
from ...kit.rows import each_row
from ...kit.user_code.engine import ScriptedEngine


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    engine = ScriptedEngine()
    engine.submit_then = [Started(1), Delta(0, "Hello"), Delta(0, "", finish=Finish("eos", generated_tokens=1))]
    shutil.copy(USER_CODE / "toy.py", tmp_path)
    before = list(sys.path)
    service = started_service(engine, tmp_path, output_formatter="toy:Toy")
    yield service
    service.close()
    sys.path[:] = before
    sys.modules.pop("toy", None)


def ended(service: Service, **body: object) -> Exchange:
    found = service.open(Request(json.dumps({"say": "Hi", **body}).encode()))
    until = time.monotonic() + 10
    while not found.finished:
        assert time.monotonic() < until
        time.sleep(0.005)
    return found


@each_row(
    ("manner", "stream", "said"),
    [
        ("raise matches", False, "dialect toy: matches raised RuntimeError: no idea"),
        ("raise parse", False, "dialect toy: parse raised RuntimeError: cannot read"),
        ("wrong parse", False, "dialect toy: parse returned a str, expected a ParsedRequest"),
        ("wrong generation", False, "dialect toy: parse returned a wrong Generation: Expected"),
        ("wrong reply", False, "dialect toy: Reply.feed returned a dict, expected a list of bytes"),
        ("raise reply", True, "dialect toy: Reply.feed raised RuntimeError: lost for words"),
    ],
)
def test_what_fails_is_named(service: Service, manner: str, stream: bool, said: str) -> None:
    assert said in ended(service, manner=manner, stream=stream).take_all().decode()
    assert json.loads(ended(service).take_all()) == {"said": "Hello"}
