"""What the log tells of errors: nothing of a client's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from lmi.model import log as logs

from ..kit.api.errors import GenerationError, OverloadedError, RequestError, UnavailableError, UserCodeError
from ..kit.logs import MARK, Caught, fail

pytestmark = pytest.mark.once


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    logs.show_content(True)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RequestError.of("parameters.top_p", MARK, "a number"), "invalid_request_error (parameters.top_p)"),
        (RequestError("wrong", "messages[0].content[1].image_url.url"),
         "invalid_request_error (messages[0].content[1].image_url.url)"),
        (RequestError("wrong", f"parameters.\x1b[2J{MARK}"), "invalid_request_error"),
        (GenerationError(f"broken by {MARK}"), "generation_failed"),
        (UserCodeError(f"model.py raised ValueError: {MARK}"), "user_code_failed"),
        (UnavailableError("the engine is being rebuilt"), "engine_unavailable: the engine is being rebuilt"),
        (OverloadedError("too many"), f"{OverloadedError.code}: too many"),
        (None, "no error"),
    ],
)  # fmt: skip
def test_an_error_is_told_without_what_was_given(error: Any, told: str) -> None:
    logs.show_content(False)
    assert logs.fault(error) == told
    logs.show_content(True)
    if error is not None:
        assert error.message in logs.fault(error)


def test_a_traceback_is_told_without_what_exceptions_say() -> None:
    with pytest.raises(KeyError) as caught:
        fail()
    told = logs.trace(caught.value, shown=False)
    assert MARK not in told
    assert "in fail" in told
    assert told.index("JSONDecodeError (message withheld") < told.index("KeyError (message withheld")
    assert MARK in logs.trace(caught.value, shown=True)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError(MARK), "an unexpected ValueError"),
        (RuntimeError("CUDA error: device-side assert triggered"), "CUDA error: device-side assert triggered"),
        (RuntimeError("[enforce fail] . DefaultCPUAllocator: can't allocate memory"), None),
        (MemoryError("no room"), "no room"),
        (RuntimeError(), "an unexpected RuntimeError"),
    ],
)
def test_the_cause_of_an_engine_s_end(error: Exception, told: str | None) -> None:
    logs.show_content(False)
    assert logs.cause(error) == (told or str(error))


def test_json_lines() -> None:
    caught = Caught("lmi.tests")
    caught.handler.setFormatter(logs.JsonFormatter())
    caught.logger.info("request %s refused: %s", "a-1", 'said "no"')
    caught.logger.warning("request %s: of it", "a-2")
    caught.logger.warning("nothing\nabout it")
    try:
        fail()
    except KeyError:
        caught.logger.exception("request %s: it failed", "a-3")
    first, second, third, fourth = (json.loads(line) for line in caught.text.splitlines())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", first.pop("time"))
    assert first == {
        "level": "INFO", "logger": "lmi.tests", "message": 'request a-1 refused: said "no"', "request_id": "a-1"
    }  # fmt: skip
    assert second["request_id"] == "a-2"
    assert "request_id" not in third
    assert fourth["request_id"] == "a-3"
    assert "KeyError" in fourth["exception"]


def test_ids_of_old_requests_are_forgotten() -> None:
    ids = logs.RequestIds(size=2)
    for number in (1, 2, 3):
        ids.add(number, f"r-{number}")
    assert [ids[number] for number in (1, 2, 3)] == ["-", "r-2", "r-3"]
