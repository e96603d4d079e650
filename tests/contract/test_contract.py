"""What every host owes every dialect: a whole answer, a stream, a refusal. On the local server and, behind the
real DJL engine, in rolling batch, async mode and dynamic batch.

Other tests of hosts do not repeat it. `make test` has the local server and rolling batch, `make test-hosts` the others.
"""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from ..kit.answers.spoken import ASKED, SPOKEN, Body, Spoken
from ..kit.hosts.host import Host
from ..kit.hosts.pool import EVERY

pytestmark = [
    pytest.mark.engine,
    pytest.mark.djl,
    pytest.mark.contract,
    EVERY,
    pytest.mark.parametrize("spoken", [pytest.param(one, id=name) for name, one in SPOKEN.items()]),
]


def post(host: Host, spoken: Spoken, body: Body) -> httpx.Response:
    return httpx.post(f"{host.url}/invocations", json=body, headers=spoken.headers, timeout=120)


def content_type(answer: httpx.Response) -> str:
    return answer.headers["content-type"].partition(";")[0]


def test_a_whole_answer(host: Host, spoken: Spoken) -> None:
    answer = post(host, spoken, spoken.whole)
    assert (answer.status_code, content_type(answer)) == (200, spoken.kinds[0]), answer.text
    assert spoken.text(answer.json()) == ASKED.answer
    # SageMaker's asynchronous inference takes no chunks.
    assert answer.headers["content-length"] == str(len(answer.content))


def test_a_stream(host: Host, spoken: Spoken) -> None:
    answer = post(host, spoken, spoken.stream)
    assert (answer.status_code, content_type(answer)) == (200, spoken.kinds[1]), answer.text
    assert answer.content.endswith(b"\n")
    lines = [line for line in answer.content.split(b"\n") if line and not line.startswith(b"event: ")]
    if spoken.end is not None:
        assert lines.pop() == spoken.end
    records: list[Any] = [json.loads(line.removeprefix(b"data: ")) for line in lines]
    assert len(records) > 10
    assert "".join(map(spoken.piece, records)) == ASKED.answer


def test_a_refusal_names_the_field(host: Host, spoken: Spoken) -> None:
    """Of a stream, which has not begun; that of a whole answer is a unit test's, by dialect."""
    answer = post(host, spoken, {**spoken.bad, "stream": True})
    # Of a stream of events that a browser reads, the status is 200 whatever happens.
    assert answer.status_code == spoken.status, answer.text
    assert "temperature" in answer.text
    assert answer.headers["content-length"] == str(len(answer.content))
